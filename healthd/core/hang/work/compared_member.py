"""
What is remembered of one member of a gang that is compared with its peers: its excess in the newest windows, and in the
blocks of the hour before, by which it is judged.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from math import ceil
from statistics import fmean, median
from typing import NamedTuple

from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.excesses import centre, moving_means
from healthd.core.hang.work.work_share import ShareWindow

LEAST = 0.05
"""The least rise of the excess of a straggler. One that is slower by 10 % shows 0.09 in the mean."""


class Span(NamedTuple):
    """
    The newest windows are compared, without any *pause* of seconds among them: so many that *beside* seconds are left.
    A rise is *apart* times the spread of the same difference in the past, at least.
    """

    pause: float
    beside: float
    apart: float

    def windows(self, seconds: float) -> tuple[int, int]:
        """How many windows of so many seconds are compared, and how many of them a pause touches."""
        pause = int(self.pause // seconds) + 1
        return max(LEAST_WINDOWS, pause + ceil(self.beside / seconds)), pause

    def blocks(self, seconds: float) -> int:
        """How many blocks of the past have such windows in them."""
        return ceil(self.windows(seconds)[0] * seconds / max(BLOCK, seconds))


SHORT = Span(60, 50, apart=5.0)
LONG = Span(120, 170, apart=6.0)
"""For few members, for rank 0, and for an excess that is not clear of the noise."""
QUICK = Span(60, 40, apart=4.5)
"""The same as `SHORT`, of finer windows than those of the past."""
LEAST_WINDOWS = 5
"""Of a span: steps may be long."""
MOST_WINDOWS = 64
BLOCK = 60.0
"""Seconds. Of the past the means of blocks are kept."""
PAST = 60
"""Blocks: an hour, where steps are short."""
BEFORE = 4
"""Blocks right before the span: what drifts is expected to stay half-way between them and the hour."""


class ComparedMember:
    """The excess of one member: in the newest windows, and in the blocks before."""

    def __init__(self) -> None:
        self.recent: deque[float] = deque(maxlen=MOST_WINDOWS)
        self.ends: deque[datetime] = deque(maxlen=MOST_WINDOWS)
        self.past: deque[float] = deque(maxlen=PAST)
        self.changes: deque[float] = deque(maxlen=PAST)
        """Of each block of the past, how much it differs from what was to be expected."""
        self.named: Straggler | None = None
        self.usual = 0.0
        """The excess that it is judged by, while it is named."""
        self.excess = 0.0
        """By how much it was above that when it was named."""
        self.smooth = 0.0
        """The excess of about the newest minute. Most of the time it is small, and no more has to be looked at."""
        self._block: list[float] = []
        self._seconds = 0.0

    def add(self, excess: float, window: ShareWindow) -> None:
        """A block of a straggler is no past to judge by."""
        self.recent.append(excess)
        self.ends.append(window.end)
        seconds = (window.end - window.begin).total_seconds()
        self.smooth += min(1.0, seconds / BLOCK) * (excess - self.smooth)
        if self.named is not None:
            self._block, self._seconds = [], 0.0
            return
        self._block.append(excess)
        self._seconds += seconds
        if self._seconds >= BLOCK:
            mean, self._block, self._seconds = fmean(self._block), [], 0.0
            if len(self.past) >= BEFORE + 2:
                self.changes.append(mean - median([*self.past][-BEFORE - 2 : -2]) / 2)
            self.past.append(mean)

    def forget_newest(self) -> None:
        """It is no straggler any more, and would be one by its newest windows."""
        self.named = None
        self.recent.clear()
        self.ends.clear()

    def usual_before(self, newest: int) -> float:
        """In the blocks before the *newest*."""
        return median([*self.past][:-newest] or [0.0])

    def just_before(self, at: datetime) -> float | None:
        """In the windows that ended before. None: they are too few."""
        windows = [excess for excess, end in zip(self.recent, self.ends, strict=True) if end < at]
        return median(windows) if len(windows) >= LEAST_WINDOWS else None

    def short_usual(self, newest: int) -> float:
        """What is to be expected of it now, by the blocks before the *newest*."""
        before = [*self.past][:-newest]
        return (median(before) + median(before[-BEFORE:])) / 2

    def spread(self, span: Span, newest: int) -> float:
        """How much the differences that a rise in *span* is compared with vary, in the blocks before the *newest*."""
        return self._long_spread(newest) if span is LONG else self._short_spread(newest)

    def _short_spread(self, newest: int) -> float:
        """Of one block about what was to be expected."""
        return centre([*self.changes][: -newest or None])[1]

    def _long_spread(self, newest: int) -> float:
        """Of the means of as many blocks as a long span has beside a pause."""
        return centre(moving_means([*self.past][:-newest], round(LONG.beside / BLOCK)))[1]
