"""
What one member of a gang uses: cumulative counters as they are read, rates between two reads, and a short ring of them.

All of it is read from outside, without the help of the job.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

TAKES_PART = 0.001
"""Of the processor time of the busiest process of its member. A stopped process that has used less was most likely
stopped from its start on, and the member worked without it: it is no reason why it does not work now."""
COUNTED_IN = 0.01
"""Seconds, in /proc."""
KEPT = 600
"""Samples of a member that are kept: ten minutes of one a second."""


class Usage(NamedTuple):
    """What the processes of one member have used so far. No counter ever goes back. 0: it cannot be read."""

    cpu: float = 0.0
    """Seconds of processor time."""
    switches: float = 0.0
    """How often a main thread gave up its processor to wait for something."""
    faults: float = 0.0
    """Page faults without I/O: memory that was touched for the first time."""
    calls: float = 0.0
    """Reads and writes of files, pipes and terminals."""
    read: float = 0.0
    """Bytes, from the page cache too."""
    written: float = 0.0
    """Bytes, to the page cache too."""
    network: float = 0.0
    """Bytes received and sent by the member's own network namespace."""
    system: float = 0.0
    """Seconds of processor time in the kernel. Read for control groups alone, which count no switches."""
    ran: float = 0.0
    """Seconds that the main thread of the member's leading process had a processor."""
    starved: float = 0.0
    """Seconds that the same thread, or any process of a control group, was ready to run and had no processor."""
    stalled: float = 0.0
    """Seconds that any process of a control group waited for a disk or a file system."""
    own_waits: float = 0.0
    """Seconds that the same main thread slept by itself, or waited for a file or another process of its member."""
    gpu: float = 0.0
    """Seconds in which the memory of its GPUs was used by more than kernels that only wait; NaN: not known now."""
    kernels: float = 0.0
    """Seconds in which a kernel ran on its GPUs; NaN: not known now."""
    stopped: float = 0.0
    """How often the member's leading process was stopped when it was read. That is once a second, so it is a share."""
    states: str = ""
    """One letter for each process, as in /proc: R runs, S sleeps, D waits for a device, T is stopped, t is traced."""


class Stall(NamedTuple):
    """Why the processes of a control group may do nothing, as the kernel says."""

    io_wait: float | None = None
    """The part of the last ten seconds in which one of them waited for a disk or a file system. None: not counted."""
    frozen: bool = False
    """A container is frozen."""


SIGNALS = Usage._fields[:-1]
"""The names of the counters."""


class Rates(NamedTuple):
    """What a member used for each second between two reads. The fields are those of `Usage`."""

    cpu: float = 0.0
    switches: float = 0.0
    faults: float = 0.0
    calls: float = 0.0
    read: float = 0.0
    written: float = 0.0
    network: float = 0.0
    system: float = 0.0
    ran: float = 0.0
    starved: float = 0.0
    stalled: float = 0.0
    own_waits: float = 0.0
    gpu: float = 0.0
    kernels: float = 0.0
    stopped: float = 0.0


def rates(before: Usage, after: Usage, seconds: float) -> Rates:
    """The rates between two reads that are *seconds* apart, which must be more than 0."""
    # In this order NaN stays NaN.
    return Rates(*(max((b - a) / seconds, 0.0) for a, b in zip(before[:-1], after[:-1], strict=True)))


class SampleRing:
    """The newest *size* samples of one member, the oldest first. 68 bytes a sample."""

    def __init__(self, size: int = KEPT) -> None:
        self._size = size
        self._times = array("d")
        self._columns = tuple(array("f") for _ in SIGNALS)

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at: datetime, sample: Rates) -> None:
        """Add the newest sample. The oldest goes when the ring is full."""
        self._times.append(at.timestamp())
        for column, value in zip(self._columns, sample, strict=True):
            column.append(value)
        if len(self._times) > self._size:
            del self._times[0]
            for column in self._columns:
                del column[0]

    def newest(self, signal: str, count: int = KEPT) -> Sequence[float]:
        """Up to *count* values of one of `SIGNALS`, per second."""
        return self._columns[SIGNALS.index(signal)][-count:]

    def means_since(self, at: datetime) -> Rates | None:
        """The means of the samples that began after *at*: each covers the second before it. None: there are none."""
        count = sum(each > at.timestamp() + 1 for each in self._times)
        return Rates(*(sum(column[-count:]) / count for column in self._columns)) if count else None

    def times(self, count: int = KEPT) -> Sequence[float]:
        """When they were taken, in seconds since 1970 (UTC)."""
        return self._times[-count:]


_SPOKEN: Mapping[str, str] = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting for a device",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "zombie",
}


def takes_part(cpu: float, busiest: float) -> bool:
    """Whether a process that has used *cpu* seconds is a part of a member whose busiest one has used *busiest*."""
    return cpu + COUNTED_IN >= TAKES_PART * busiest


def describe_states(states: str) -> str:
    """The states of the processes of a member, in words: `2 sleeping, 1 stopped`."""
    counts = Counter(_SPOKEN.get(letter, letter) for letter in states)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "no process"
