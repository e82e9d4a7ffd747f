"""
Windows that begin at the same times on all nodes, so that members of a gang can be compared: how an agent cuts them.

They are short and few. Only windows in a row are published: after one that was not whole, the list begins anew.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

from healthd.core.api.health import LONGEST_WINDOW, MOST_WINDOWS
from healthd.core.hang.samples import SampleRing
from healthd.core.hang.work.work_share import SAMPLED

SHORTEST = timedelta(seconds=15)
"""Of a window: few of them are published."""
STEPS = 3
"""Periods of the gang that a window has at least."""
KEPT_STEPS = 2
"""The same of one that was long enough before: of a gang that becomes slower the windows before are needed."""
MUCH_SHORTER = 4
"""A window gets shorter when one of this part of its length would do: periods that are learned anew differ a bit."""

S = TypeVar("S")
"""Where the samples are."""
W = TypeVar("W")
"""What one window shows."""
P = TypeVar("P")
"""What is published of several."""


class PublishedWindows(Generic[S, W, P]):
    """
    The newest windows of one source of samples. One is cut *late* after its end, so that not all nodes write at once.

    *cut*: the window between two times, in seconds since 1970. None: it was sampled in too little of it. *publish*:
    what is published of windows in a row, of which the last one has this end and this length.
    """

    def __init__(
        self,
        cut: Callable[[S, int, int], W | None],
        publish: Callable[[Sequence[W], int, int], P | None],
        late: timedelta = timedelta(0),
    ) -> None:
        self._cut = cut
        self._publish = publish
        self._late = late
        self._seconds = 0
        self._end = 0
        self._windows: deque[W] = deque(maxlen=MOST_WINDOWS)
        self.newest: P | None = None
        """What is to be published. The same object until a further window is over."""

    def observe(self, source: S, period: float, at: datetime) -> None:
        """After each sample of a member whose steps are *period* seconds apart."""
        self._choose_length(period)
        if not self._seconds:
            return
        end = int((at - self._late).timestamp()) // self._seconds * self._seconds
        if end == self._end:
            return
        before, self._end = self._end, end
        window = self._cut(source, end - self._seconds, end)
        if window is None or end - before != self._seconds:
            self._windows.clear()
        if window is not None:
            self._windows.append(window)
        self.newest = self._publish(self._windows, end, self._seconds)

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


def means(ring: SampleRing, begin: int, end: int, signals: Sequence[str]) -> list[float] | None:
    """Of the samples between two times. None: they are too few. Each sample covers the second before it."""
    times = ring.times()
    first, last = bisect_right(times, begin), bisect_right(times, end)
    count, newer = last - first, len(times) - last
    if count < SAMPLED * (end - begin):
        return None
    return [sum(ring.newest(signal, count + newer)[:count]) / count for signal in signals]


def by_number(
    windows: Sequence[W], end: datetime, length: int, seconds: int, mean: Callable[[Sequence[W]], W]
) -> dict[int, W]:
    """
    *windows* of this *length*, the last of which has this *end*, by number, counted from 1970, in windows of *seconds*
    of which they are parts. None where they do not fit.
    """
    parts, newest = seconds // length, int(end.timestamp()) // length
    if seconds % length:
        return {}
    first = newest - len(windows) + 1
    if parts == 1:  # as most are
        return dict(enumerate(windows, start=first))
    groups: dict[int, list[W]] = {}
    for number, each in enumerate(windows, start=first):
        groups.setdefault(-(-number // parts), []).append(each)
    return {number: mean(group) for number, group in groups.items() if len(group) == parts}


def end_of(number: int, seconds: int) -> datetime:
    """When window *number* of so many *seconds* ends: they are counted from 1970."""
    return datetime.fromtimestamp(number * seconds, UTC)


def rounded(values: Sequence[float], least: float = 0.0) -> list[float]:
    """Shares as they are published: those below *least* as 0."""
    return [round(value, 3) if value >= least else 0.0 for value in values]
