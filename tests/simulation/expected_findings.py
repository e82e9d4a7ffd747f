"""
What rules say of the samples that one life of an agent was shown: worked out anew, slowly, from their definitions.

It shares the shape of rules and readings with the engine and nothing else. Time is what the samples say: a clock that
is set back stands still here until it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from statistics import median

from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals.rule import (
    AtLeast,
    Below,
    Changes,
    FellBelowBest,
    Grows,
    Is,
    IsNot,
    OutOfLine,
    Rule,
)

NOTHING = timedelta(0)
DOUBT = timedelta(minutes=2)
ALL_ONES = {2**32 - 1, 2**64 - 1}
"""No reading at all: nothing is counted so far."""
Place = tuple[str, str, str]
"""Name, device, part."""


@dataclass
class Side:
    """What one rule says of one reading. *seen*: when it last could say anything."""

    is_bad: bool
    since: datetime
    seen: datetime | None

    def holds_for(self) -> timedelta:
        """For how long it was seen to be as it is."""
        return NOTHING if self.seen is None else self.seen - self.since


@dataclass
class ReadingHistory:
    """One reading since it appeared."""

    value: float | str
    at: datetime
    best: float
    growths: list[tuple[datetime, datetime, float]] = field(default_factory=list)
    changes: list[datetime] = field(default_factory=list)
    sides: dict[str, Side] = field(default_factory=dict)
    settled: datetime | None = None
    is_read: bool = True
    """Its device answered at the last sample."""
    fell_from: tuple[float, datetime, datetime] | None = None
    """Where it stood before it fell, when that was, and until when it may be nonsense that it shows now."""
    is_true: bool = False
    """It never shows nonsense: a fall is a reset, and what follows is growth."""

    def copy(self) -> ReadingHistory:
        """The same, to go on by itself."""
        sides = {name: replace(side) for name, side in self.sides.items()}
        return replace(self, growths=[*self.growths], changes=[*self.changes], sides=sides)

    def goes_on(self, value: float | str, at: datetime) -> None:
        """One more sight of it. A change that may have come before a repair is none."""
        if value == self.value:
            self.at = at
            return
        are_numbers = isinstance(value, int | float) and isinstance(self.value, int | float)
        begin, amount = self._grew(float(self.value), float(value), at) if are_numbers else (self.at, 0)
        if self.settled is None or begin >= self.settled:
            self.changes.append(at)
            if isinstance(value, int | float):
                self.best = max(self.best, value)
            if amount:
                self.growths.append((begin, at, amount))
        else:
            self.best = float(value) if isinstance(value, int | float) else 0.0
        self.value, self.at = value, at

    def _grew(self, before: float, after: float, at: datetime) -> tuple[datetime, float]:
        if after < before:
            return self.at, self._fell(before, after, at)
        if self.fell_from is None:
            return self.at, after - before
        high, begin, until = self.fell_from
        if after >= high:
            self.fell_from = None
            return begin, after - high  # it was there, or on its way, all the while
        if at < until or self.at == until - DOUBT:
            return self.at, 0  # nor does one sight of it show that it was a reset
        self.fell_from = None
        return self.at, after - before

    def _fell(self, before: float, after: float, at: datetime) -> float:
        wrap = _wrap(before, after)
        if self.is_true:
            return wrap
        if wrap:
            self.fell_from = (before, self.at, at)
            return wrap
        if self.fell_from is not None and at < self.fell_from[2]:
            self.fell_from = (*self.fell_from[:2], at + DOUBT)
            return 0
        while before > after and self.growths and at - self.growths[-1][1] < DOUBT:
            before -= self.growths.pop()[2]
        if before > after:
            self.fell_from = (before, self.at, at + DOUBT)
            return 0
        return after - before

    def grown(self, since: datetime) -> float:
        """By how much after *since*, in proportion where it is not known when."""
        if not self.growths:
            return 0
        return sum(amount * _share(begin, end, since) for begin, end, amount in self.growths)

    def settle(self, at: datetime) -> None:
        """Forget what came until *at*."""
        self.settled = at
        self.growths = [one for one in self.growths if one[0] >= at]
        self.changes = [one for one in self.changes if one > at]
        self.best = float(self.value) if isinstance(self.value, int | float) else 0.0
        for side in self.sides.values():
            if side.since <= at:
                side.is_bad, side.since = False, at


Histories = Mapping[Place, ReadingHistory]


@dataclass
class SourceHistory:
    """All that one source reported. *ahead* is by how much its time is later than the clock, which was set back."""

    now: datetime
    ahead: timedelta = NOTHING
    histories: dict[Place, ReadingHistory] = field(default_factory=dict)

    def copy(self) -> SourceHistory:
        """The same, to go on by itself."""
        return SourceHistory(self.now, self.ahead, {place: each.copy() for place, each in self.histories.items()})

    def time_of(self, at: datetime) -> datetime:
        """The time of a sample at *at*."""
        self.ahead = max(self.ahead, self.now - at)
        self.now = at + self.ahead
        return self.now


class ExpectedFindings:
    """Takes samples and answers for how long what is bad and good."""

    def __init__(self, rules: Iterable[Rule], *, is_true: bool = False) -> None:
        self._is_true = is_true
        self._rules = {rule.name: rule for rule in rules}
        self._about: dict[str, list[tuple[Rule, Callable[..., bool | None]]]] = {}
        """By the name of the reading that they are about, with the function that applies their test."""
        for rule in self._rules.values():
            self._about.setdefault(rule.reads, []).append((rule, _IS_BAD[type(rule.test)]))
        self._sources: dict[str, SourceHistory] = {}

    def copy(self) -> ExpectedFindings:
        """The same, to go on by itself."""
        copied = ExpectedFindings(self._rules.values(), is_true=self._is_true)
        copied._sources = {name: history.copy() for name, history in self._sources.items()}
        return copied

    def of_true_values(self) -> ExpectedFindings:
        """The same, to go on with readings that never show nonsense."""
        copied = self.copy()
        copied._is_true = True
        for source in copied._sources.values():
            for history in source.histories.values():
                history.is_true, history.fell_from = True, None
        return copied

    def take(self, sample: Sample) -> None:
        """One sample. Of a source in trouble nothing is known."""
        if sample.trouble:
            return
        source_history = self._sources.setdefault(sample.source, SourceHistory(sample.at))
        now = source_history.time_of(sample.at)
        shown = {(reading.name, reading.device, reading.part): reading.value for reading in sample.readings}
        histories = source_history.histories
        for place in histories.keys() - shown.keys():
            del histories[place]
        for place, value in shown.items():
            _take(histories, place, value, now, is_true=self._is_true)
        for place, history in histories.items():
            if history.is_read:
                for rule, is_bad in self._about.get(place[0], ()):
                    _judge(rule, is_bad(rule.test, place, histories, history, now), history, now)

    def last(self, source: str, place: Place) -> float | str | None:
        """What this reading was at the last sample of its source; None where it was not there."""
        history = self._sources[source].histories.get(place) if source in self._sources else None
        return history.value if history else None

    def settle(self, at: datetime, noticed: datetime) -> None:
        """Somebody repaired the node at *at*. What was reported at a time that is still to come was reported before."""
        for source_history in self._sources.values():
            is_ahead = source_history.now - source_history.ahead > noticed + timedelta(minutes=1)
            for history in source_history.histories.values():
                history.settle(
                    max(at + source_history.ahead, source_history.now) if is_ahead else at + source_history.ahead
                )

    def forget(self, noticed: datetime) -> None:
        """Somebody notices at *noticed* that the node was repaired. All was reported before, whatever its stamp is."""
        for source_history in self._sources.values():
            until = max(noticed + source_history.ahead, source_history.now)
            for history in source_history.histories.values():
                history.settle(until)

    def bad(self) -> set[tuple[str, str]]:
        """Device and rule of all that is bad, for as long as its rule demands."""
        return {
            (place[1], name)
            for source_history in self._sources.values()
            for place, history in source_history.histories.items()
            for name, side in history.sides.items()
            if side.is_bad and side.seen is not None and side.holds_for() >= self._rules[name].holds
        }

    def good_for(self, device: str, rule: str) -> tuple[timedelta, frozenset[str]]:
        """For how long *device* is seen to be good by *rule*, and which of its parts are."""
        histories = {
            place[2]: history
            for source_history in self._sources.values()
            for place, history in source_history.histories.items()
            if place[1] == device and rule in history.sides
        }
        sides = {part: history.sides[rule] for part, history in histories.items()}
        is_read = all(history.is_read for history in histories.values())
        if not sides or not is_read or any(side.is_bad or side.seen is None for side in sides.values()):
            return timedelta(-1), frozenset()
        return min(side.holds_for() for side in sides.values()), frozenset(sides)


def _take(
    histories: dict[Place, ReadingHistory], place: Place, value: float | str, now: datetime, *, is_true: bool
) -> None:
    """One more sight of a reading, or the first one. A device that does not answer keeps what was seen of it."""
    history = histories.get(place)
    if history is not None:
        history.is_read = value not in ALL_ONES
        if history.is_read:
            history.goes_on(value, now)
    elif value not in ALL_ONES:
        best = float(value) if isinstance(value, int | float) else 0.0
        histories[place] = ReadingHistory(value, now, best, is_true=is_true)


def _judge(rule: Rule, is_bad: bool | None, history: ReadingHistory, now: datetime) -> None:
    side = history.sides.get(rule.name)
    if side is None:
        side = history.sides[rule.name] = Side(False, now, now)
    if is_bad is None:
        side.seen = None
        return
    if is_bad != side.is_bad:
        side.is_bad, side.since = is_bad, now
    side.seen = now


# Whether a reading is bad by a test; None where it is not known.


def _is(test: Is, _: Place, __: Histories, history: ReadingHistory, ___: datetime) -> bool:
    return _word(history.value) in test.values


def _is_not(test: IsNot, _: Place, __: Histories, history: ReadingHistory, ___: datetime) -> bool:
    return _word(history.value) not in test.values


def _grows(test: Grows, _: Place, __: Histories, history: ReadingHistory, now: datetime) -> bool:
    if not history.growths:
        return False
    since = now - test.within
    late = any(end > since and amount for _, end, amount in history.growths)
    return history.grown(since) >= test.by or (test.by <= 1 and late)


def _changes(test: Changes, _: Place, __: Histories, history: ReadingHistory, now: datetime) -> bool:
    if not history.changes:
        return False
    since = now - test.within
    return sum(change > since for change in history.changes) >= test.times


def _at_least(test: AtLeast, _: Place, __: Histories, history: ReadingHistory, ___: datetime) -> bool | None:
    return None if isinstance(history.value, str) else history.value >= test.limit


def _fell(_: FellBelowBest, __: Place, ___: Histories, history: ReadingHistory, ____: datetime) -> bool | None:
    return None if isinstance(history.value, str) else history.value < history.best


def _below(test: Below, place: Place, histories: Histories, history: ReadingHistory, _: datetime) -> bool | None:
    if isinstance(history.value, str):
        return None
    if not test.other:
        return history.value < test.limit
    least = histories.get((test.other, place[1], place[2]))
    return history.value < least.value if least and isinstance(least.value, int | float) else None


def _out_of_line(
    test: OutOfLine, place: Place, histories: Histories, history: ReadingHistory, now: datetime
) -> bool | None:
    since = now - test.within
    mine = history.grown(since)
    if mine < test.floor:
        return False
    others = [peer.grown(since) for peer in _peers(place, histories)]
    if len(others) < 3:
        return None
    middle = median(others)
    spread = max(1.0, 1.4826 * median(abs(other - middle) for other in others))
    return (mine - middle) / spread >= test.score


_IS_BAD: dict[type, Callable[..., bool | None]] = {
    Is: _is,
    IsNot: _is_not,
    Grows: _grows,
    Changes: _changes,
    AtLeast: _at_least,
    FellBelowBest: _fell,
    Below: _below,
    OutOfLine: _out_of_line,
}


def _peers(place: Place, histories: Histories) -> list[ReadingHistory]:
    return [history for other, history in histories.items() if other[0] == place[0] and other != place]


def _wrap(before: float, after: float) -> float:
    """Less than before, near both ends of the range, and not nothing at all: it went on there."""
    for size in (2**32, 2**64):
        if size * 15 / 16 <= before < size and 0 < after < size / 16:
            return size - before + after
    return 0


def _share(begin: datetime, end: datetime, since: datetime) -> float:
    """Which part of the time from *begin* to *end* lies after *since*."""
    if end <= since:
        return 0.0
    return 1.0 if begin >= since else (end - since) / (end - begin)


@lru_cache(maxsize=4096)
def _word(value: float | str) -> str:
    return str(int(value)) if isinstance(value, int | float) and float(value).is_integer() else str(value)


def place_of(reading: Reading) -> Place:
    return reading.name, reading.device, reading.part
