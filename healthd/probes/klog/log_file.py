"""
Kernel records from a log file that a log daemon writes, for hosts where this process cannot open /dev/kmsg.

Weaker than the kernel's own log: there are no sequence numbers, so what a log daemon dropped cannot be counted, and a
daemon that lets newlines through lets a process forge a line. A file gives no notice of growth, so it is read every
POLL. A record's number here is its time in microseconds: it grows through rotations and reboots.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path

import msgspec

from healthd.clock import Clock
from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.klog import parse_line
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.errors import CannotRead
from healthd.probes.klog.log import known_sequence
from healthd.probes.klog.record import KernelTime, parse_record

POLL = timedelta(milliseconds=500)
"""The standard library has no notification of a file's growth. Half a second is short compared with NCCL's time-out."""
BACKLOG = 16 * 1024 * 1024
"""Bytes at the end of the file that are read at the start: what happened while no agent was reading."""
PIECE = 1024 * 1024
LONGEST_LINE = 64 * 1024

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RAW = re.compile(r"\d{1,4},\d+,\d+,[^;]{1,64};")
_ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?:Z|[+-]\d\d:?\d\d)(?=\s)")
_LEAP_SECOND = re.compile(r"(?<=\d\d:\d\d:)60")
_SINCE_BOOT = re.compile(r"\[\s*(\d{1,12})\.(\d{6})\]")


class LogTail:
    """The complete lines that a file gains, through truncation and rotation. Raises CannotRead if it cannot start."""

    def __init__(self, path: Path, *, backlog: int = BACKLOG) -> None:
        self._path = path
        self._partial = b""
        try:
            self._file = FileIO(path)
        except OSError as error:
            remedy = "name the file that your log daemon writes kernel messages to, and let healthd read it"
            raise CannotRead(str(path), error.strerror or str(error), remedy) from error
        if self._file.seek(0, os.SEEK_END) > backlog:
            self._file.seek(-backlog, os.SEEK_END)
            self._file.readline()  # the rest of a line that was cut
        else:
            self._file.seek(0)

    def read(self) -> list[str]:
        """The next complete lines. [] when there are none now. Raises OSError."""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._start_over()
        piece = self._file.read(PIECE)
        if not piece and self._was_replaced():
            self._file.close()
            self._file = FileIO(self._path)
            self._start_over()
            piece = self._file.read(PIECE)
        return self._complete(piece)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _start_over(self) -> None:
        self._file.seek(0)
        self._partial = b""

    def _was_replaced(self) -> bool:
        """Whether another file is at the path. No file at all is an unfinished rotation: wait."""
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return False

    def _complete(self, piece: bytes) -> list[str]:
        *lines, self._partial = (self._partial + piece).split(b"\n")
        if len(self._partial) > LONGEST_LINE:
            lines, self._partial = [*lines, self._partial], b""
        return [line.decode("utf-8", "replace") for line in lines]


class FileLog:
    """
    A log file as a `KernelLog`. Lines older than *cursor*, or than this boot, are not read again.

    A line without a readable time counts only when it arrived while the file was being watched: then its time is now.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        boot_id: str,
        booted_at: datetime,
        cursor: KernelLogCursor | None = None,
        trust_user_space: bool = False,
    ) -> None:
        self._clock = clock
        self._boot_id = boot_id
        self._time = KernelTime(clock, booted_at)
        self._trust_user_space = trust_user_space
        self._known = known_sequence(cursor, boot_id=boot_id, source="file")
        self._booted = _microseconds(booted_at)
        self._last = self._booted
        self._is_backlog = True
        self._tail = LogTail(path)

    @property
    def source(self) -> str:
        """The source whose numbering the records have."""
        return "file"

    @property
    def boot_id(self) -> str:
        """The boot that the records are counted to."""
        return self._boot_id

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """Every kernel record of the file, and then of its new lines, without end."""
        try:
            while True:
                is_more = False
                while lines := self._tail.read():
                    is_more = self._is_backlog
                    yield self._batch(lines)
                self._is_backlog = False
                if is_more:
                    yield self._batch([])
                await self._clock.sleep(POLL)
        finally:
            self._tail.close()

    def ask(self) -> int:
        """Another program writes the file, at unknown times."""
        return 0

    def _batch(self, lines: list[str]) -> RecordBatch:
        return RecordBatch(
            source="file",
            records=tuple(self._records(lines)),
            last_sequence=max(self._last, self._known),
            count=len(lines),
            is_backlog=self._is_backlog,
        )

    def _records(self, lines: list[str]) -> Iterator[KernelRecord]:
        for line in lines:
            record = self._parse(line)
            if record is None:
                continue
            stamp = _microseconds(record.at)
            if self._is_backlog and stamp <= self._booted:
                continue
            self._last = max(stamp, self._last + 1)  # the same for the same file: lines of one timestamp stay apart
            if self._last > self._known:
                yield msgspec.structs.replace(record, sequence=self._last, boot_id=self._boot_id, source="file")

    def _parse(self, line: str) -> KernelRecord | None:
        if _RAW.match(line):
            return self._parse_raw(line)
        found = parse_line(line)
        if found is None:
            return None
        at = self._stamp(line) or (None if self._is_backlog else self._clock.now())
        return KernelRecord(sequence=-1, at=at, text=found.text) if at else None

    def _parse_raw(self, line: str) -> KernelRecord | None:
        try:
            raw = parse_record(line.encode(), boot_id=self._boot_id, time=self._time)
        except OverflowError:
            return None
        return raw if raw and (raw.facility == 0 or self._trust_user_space) else None

    def _stamp(self, line: str) -> datetime | None:
        """None also for a time that there is not, such as a month 13. Programs may write any numbers into the file."""
        try:
            return self._read_stamp(line)
        except (ValueError, OverflowError):
            return None

    def _read_stamp(self, line: str) -> datetime | None:
        if iso := _ISO.match(line):
            return datetime.fromisoformat(_LEAP_SECOND.sub("59", iso[0].replace(",", ".")))
        if since_boot := _SINCE_BOOT.search(line, 0, 120):
            return self._time.at(int(since_boot[1]) * 1_000_000 + int(since_boot[2]))
        return None


def _microseconds(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
