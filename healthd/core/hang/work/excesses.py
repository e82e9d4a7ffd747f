"""How much more one member of a gang works than its peers, and the noise of such numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from math import ceil
from statistics import fmean, median
from typing import NamedTuple

from healthd.core.hang.work.work_share import ShareWindow, WorkShare

NORMAL = 1.4826
"""Standard deviations in a median deviation, of normal noise."""
OFTEN = 0.8
"""Of the mean that more than a quarter of the windows shows at least."""
Part = Callable[[WorkShare], float]
"""A part of the time in which a member does not wait for others, from 0 to 1."""


def excesses(busy: Mapping[str, float]) -> dict[str, float]:
    """How much more of the time each member works than the median of its peers. Two members at least."""
    ordered = sorted(busy.values())
    lower, upper = (len(ordered) - 2) // 2, (len(ordered) - 1) // 2  # the middle of the peers of any member

    def excess(share: float) -> float:
        own = bisect_left(ordered, share)
        return share - (ordered[lower + (lower >= own)] + ordered[upper + (upper >= own)]) / 2

    return {rank: excess(share) for rank, share in busy.items()}


def excesses_of(window: ShareWindow, part: Part) -> dict[str, float]:
    """The same of one *part* of the work."""
    return excesses({rank: part(share) for rank, share in window.shares.items()})


def whole(share: WorkShare) -> float:
    """All of the work."""
    return share.busy


def centre(values: Collection[float]) -> tuple[float, float]:
    """The median, and the standard deviation by the median of the deviations: few odd values change neither."""
    middle = median(values)
    return middle, NORMAL * median(abs(value - middle) for value in values)


class Rise(NamedTuple):
    """How far the newest excesses are above a usual one."""

    middle: float
    """In the median of all."""
    beside: float
    """In the mean of those that are left beside a pause."""
    often: float
    """In more than a quarter of these. Below their mean: only a few show it, as where another pause falls into them."""

    def is_lasting(self, least: float) -> bool:
        """Whether it is so much at *least*, and by more than a few windows."""
        return min(self.middle, self.beside) >= least and self.often >= OFTEN * self.beside


def rise_of(newest: Sequence[float], usual: float, pause: int) -> Rise:
    """Above the *usual* excess. A pause of so many windows is left out."""
    rest = beside_pause(newest, pause)
    return Rise(median(newest) - usual, fmean(rest) - usual, sorted(rest)[-1 - ceil(len(rest) / 4)] - usual)


def newest_above(values: Sequence[float], middle: float) -> int:
    """How many of the newest *values* are most likely those since they are above *middle*, one at least."""
    best, total, count = 0.0, 0.0, 1
    for number, value in enumerate(reversed(values), start=1):
        total += value - middle
        if total > best:
            best, count = total, number
    return count


def newest_below(values: Sequence[float], middle: float) -> int:
    """The same of those that are below it."""
    return newest_above([-value for value in values], -middle)


def beside_pause(values: Sequence[float], pause: int) -> list[float]:
    """Without those *pause* in a row of which the sum is the greatest: the mean of the rest is the least."""
    sums = [0.0, *accumulate(values)]
    begin = max(range(len(sums) - pause), key=lambda at: sums[at + pause] - sums[at])
    return [*values[:begin], *values[begin + pause :]]


def moving_means(values: Sequence[float], width: int) -> list[float]:
    """The means of all *width* values in a row."""
    sums = [0.0, *accumulate(values)]
    return [(after - before) / width for before, after in zip(sums, sums[width:], strict=False)]
