"""
The kernel log as it is written: `/dev/kmsg`, or any descriptor that returns one such record per read.

A separate thread reads, because a flood leaves 4 ms until records are overwritten, and an event loop may be busy for
longer. The thread sleeps in epoll (no periodic wake-up), reads the ring until it is empty, and wakes the loop only for
records that may matter, for a loss, or to move the cursor before it sleeps again. Nothing here judges a record.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import stat
import threading
import time
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

from healthd.clock import Clock
from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.errors import CannotRead, cannot_open_kernel_log
from healthd.probes.klog.log import Mailbox, known_sequence
from healthd.probes.klog.priority import AdaptivePriority, ThreadScheduling
from healthd.probes.klog.record import KernelTime, may_matter, microseconds_of, parse_record
from healthd.probes.klog.ring import Drained, End, Read, Ring, Wanted, to_oldest

KMSG = "/dev/kmsg"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(path: Path = BOOT_ID) -> str:
    """The id of the running boot, as the kernel writes it."""
    return path.read_text().strip()


def open_kmsg(
    path: str = KMSG,
    *,
    clock: Clock,
    boot_id: str,
    cursor: KernelLogCursor | None = None,
    fd: int | None = None,
    trust_user_space: bool = False,
    wanted: Wanted | re.Pattern[bytes] = may_matter,
    kernel_time: KernelTime | None = None,
) -> Kmsg:
    """
    A reader that goes on after *cursor*. A cursor of another boot, or none, means the whole ring from its start.

    *fd*: an open descriptor to use instead of *path*; the reader owns it from now on. *trust_user_space* also takes
    records that a process wrote (for drills; a caller that sets it must show that clearly). *wanted* is a cheap test of
    raw bytes, one record or many joined, that saves the parsing of irrelevant ones. Raises CannotRead.
    """
    known = known_sequence(cursor, boot_id=boot_id, source="kmsg")
    matches = wanted if callable(wanted) else lambda raw: wanted.search(raw) is not None
    device = _open(path) if fd is None else fd
    os.set_blocking(device, False)
    to_oldest(device)  # a received descriptor may be at any position
    if stat.S_ISREG(os.fstat(device).st_mode):
        os.close(device)
        raise CannotRead(path, "it is an ordinary file", "follow it with kernel_log.source: file")
    uptime = timedelta(seconds=time.monotonic())
    return Kmsg(
        device,
        boot_id=boot_id,
        last_sequence=known,
        wanted=matches,
        kernel_time=kernel_time or KernelTime(clock, clock.now() - uptime),
        trust_user_space=trust_user_space,
    )


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise cannot_open_kernel_log(path, error) from error


class Kmsg:
    """The reader behind `open_kmsg`. Closes its descriptor when `batches` ends, or by `close` when it never ran."""

    def __init__(
        self,
        fd: int,
        *,
        boot_id: str,
        last_sequence: int,
        wanted: Wanted,
        kernel_time: KernelTime,
        trust_user_space: bool = False,
        read: Read = os.read,
    ) -> None:
        self._fd = fd
        self._boot_id = boot_id
        self._ring = Ring(fd, wanted=wanted, last_sequence=last_sequence, read=read)
        self._time = kernel_time
        self._trust_user_space = trust_user_space
        self._urgency = AdaptivePriority(ThreadScheduling())
        self._bell = -1
        self._questions = 0

    @property
    def source(self) -> str:
        """The source whose numbering the records have."""
        return "kmsg"

    @property
    def boot_id(self) -> str:
        """The boot that the records belong to."""
        return self._boot_id

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """Every record that may matter, once, in order. May run only once."""
        mailbox = Mailbox(asyncio.get_running_loop(), is_backlog=True)
        bell = self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        thread = threading.Thread(target=self._run, args=(mailbox, bell), name="kernel-log", daemon=True)
        thread.start()
        try:
            while (batch := await mailbox.take()) is not None:
                yield batch
        finally:
            mailbox.close()
            os.eventfd_write(bell, 1)
            thread.join()
            self._bell = -1
            os.close(bell)
            self.close()

    def ask(self) -> int:
        """Wake the reader. It answers when the ring, read from then on, is empty."""
        if self._bell < 0:
            return 0
        self._questions += 1
        os.eventfd_write(self._bell, 1)
        return self._questions

    def close(self) -> None:
        """Close the descriptor. Harmless when it is closed already."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _run(self, mailbox: Mailbox, bell: int) -> None:
        try:
            self._read_until_closed(mailbox, bell)
        except Exception as error:  # the thread reports its end only here: the consumer of batches gets it raised
            mailbox.end(error)
        else:
            mailbox.end()
        finally:
            self._urgency.calm()

    def _read_until_closed(self, mailbox: Mailbox, bell: int) -> None:
        urgency = self._urgency
        urgency.begin()
        with select.epoll() as poll:
            poll.register(bell, select.EPOLLIN)
            poll.register(self._fd, select.EPOLLIN)
            just_woke = False
            while mailbox.is_open:
                question = self._questions  # a question that arrives during this read waits for the next one
                drained = self._ring.drain()
                urgency.read(drained.count)
                if just_woke and drained.end is End.DRY:
                    self._fit_time(drained)
                self._hand_over(mailbox, drained)
                just_woke = False
                if drained.end is End.CLOSED:
                    return
                if drained.end is End.DRY:
                    mailbox.answer(question)
                    just_woke = self._rest(mailbox, poll, bell)

    def _rest(self, mailbox: Mailbox, poll: select.epoll, bell: int) -> bool:
        """The source is empty: sleep until it is not, or in a flood only for a moment. True after a sleep."""
        if (breath := self._urgency.breath()) is not None:
            if breath:
                time.sleep(breath)
            return False
        mailbox.flush()
        while not poll.poll(self._urgency.patience()):
            self._urgency.calm()
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(bell)
        self._urgency.woke()
        return True

    def _fit_time(self, drained: Drained) -> None:
        if drained.newest:
            self._time.fit(microseconds_of(drained.newest))

    def _hand_over(self, mailbox: Mailbox, drained: Drained) -> None:
        if drained.count:
            parsed = [parse_record(raw, boot_id=self._boot_id, time=self._time) for raw in drained.wanted]
            records = tuple(record for record in parsed if record and self._is_trusted(record))
            last = self._ring.last_sequence
            mailbox.ingest(RecordBatch(records=records, last_sequence=last, count=drained.count, lost=drained.lost))

    def _is_trusted(self, record: KernelRecord) -> bool:
        return record.facility == 0 or self._trust_user_space
