"""
Whether a thread that is asleep in the kernel waits for something of its own: a sleep, a file, or another process of its
member. In any other system call it may wait for other members, as in a collective.

The line is that of `/proc/PID/syscall`, see proc_pid_syscall(5): the number of the call and its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Protocol

from healthd.core.hang.samples import SampleRing
from healthd.core.hang.suspects.system_calls import numbers_of

SELDOM, OFTEN = 0.4, 0.05
"""Seconds between two looks at a thread: while no rank waits for anything of its own, and while one does."""
NEWEST = 30
"""Samples by which that is seen. A rank that is slower by a tenth shows it in 7 of 75 looks."""
NOTABLE = 0.03
"""Of the time. What is less makes no rank slow, and few looks are enough to see that it is less."""

_SLEEPS = ("nanosleep", "clock_nanosleep")
_FILES = ("openat", "newfstatat", "statx", "fsync", "fdatasync")
_CHILDREN = ("wait4", "waitid")
_SELECTS = ("select", "pselect6")
"""The first argument is the number of files that they wait for. Without one they sleep until their time is over, as
`time.sleep` of Python 3.10 does."""
_POLLS = ("poll", "ppoll")
"""The first argument is the address of a list of files, and the second one how many these are. The list of a single one
begins with its number. So a process waits for that of its data loader."""
_DATA = ("read", "write", "pread64", "pwrite64")
"""The first argument is the number of an open file."""
_NOT_IN_A_CALL = b"-1"
"""It waits for memory: for a page of a mapped file, or of the swap space."""


class Opened(Protocol):
    """What a process has opened. Nothing of it is changed by looking."""

    def file(self, number: int) -> str:
        """What its open file of this number is, as the link `/proc/PID/fd/N` says it. Empty: not known."""
        ...

    def number_at(self, address: int) -> int:
        """The number of 32 bits at an address of its memory. -1: it must not be read."""
        ...


class OwnWaits:
    """On *machine*, as `uname -m` says it. On one whose system calls have no names here nothing is an own wait."""

    def __init__(self, machine: str) -> None:
        self._always = {_NOT_IN_A_CALL, *map(_word, numbers_of((*_SLEEPS, *_FILES, *_CHILDREN), machine))}
        self._data = set(map(_word, numbers_of(_DATA, machine)))
        self._selects = set(map(_word, numbers_of(_SELECTS, machine)))
        self._polls = set(map(_word, numbers_of(_POLLS, machine)))

    def is_one(self, line: bytes, opened: Opened) -> bool:
        """Whether a thread of the process that has *opened* files waits so."""
        call, *words = line.split(maxsplit=3) or [b""]
        if call in self._always:
            return True
        first, second = (_number(word) for word in [*words, b"", b""][:2])
        if call in self._selects:
            return first == 0
        if call in self._polls:
            return second == 0 or (second == 1 and _is_own_file(opened.file(opened.number_at(first))))
        return call in self._data and _is_own_file(opened.file(first))


def seconds_between_looks(ranks: Iterable[SampleRing]) -> float:
    """By the newest samples of all ranks. A look costs little, and waking up for it costs most of it."""
    shares = (fmean(ring.newest("own_waits", NEWEST)) for ring in ranks if len(ring))
    return OFTEN if any(share >= NOTABLE for share in shares) else SELDOM


def _is_own_file(name: str) -> bool:
    """A pipe leads to another process of the member, or to what collects its output. A socket may lead to a peer."""
    return name.startswith(("pipe:", "/")) and (not name.startswith("/dev/") or name.startswith("/dev/shm/"))


def _number(word: bytes) -> int:
    """An argument, which is hexadecimal. -1: it is none."""
    try:
        return int(word, 16)
    except ValueError:
        return -1


def _word(number: int) -> bytes:
    return str(number).encode()
