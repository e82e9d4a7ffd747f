"""
Kernel records from journald, for hosts where this process cannot open /dev/kmsg.

`journalctl` runs as a child and follows the log: its JSON is a stable interface, and no library has to be installed.
Records that journald dropped cannot be counted. A record's number here is the kernel's own timestamp in microseconds
since boot.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

import msgspec

from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.errors import CannotRead
from healthd.probes.klog.log import known_sequence
from healthd.probes.klog.record import KernelTime

FOLLOW = ("journalctl", "--dmesg", "--boot", "--follow", "--no-tail", "--output=json")
"""The kernel's records of this boot, from its beginning, then new ones."""
LONGEST_LINE = 1024 * 1024


class JournalEntry(msgspec.Struct):
    """The fields of a journal entry that are read. A message that is not plain text is an array of bytes."""

    message: str | list[int] | None = msgspec.field(default=None, name="MESSAGE")
    priority: str = msgspec.field(default="6", name="PRIORITY")
    facility: str = msgspec.field(default="0", name="SYSLOG_FACILITY")
    transport: str = msgspec.field(default="", name="_TRANSPORT")
    stamp: str = msgspec.field(default="", name="_SOURCE_MONOTONIC_TIMESTAMP")
    device: str = msgspec.field(default="", name="_KERNEL_DEVICE")


class Journal:
    """journald as a `KernelLog`. *command* replaces `journalctl`. Raises CannotRead without it."""

    def __init__(
        self,
        *,
        boot_id: str,
        kernel_time: KernelTime,
        cursor: KernelLogCursor | None = None,
        command: Sequence[str] = FOLLOW,
    ) -> None:
        if shutil.which(command[0]) is None:
            remedy = "install systemd's journalctl, or name a log file with kernel_log.source: file"
            raise CannotRead("the journal", f"there is no {command[0]} here", remedy)
        self._boot_id = boot_id
        self._time = kernel_time
        self._known = known_sequence(cursor, boot_id=boot_id, source="journal")
        self._last = -1
        self._command = command

    @property
    def source(self) -> str:
        """The source whose numbering the records have."""
        return "journal"

    @property
    def boot_id(self) -> str:
        """The boot that the records belong to."""
        return self._boot_id

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """Every kernel record, one per batch. Raises OSError when journalctl ends."""
        child = await asyncio.create_subprocess_exec(
            *self._command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, limit=LONGEST_LINE
        )
        try:
            assert child.stdout is not None
            async for line in child.stdout:
                if record := self._read(line):
                    yield RecordBatch(source="journal", records=(record,), last_sequence=record.sequence, count=1)
            raise OSError(errno.EIO, f"journalctl ended with status {await child.wait()}")
        finally:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    def ask(self) -> int:
        """It is not known which records journald still holds back."""
        return 0

    def _read(self, line: bytes) -> KernelRecord | None:
        """The record of one line. None where it is no kernel record or was known before."""
        record = parse_entry(line, boot_id=self._boot_id, time=self._time)
        if record is None:
            return None
        self._last = max(record.sequence, self._last + 1)  # two of one microsecond stay apart, each time the same way
        return msgspec.structs.replace(record, sequence=self._last) if self._last > self._known else None


def parse_entry(line: bytes, *, boot_id: str, time: KernelTime) -> KernelRecord | None:
    """A journal entry as a kernel record. None if it is none. Only journald itself can set `_TRANSPORT`."""
    try:
        entry = msgspec.json.decode(line, type=JournalEntry)
        stamp, priority = int(entry.stamp), int(entry.facility) * 8 + int(entry.priority)
        text = (
            entry.message if isinstance(entry.message, str) else bytes(entry.message or b"").decode("utf-8", "replace")
        )
    except (msgspec.DecodeError, ValueError):
        return None
    if entry.transport != "kernel" or priority > 7:
        return None
    return KernelRecord(
        sequence=stamp,
        at=time.at(stamp),
        text=text,
        priority=priority,
        boot_id=boot_id,
        source="journal",
        tags={"DEVICE": entry.device} if entry.device else {},
    )
