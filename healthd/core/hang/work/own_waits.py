"""
Whether a thread that is asleep in the kernel waits for something of its own: a sleep, a file, or another process of its
member. In any other system call it may wait for other members, as in a collective.

The line is that of `/proc/PID/syscall`, see proc_pid_syscall(5): the number of the call and its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean, median

from healthd.core.hang.samples import SampleRing
from healthd.core.hang.suspects.system_calls import numbers_of

SELDOM, OFTEN = 0.4, 0.1
"""Seconds between two looks at a thread: while ranks do the same, and where one may be slow."""
NEWEST = 30
"""Samples by which that is seen. A rank that is slower by a tenth shows it in 7 of 75 looks."""
STANDS_OUT = 0.03
"""Of the time: so much longer than the median rank one waits for something of its own, where it may be slow."""

_SLEEPS = ("nanosleep", "clock_nanosleep")
_FILES = ("openat", "newfstatat", "statx", "fsync", "fdatasync")
_CHILDREN = ("wait4", "waitid")
_NO_FILES = {"select": 1, "pselect6": 1, "poll": 2, "ppoll": 2}
"""The word of the line with the number of files that the call waits for. Without one it sleeps until its time is over,
as `time.sleep` of Python 3.10 does."""
_DATA = ("read", "write", "pread64", "pwrite64")
"""The first argument is the number of an open file."""
_NOT_IN_A_CALL = b"-1"
"""It waits for memory: for a page of a mapped file, or of the swap space."""


class OwnWaits:
    """On *machine*, as `uname -m` says it. On one whose system calls have no names here nothing is an own wait."""

    def __init__(self, machine: str) -> None:
        self._always = {_NOT_IN_A_CALL, *map(_word, numbers_of((*_SLEEPS, *_FILES, *_CHILDREN), machine))}
        self._data = set(map(_word, numbers_of(_DATA, machine)))
        self._no_files = {
            _word(number): place for name, place in _NO_FILES.items() for number in numbers_of([name], machine)
        }

    def is_one(self, line: bytes, file_of: Callable[[int], str]) -> bool:
        """*file_of*: what the open file of a number is, as the link `/proc/PID/fd/N` says it. Empty: not known."""
        call, _, arguments = line.partition(b" ")
        if call in self._always:
            return True
        if place := self._no_files.get(call):
            words = arguments.split(maxsplit=2)
            return len(words) >= place and words[place - 1] == b"0x0"
        return call in self._data and _is_own_file(file_of(_number(arguments)))


def seconds_between_looks(ranks: Iterable[SampleRing]) -> float:
    """By the newest samples of all ranks. A look costs little, and waking up for it costs most of it."""
    shares = [fmean(ring.newest("own_waits", NEWEST)) for ring in ranks if len(ring)]
    return OFTEN if shares and max(shares) - median(shares) >= STANDS_OUT else SELDOM


def _is_own_file(name: str) -> bool:
    """A pipe leads to another process of the member, or to what collects its output. A socket may lead to a peer."""
    return name.startswith(("pipe:", "/")) and (not name.startswith("/dev/") or name.startswith("/dev/shm/"))


def _number(arguments: bytes) -> int:
    """The first of the arguments, which are hexadecimal. -1: there is none."""
    try:
        return int(arguments.split(maxsplit=1)[0], 16)
    except (IndexError, ValueError):
        return -1


def _word(number: int) -> bytes:
    return str(number).encode()
