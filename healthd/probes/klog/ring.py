"""
A position in the kernel's ring of records: reads on from there, and counts exactly what the ring lost meanwhile.

It knows nothing of threads, clocks or event loops. It works on every source that returns one whole record per read. The
kernel's errors mean: EAGAIN, no more for now; EPIPE, records were overwritten before they were read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from enum import Enum

import msgspec

from healthd.probes.klog.record import sequence_of

RECORD_SIZE = 8192
"""No record is longer (the kernel's limit for an extended record); a smaller buffer would make read fail."""
CHUNK = 64
"""Records that are tested together: enough to make the test cheap, few enough to hold 0.5 MiB at most."""

Read = Callable[[int, int], bytes]
Wanted = Callable[[bytes], bool]


class End(Enum):
    """Why draining ended."""

    DRY = "no more records for now"
    MORE = "a full chunk; there may be more"
    CLOSED = "the writer is gone for good"


class Drained(msgspec.Struct, frozen=True):
    """One chunk. *newest* is the raw last record, b"" when *count* is 0."""

    wanted: list[bytes]
    count: int
    """New records read, wanted or not."""
    lost: int
    """Records that are missing before and between them."""
    newest: bytes
    end: End


def to_oldest(fd: int) -> None:
    """Move to the oldest record. Sockets have no such position; the error is ignored."""
    with contextlib.suppress(OSError):
        os.lseek(fd, 0, os.SEEK_SET)


class Ring:
    """
    Reads records in order, each once. *last_sequence* is the last one already known, -1 when there is none.

    Numbers without a hole prove that nothing was lost. Every hole is counted, whether the source announced it (EPIPE)
    or not. Nothing before the first known number counts as lost: reading had not begun.
    """

    def __init__(
        self,
        fd: int,
        *,
        wanted: Wanted,
        last_sequence: int = -1,
        read: Read = os.read,
        rewind: Callable[[int], None] = to_oldest,
    ) -> None:
        self._fd = fd
        self._rewind = rewind
        self._newest_repeat = -1
        self._wanted = wanted
        self._read = read
        self.last_sequence = last_sequence

    def drain(self) -> Drained:
        """Read up to CHUNK records without waiting. Raises OSError when the source is broken."""
        chunk: list[bytes] = []
        end = self._fill(chunk)
        lost = 0
        if not self._is_seamless(chunk):
            chunk, lost = self._count_holes(chunk)
        if end is End.DRY and self._is_ahead():
            return self._start_over()
        if not chunk:
            return Drained([], 0, lost, b"", end)
        self.last_sequence = sequence_of(chunk[-1])
        return Drained(self._pick(chunk), len(chunk), lost, chunk[-1], end)

    def _fill(self, chunk: list[bytes]) -> End:
        # This loop must be faster than a flood overwrites the ring: nothing is parsed or looked up here.
        read, fd, append = self._read, self._fd, chunk.append
        try:
            for _ in range(CHUNK):
                try:
                    append(read(fd, RECORD_SIZE))
                except BrokenPipeError:  # the kernel had overwritten the next record: a hole in the numbers shows it
                    continue
        except BlockingIOError:
            return End.DRY
        return End.CLOSED if chunk and not chunk[-1] else End.MORE

    def _is_seamless(self, chunk: list[bytes]) -> bool:
        """The usual case, tested by two numbers: the chunk continues after the last known record, and has no hole."""
        try:
            first, last = (sequence_of(chunk[0]), sequence_of(chunk[-1])) if chunk else (0, -1)
        except ValueError:
            return False
        follows = first == self.last_sequence + 1 or self.last_sequence < 0
        return not chunk or (follows and last - first + 1 == len(chunk))

    def _count_holes(self, chunk: list[bytes]) -> tuple[list[bytes], int]:
        """The records that are new and well formed, and how many are missing before and between them."""
        new: list[bytes] = []
        lost, known = 0, self.last_sequence
        for raw in chunk:
            try:
                sequence = sequence_of(raw)
            except ValueError:
                continue
            if sequence <= known:
                self._newest_repeat = sequence
                continue
            if known >= 0 and sequence > known + 1:
                lost += sequence - known - 1
            new.append(raw)
            known = sequence
            self._newest_repeat = -1
        return new, lost

    def _is_ahead(self) -> bool:
        """
        The newest record is older than the last known one: that number was never from this log (but from a journal's,
        say).
        """
        return 0 <= self._newest_repeat < self.last_sequence

    def _start_over(self) -> Drained:
        self.last_sequence = self._newest_repeat = -1
        self._rewind(self._fd)
        return Drained([], 0, 0, b"", End.MORE)

    def _pick(self, chunk: list[bytes]) -> list[bytes]:
        if not self._wanted(b"".join(chunk)):
            return []
        return [raw for raw in chunk if self._wanted(raw)]
