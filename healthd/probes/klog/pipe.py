"""
A private kernel log: records go in as text and come out as the kernel would give them to a reader.

For the demo and for tests: the same reader that reads `/dev/kmsg` reads the other end.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta

from healthd.clock import Clock
from healthd.probes.klog.record import KernelTime


class KernelLogPipe:
    """
    A SEQPACKET pair: one record per read. Sequence numbers start at 0, timestamps are microseconds since *booted_at*,
    as in a kernel.

    A slow reader loses records here too: what does not fit is dropped and leaves a hole in the numbers.
    """

    def __init__(self, clock: Clock, *, booted_at: datetime | None = None) -> None:
        self._clock = clock
        self._booted_at = booted_at or clock.now()
        self._writer, self._reader = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._writer.setblocking(False)
        self._next = 0

    @property
    def fd(self) -> int:
        """A new descriptor of the reading end, for `open_kmsg(fd=…)`, which then owns it."""
        return os.dup(self._reader.fileno())

    @property
    def kernel_time(self) -> KernelTime:
        """Converts this pipe's timestamps into wall time, for `open_kmsg(kernel_time=…)`."""
        return KernelTime(self._clock, self._booted_at)

    def write(self, text: str, *, priority: int = 3, tags: Mapping[str, str] | None = None) -> int:
        """Log *text*. Returns its sequence number. *priority* is facility * 8 + level: 3 is a kernel's error."""
        sequence = self.lose(1)
        age = (self._clock.now() - self._booted_at) // timedelta(microseconds=1)
        lines = [escape(text), *(f" {escape(key)}={escape(value)}" for key, value in (tags or {}).items())]
        with contextlib.suppress(BlockingIOError):
            self._writer.send(f"{priority},{sequence},{age},-;{chr(10).join(lines)}\n".encode())
        return sequence

    def lose(self, count: int) -> int:
        """Use up *count* sequence numbers without a record, as an overrun does. Returns the first of them."""
        first, self._next = self._next, self._next + count
        return first

    def close(self) -> None:
        """End the log: a reader sees its end after the last record."""
        self._writer.close()
        self._reader.close()


def escape(text: str) -> str:
    """As the kernel does: every byte that is not printable ASCII, and the backslash, becomes `\\xNN`."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in text.encode())
