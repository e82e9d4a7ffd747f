"""
The short history of one reading: how much a counter grew and when, how often a state changed, the best value seen.

This module handles what a counter does besides counting. *Wrap*: it stood near the end of 32 or 64 bits and goes on
near zero, but hardly ever at zero itself. *Reset or glitch*: any other smaller value is no growth. Which of both it was
is not known for a while, nor while only one sample has shown it: growth just before and after does not count, and a
counter that returns to its old value shows that it was a glitch. *Hot-plug*: a reading that was gone is a new series,
because a new device brings its own lifetime counters. *Gaps*: growth over a time that is longer than a rule's window
counts in proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

WIDTHS = (32, 64)
NEAR = 1 / 16
"""Of the range of a counter: this close to its end, and then to zero, a smaller value is a wrap and not a reset."""
ALL_ONES = frozenset({(1 << 32) - 1, (1 << 64) - 1, float(1 << 64)})
"""The register value of a device that does not answer, also where 64 bits became a float. No counter gets this far."""
DOUBT = timedelta(minutes=2)
"""For this long after a fall, a counter may show nonsense. Two samples of the slowest of the counters."""
MOST = 512
"""The growths that are kept. Older ones are merged into one, so that a busy counter costs no more memory."""


class Growth(NamedTuple):
    """A counter grew by *amount* some time after *since* and at *until* at the latest."""

    since: datetime
    until: datetime
    amount: float


class Series:
    """One reading over time. *keeps* is the longest window that is queried."""

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
        self._keeps = max(keeps, DOUBT)  # a rise may be taken back for so long
        self._settled: datetime | None = None
        self._high: float | None = None
        """Its value before it fell, until it is known whether that was a reset."""
        self._fell_at = self._high_at = at
        self.best = value if isinstance(value, int | float) else 0.0
        # Nearly all of thousands of readings never change: an empty list for each would cost a megabyte.
        self.growths: Sequence[Growth] = ()
        self.changes: Sequence[datetime] = ()
        self.total = 0.0
        """By how much the counter has grown since it was first seen."""

    def ingest(self, value: float | str, at: datetime) -> None:
        """Record what was read at *at*, which never goes back."""
        if value != self.value:
            self._change(value, at)
            self.value = value
        self._value_at = at
        self._forget(at - self._keeps)

    def stay(self, at: datetime) -> None:
        """The same as `ingest` for an unchanged value, where no window can end."""
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
        """Nothing happened within the time that is kept, so no window can end."""
        return not self.growths and not self.changes

    def settle(self, at: datetime) -> None:
        """What came before *at* no longer counts, nor what may have come before it: the node was repaired."""
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
        """Since when at the earliest, and by how much. After a glitch, growth counts from the value before it."""
        before, since = self.value, self._value_at
        if isinstance(before, str) or isinstance(value, str):
            return since, 0.0
        if value < before:
            return since, self._fall(before, value, at)
        high = self._high
        if high is None:
            return since, value - before
        was_seen_once = since == self._fell_at
        if value < high and (was_seen_once or at - self._fell_at < DOUBT):
            return since, 0.0
        self._high = None
        return (self._high_at, value - high) if value >= high else (since, value - before)

    def _fall(self, before: float, value: float, at: datetime) -> float:
        """The growth that remains after a fall: a wrap, or the rest of a rise that is withdrawn."""
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
        """The value before it rose to *level* a moment ago, as far as it falls below that."""
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
    By how much a counter grew that wrapped: it began again at zero after the end of its range. 0: it did not wrap.

    A counter at exactly zero was reset, or shows nonsense: a wrap hardly ever stops at zero.
    """
    for bits in WIDTHS:
        end = float(1 << bits)
        if end * (1 - NEAR) <= before < end and 0 < now < end * NEAR:
            return end - before + now
    return 0.0


def _part(growth: Growth, since: datetime) -> float:
    if growth.until <= since:
        return 0.0
    if growth.since >= since:
        return growth.amount
    return growth.amount * ((growth.until - since) / (growth.until - growth.since))
