"""
The short memory of one reading: how much a counter grew and when, how often a state changed, the best that was seen.

What a counter does besides counting is dealt with here. *Wrap*: it stood near the end of 32 or 64 bits and goes on
near zero, but hardly ever at zero itself. *Reset or glitch*: any other smaller value is no growth. Which of both is not
known for a while: growth just before and after does not count, and a counter that comes back to where it was showed a
glitch. *Hot-plug*: a reading that was gone is a new series, because a new device brings its own lifetime counters.
*Gaps*: growth over a time that is longer than a rule's window counts in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

WIDTHS = (32, 64)
NEAR = 1 / 16
"""Of the range of a counter: so close to its end, and then to zero, a smaller value is a wrap and not a reset."""
ALL_ONES = frozenset({(1 << 32) - 1, (1 << 64) - 1, float(1 << 64)})
"""What registers of a device show that does not answer, also where 64 bits became a float. No counter gets so far."""
DOUBT = timedelta(minutes=2)
"""For so long after a fall a counter may be one that shows nonsense. Two looks at the slowest of the counters."""
MOST = 512
"""Growths that are remembered; older ones melt into one, so that a counter that always counts costs no more memory."""


class Growth(NamedTuple):
    """A counter grew by *amount* some time after *since* and at *until* at the latest."""

    since: datetime
    until: datetime
    amount: float


class Series:
    """One reading over time. *keeps* is the longest window that anybody will ask for."""

    __slots__ = (
        "_fell_at",
        "_high",
        "_high_at",
        "_keeps",
        "_settled",
        "_value_at",
        "best",
        "changes",
        "growths",
        "total",
        "value",
    )

    def __init__(self, value: float | str, at: datetime, keeps: timedelta) -> None:
        self.value = value
        self._value_at = at
        self._keeps = keeps
        self._settled: datetime | None = None
        self._high: float | None = None
        """Where it stood before it fell, until it is known whether that was a reset."""
        self._fell_at = self._high_at = at
        self.best = value if isinstance(value, int | float) else 0.0
        # Nearly all of thousands of readings never change: an empty list for each is worth a megabyte.
        self.growths: Sequence[Growth] = ()
        self.changes: Sequence[datetime] = ()
        self.total = 0.0
        """By how much the counter has grown since it was first seen."""

    def take(self, value: float | str, at: datetime) -> None:
        """Enter what was read at *at*, which never goes back."""
        if value != self.value:
            self._change(value, at)
            self.value = value
        self._value_at = at
        self._forget(at - self._keeps)

    def stay(self, at: datetime) -> None:
        """The same as `take` for a value that did not change, where nothing is remembered that could end."""
        self._value_at = at

    def grown(self, since: datetime) -> float:
        """By how much the counter grew after *since*."""
        return sum(_part(growth, since) for growth in self.growths)

    def has_grown(self, since: datetime) -> bool:
        """Whether it grew at all in a time that ended after *since*."""
        return any(growth.until > since for growth in self.growths)

    def changed(self, since: datetime) -> int:
        """How often the value changed after *since*."""
        return sum(1 for change in self.changes if change > since)

    @property
    def is_calm(self) -> bool:
        """Nothing happened within the time that is kept, so that no window can end."""
        return not self.growths and not self.changes

    def settle(self, at: datetime) -> None:
        """What came before *at* no longer counts, nor what may have: somebody repaired the node."""
        self._settled = at
        self._forget(at)
        self.growths = tuple(growth for growth in self.growths if growth.since >= at)
        self.best = self.value if isinstance(self.value, int | float) else 0.0

    def _change(self, value: float | str, at: datetime) -> None:
        since, grown = self._growth(value, at)
        self.total += grown
        best = value if isinstance(value, int | float) else 0.0
        if self._settled is not None and since < self._settled:
            self.best = best  # all this may have come before the repair
            return
        self.changes = [*self.changes[-MOST:], at]
        self.best = max(self.best, best)
        if grown:
            self._add(Growth(since, at, grown))

    def _growth(self, value: float | str, at: datetime) -> tuple[datetime, float]:
        """Since when at the earliest, and by how much: above a value that was shown before a glitch, since then."""
        before, since = self.value, self._value_at
        if isinstance(before, str) or isinstance(value, str):
            return since, 0.0
        if value < before:
            return since, self._fall(before, value, at)
        high = self._high
        if high is None:
            return since, value - before
        if value < high and at - self._fell_at < DOUBT:
            return since, 0.0
        self._high = None
        return (self._high_at, value - high) if value >= high else (since, value - before)

    def _fall(self, before: float, value: float, at: datetime) -> float:
        """What it grew by, all the same: a wrap, or what is left of a rise that is taken back."""
        if grown := wrapped(before, value):
            self._high, self._high_at, self._fell_at = before, self._value_at, at - DOUBT
            return grown
        if self._high is None or at - self._fell_at >= DOUBT:  # an earlier fall was a reset then
            level = self._take_back(before, value, at)
            if level <= value:
                return value - level
            self._high, self._high_at = level, self._value_at
        self._fell_at = at
        return 0.0

    def _take_back(self, level: float, value: float, at: datetime) -> float:
        """Where it stood before it rose to *level* a moment ago, as far as it falls below that."""
        while level > value and self.growths and at - self.growths[-1].until < DOUBT:
            *earlier, last = self.growths
            self.growths = earlier
            self.total -= last.amount
            level -= last.amount
        return level

    def _add(self, growth: Growth) -> None:
        self.growths = [*self.growths, growth]
        if len(self.growths) > MOST:
            first, second, *later = self.growths
            self.growths = [Growth(first.since, second.until, first.amount + second.amount), *later]

    def _forget(self, before: datetime) -> None:
        if self.growths and self.growths[0].until <= before:
            self.growths = tuple(growth for growth in self.growths if growth.until > before)
        if self.changes and self.changes[0] <= before:
            self.changes = tuple(change for change in self.changes if change > before)


def wrapped(before: float, now: float) -> float:
    """
    By how much a counter grew that began again at zero after the end of its range; 0: it did not.

    One that shows zero was reset, or shows nonsense: of all that goes past the end next to nothing stops there.
    """
    for bits in WIDTHS:
        end = float(1 << bits)
        if end * (1 - NEAR) <= before < end and 0 < now < end * NEAR:
            return end - before + now
    return 0.0


def _part(growth: Growth, since: datetime) -> float:
    if growth.since >= since:
        return growth.amount
    if growth.until <= since:
        return 0.0
    return growth.amount * ((growth.until - since) / (growth.until - growth.since))
