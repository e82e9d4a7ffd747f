"""
How much of its time each member of a gang works, and how much it is left waiting for the others: windows of samples.

All members of a synchronous gang make the same steps in the same time, so a slow one is not seen by its rate. It is
seen by its share: it works while the others wait for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import isnan
from typing import NamedTuple

from healthd.core.hang.samples import SampleRing
from healthd.core.hang.silence import GangRhythm

SHORTEST = timedelta(seconds=5)
"""Of a window. Short ones tell a pause from what was before and after it."""
SAMPLED = 0.8
"""Of the seconds of a window that must have been sampled in every member."""


class WorkShare(NamedTuple):
    """
    What the main thread of one member did, as shares of the time from 0 to 1. The rest is waiting. Of GPUs `ran` and
    `own_waits` alone are known (`of_gpus`).
    """

    ran: float
    """It had a processor; the memory of its GPUs was used."""
    starved: float = 0.0
    """It was ready to run and had no processor."""
    stalled: float = 0.0
    """It waited for a disk or a file system. Known of pods alone."""
    own_waits: float = 0.0
    """It slept by itself, or waited for a file or another process of its own; its GPUs ran no kernel, and so waited for
    their host."""
    stopped: float = 0.0
    """Its process was stopped. That looks as an own wait does, and is a part of these: it only says why."""

    @property
    def busy(self) -> float:
        """The share in which the member did not wait for other members."""
        return min(1.0, self.ran + self.starved + self.stalled + self.own_waits)


class ShareWindow(NamedTuple):
    """The members' shares, by rank, between two times."""

    begin: datetime
    end: datetime
    shares: Mapping[str, WorkShare]


def of_main_thread(ring: SampleRing, count: int) -> WorkShare | None:
    """By the newest *count* samples. None: the kernel does not count (a rank that works is never at 0)."""
    signals = "ran", "starved", "own_waits", "stopped"
    ran, starved, own_waits, stopped = (_mean(ring, each, count) for each in signals)
    return WorkShare(ran, starved, own_waits=own_waits, stopped=min(1.0, stopped)) if ran > 0 else None


def of_gpus(ring: SampleRing, count: int) -> WorkShare | None:
    """
    By the newest *count* samples: `ran` is the part of the time in which the memory of the GPUs was used, and
    `own_waits` that in which they ran no kernel, so they waited for their host. None: it is not known.
    """
    memory, kernels = _mean(ring, "gpu", count), _mean(ring, "kernels", count)
    return None if isnan(memory + kernels) else WorkShare(min(1.0, memory), own_waits=max(0.0, 1.0 - kernels))


class ShareWindows:
    """
    Cuts the samples of a gang into windows, one after the other. One that is not whole is left out. *share_of*: the
    share of a member by so many of its newest samples.
    """

    def __init__(self, share_of: Callable[[SampleRing, int], WorkShare | None] = of_main_thread) -> None:
        self._share_of = share_of
        self._begin: datetime | None = None

    def restart(self) -> None:
        """The next window begins with the next sample."""
        self._begin = None

    def next_window(self, gang: GangRhythm, at: datetime) -> ShareWindow | None:
        """The window that ends now. None: it is not over, or some member was sampled in too little of it."""
        if self._begin is None or at < self._begin:
            self._begin = at
        length = max(SHORTEST, timedelta(seconds=gang.period))
        if at - self._begin < length:
            return None
        begin, self._begin = self._begin, at
        shares = {rank: self._share(member.ring, begin, at) for rank, member in gang.members.items()}
        whole = {rank: share for rank, share in shares.items() if share is not None}
        return ShareWindow(begin, at, whole) if len(whole) == len(shares) else None

    def _share(self, ring: SampleRing, begin: datetime, end: datetime) -> WorkShare | None:
        """None: it was sampled in too little of the time, or its share is not known."""
        times = ring.times()
        count = len(times) - bisect_right(times, begin.timestamp())
        return self._share_of(ring, count) if count >= SAMPLED * (end - begin).total_seconds() else None


def _mean(ring: SampleRing, signal: str, count: int) -> float:
    return sum(ring.newest(signal, count)) / count
