"""What the main thread of a process waits for, look by look. Nothing of the process is changed by looking."""

from __future__ import annotations

import contextlib
import os
import sys

from healthd.core.hang.work.own_waits import OwnWaits

LONGEST_LOOK = 1.0
"""Seconds that one look tells of, at most: healthd may have had no processor."""
LONGEST_LINE = 512
"""Bytes of the number of a system call and its arguments."""
_OWN_WAITS = OwnWaits(os.uname().machine)


class MainThread:
    """
    That of the process whose folder in /proc is *folder*. One thread takes the looks, and another reads what they add
    up to: a look at a process that hangs in a driver may not return.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._syscall = _OpenFile(f"{folder}/syscall")
        self._looked_at: float | None = None
        self.own_waits = 0.0
        """Seconds so far in which it waited for something of its own."""

    def look(self, now: float) -> None:
        """
        See what it waits for, and take that for what it has waited for since the last look. *now* is in seconds, of any
        clock that never goes back.
        """
        since, self._looked_at = self._looked_at, now
        if since is None:
            return
        with contextlib.suppress(OSError):
            if _OWN_WAITS.is_one(self._syscall.read(), self):
                self.own_waits += min(now - since, LONGEST_LOOK)

    def file(self, number: int) -> str:
        """See `Opened`."""
        try:
            return os.readlink(f"{self._folder}/fd/{number}")  # noqa: PTH115 - words in probes
        except OSError:
            return ""

    def number_at(self, address: int) -> int:
        """See `Opened`."""
        memory = -1
        try:
            memory = os.open(f"{self._folder}/mem", os.O_RDONLY | os.O_CLOEXEC)
            return int.from_bytes(os.pread(memory, 4, address), sys.byteorder, signed=True)
        except (OSError, OverflowError):  # an address that is none
            return -1
        finally:
            if memory >= 0:
                os.close(memory)


class _OpenFile:
    """
    A file that two threads use. It is closed when neither does any more: closed by one of them, its number might be
    that of another file by the time that the other one reads.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def read(self) -> bytes:
        """What it says now. Empty where it must not be opened. Raises OSError."""
        return os.pread(self._descriptor, LONGEST_LINE, 0) if self._descriptor >= 0 else b""
