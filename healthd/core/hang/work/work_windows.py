"""
How much one pod works, in windows that begin at the same times on all nodes, so that pods of a gang can be compared.

Windows that agents publish are short and few. Only windows in a row are published: after one that was not whole, the
list begins anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import NamedTuple

from healthd.core.api.health import LARGEST_RATE, LONGEST_WINDOW, MOST_WINDOWS, PodWork
from healthd.core.hang.samples import SampleRing
from healthd.core.hang.work.work_share import SAMPLED

SHORTEST = timedelta(seconds=15)
"""Of a window: few of them are published."""
FINE = 5
"""Seconds of a window of the newest minutes, which are published only on request: `recent_work`."""
STEPS = 3
"""Periods of the gang that a window has at least."""
SMALL = 0.005
"""Shares of waiting below it are published as 0."""
KEPT_STEPS = 2
"""The same of one that was long enough before: of a gang that becomes slower the windows before are needed."""
MUCH_SHORTER = 4
"""A window gets shorter when one of this part of its length would do: periods that are learned anew differ a bit."""


class Window(NamedTuple):
    """One window of a pod."""

    cores: float
    starved: float
    stalled: float


class WorkWindows:
    """The newest windows of one pod. One is cut *late* after its end, so that not all nodes write at once."""

    def __init__(self, late: timedelta = timedelta(0)) -> None:
        self._late = late
        self._seconds = 0
        self._end = 0
        self._windows: deque[Window] = deque(maxlen=MOST_WINDOWS)
        self.newest: PodWork | None = None
        """What is to be published. The same object until a further window is over."""

    def observe(self, ring: SampleRing, period: float, at: datetime) -> None:
        """After each sample of the pod, whose steps are *period* seconds apart."""
        self._choose_length(period)
        if not self._seconds:
            return
        end = int((at - self._late).timestamp()) // self._seconds * self._seconds
        if end == self._end:
            return
        before, self._end = self._end, end
        window = _window(ring, end - self._seconds, end)
        if window is None or end - before != self._seconds:
            self._windows.clear()
        if window is not None:
            self._windows.append(window)
        self.newest = _published(self._windows, end, self._seconds)

    def _choose_length(self, period: float) -> None:
        least, length = STEPS * period, int(SHORTEST.total_seconds())
        while length < least:
            length *= 2
        if self._seconds and KEPT_STEPS * period <= self._seconds < MUCH_SHORTER * length:
            return
        wanted = length if length <= LONGEST_WINDOW else 0
        if wanted != self._seconds:
            self._seconds, self._end, self.newest = wanted, 0, None
            self._windows.clear()


def recent_work(ring: SampleRing, period: float, at: datetime) -> PodWork | None:
    """
    The newest minutes of a pod, whose steps are *period* seconds apart, in windows of `FINE`: as many in a row as were
    sampled. None: its steps are longer than that.
    """
    if period > FINE:
        return None
    end = int(at.timestamp()) // FINE * FINE
    windows = list[Window]()
    while len(windows) < MOST_WINDOWS:
        newest = end - FINE * len(windows)
        window = _window(ring, newest - FINE, newest)
        if window is None:
            break
        windows.append(window)
    return _published(windows[::-1], end, FINE)


def end_of(number: int, seconds: int) -> datetime:
    """When window *number* of so many *seconds* ends: they are counted from 1970."""
    return datetime.fromtimestamp(number * seconds, UTC)


def by_number(work: PodWork, seconds: int) -> dict[int, Window]:
    """By number, counted from 1970, in windows of *seconds*, of which the published ones are parts."""
    parts, newest = seconds // work.seconds, int(work.end.timestamp()) // work.seconds
    if seconds % work.seconds:
        return {}
    count = len(work.cores)
    starved, stalled = (each if len(each) == count else [0.0] * count for each in (work.starved, work.stalled))
    first = newest - len(work.cores) + 1
    values = zip(work.cores, starved, stalled, strict=True)
    if parts == 1:  # as most are
        return {number: Window(*each) for number, each in enumerate(values, start=first)}
    groups: dict[int, list[Window]] = {}
    for number, each in enumerate(values, start=first):
        groups.setdefault(-(-number // parts), []).append(Window(*each))
    return {number: _mean(group) for number, group in groups.items() if len(group) == parts}


def _mean(windows: list[Window]) -> Window:
    return Window(*map(fmean, zip(*windows, strict=True)))


def _window(ring: SampleRing, begin: int, end: int) -> Window | None:
    """None: it was sampled in too little of it. Each sample covers the second before it."""
    times = ring.times()
    first, last = bisect_right(times, begin), bisect_right(times, end)
    count = last - first
    if count < SAMPLED * (end - begin):
        return None
    newer = len(times) - last

    def mean(signal: str) -> float:
        values = ring.newest(signal, count + newer)
        return sum(values[:count]) / count

    return Window(mean("cpu"), min(1.0, mean("starved")), min(1.0, mean("stalled")))


def _published(windows: Sequence[Window], end: int, seconds: int) -> PodWork | None:
    if not windows:
        return None
    return PodWork(
        end=datetime.fromtimestamp(end, UTC),
        seconds=seconds,
        cores=[min(round(window.cores, 3), LARGEST_RATE) for window in windows],
        starved=_shares([window.starved for window in windows]),
        stalled=_shares([window.stalled for window in windows]),
    )


def _shares(values: Sequence[float]) -> list[float]:
    """Empty where there is none."""
    rounded = [round(value, 3) if value >= SMALL else 0.0 for value in values]
    return rounded if any(rounded) else []
