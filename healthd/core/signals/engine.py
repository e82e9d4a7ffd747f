"""
Applies rules to readings: what is bad now, and since when the rest is good.

The engine is told what probes read and keeps no more of it than the windows of its rules need. It is deterministic: the
same looks give the same answers. What follows for the findings of a node is in `healthd.core.signals.entering`.

A reading that did not change and about which nothing is going on costs one comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from healthd.core.readings import Look, Reading
from healthd.core.signals import verdicts
from healthd.core.signals.rule import Below, OutOfLine, Rule
from healthd.core.signals.series import Series


@dataclass(frozen=True, slots=True)
class Bad:
    """What *rule* says of one part of *device*: bad since when, last seen so when, and what was seen, word for word."""

    rule: Rule
    device: str
    part: str
    since: datetime
    at: datetime
    text: str


class _State:
    """What one rule says of one series: bad or good, and since when; *bad* once that held for long enough."""

    __slots__ = ("bad", "is_bad", "rule", "since")

    def __init__(self, rule: Rule, at: datetime) -> None:
        self.rule = rule
        self.since = at
        self.is_bad = False
        self.bad: Bad | None = None

    def enter(self, why: str, reading: Reading, at: datetime) -> None:
        """Bad because of *why*, or good where that is empty."""
        if bool(why) != self.is_bad:
            self.is_bad, self.since = bool(why), at
        if not why:
            self.bad = None
        elif at - self.since >= self.rule.holds:
            self.bad = Bad(self.rule, reading.device, reading.part, self.since, at, f"{_where(reading)} {why}")


class _Followed:
    """A series and what rules say of it."""

    __slots__ = ("is_new", "reading", "seen", "series", "states")

    def __init__(self, reading: Reading, series: Series, rules: Iterable[Rule], at: datetime) -> None:
        self.reading = reading
        self.series = series
        self.states = [_State(rule, at) for rule in rules]
        self.seen = at
        self.is_new = True
        """Not judged yet, or not since a repair."""

    @property
    def needs_judging(self) -> bool:
        """Also when the value stays: a window may end, or something hold for long enough."""
        return self.is_new or not self.series.is_calm or any(state.is_bad for state in self.states)


_Place = tuple[str, str]
"""Device and part."""
_Source = dict[str, dict[_Place, _Followed]]
"""By the reading's name and place."""


class Engine:
    """Follows the readings that *rules* are about; others pass by. Each source must have a name of its own."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules: dict[str, list[Rule]] = {}
        for rule in rules:
            self._rules.setdefault(rule.reads, []).append(rule)
            for other in _compared_with([rule]):
                self._rules.setdefault(other, [])
        self._keeps = {name: max(map(_window, these), default=timedelta(0)) for name, these in self._rules.items()}
        self._others = {name: _compared_with(these) for name, these in self._rules.items()}
        self._clears = {rule.name: rule.clears_after for these in self._rules.values() for rule in these}
        self._sources: dict[str, _Source] = {}
        self._bad: dict[str, list[Bad]] = {}
        """By source, because it is asked for after every look and rarely changes."""
        self._now: datetime | None = None

    def take(self, look: Look) -> None:
        """Enter one look. A source that could not be read changes nothing: what it told before still stands."""
        if look.trouble:
            return
        at = self._now = look.at if self._now is None else max(look.at, self._now)
        source = self._sources.setdefault(look.source, {})
        touched = [one for reading in look.readings if (one := self._take(source, reading, at))]
        gone = _forget_what_is_gone(source, at)
        for one in touched:
            for state in one.states:
                if not isinstance(state.rule.test, OutOfLine):
                    others = self._values(source, one.reading)
                    state.enter(verdicts.why_bad(state.rule.test, one.series, others, at), one.reading, at)
            one.is_new = False
        for name in {one.reading.name for one in touched}:
            _compare(source[name], at)
        if touched or gone:
            self._bad[look.source] = [state.bad for one in _of(source) for state in one.states if state.bad]

    def bad(self) -> list[Bad]:
        """All that is bad now, in the order of devices and rules."""
        found = [bad for of_source in self._bad.values() for bad in of_source]
        return sorted(found, key=lambda bad: (bad.device, bad.rule.name, bad.part))

    def good_since(self, device: str, rule: str) -> datetime | None:
        """Since when every part of *device* is good by the rule named *rule*; None: it is not, or nobody knows."""
        states = [
            state
            for one in self._all()
            if one.reading.device == device
            for state in one.states
            if state.rule.name == rule
        ]
        if not states or any(state.is_bad for state in states):
            return None
        return max(state.since for state in states)

    def clears_after(self, rule: str) -> timedelta | None:
        """For how long a state must be good; None also for a rule that is not applied any more."""
        return self._clears.get(rule)

    def total(self, device: str, part: str, reading: str) -> float | None:
        """By how much a counter has grown since it was first seen, with its device; None: nobody tells it."""
        found = (source.get(reading, {}).get((device, part)) for source in self._sources.values())
        return next((one.series.total for one in found if one is not None), None)

    def settle(self, at: datetime) -> None:
        """Somebody repaired the node at *at*: what was counted before is history, and states must be seen anew."""
        for one in self._all():
            one.series.settle(at)
            one.is_new = True
            one.states = [_State(state.rule, at) for state in one.states]
        self._bad.clear()

    def _all(self) -> Iterator[_Followed]:
        return (one for source in self._sources.values() for one in _of(source))

    def _take(self, source: _Source, reading: Reading, at: datetime) -> _Followed | None:
        """The series of *reading*, when there is something to judge."""
        rules = self._rules.get(reading.name)
        if rules is None:
            return None
        places = source.setdefault(reading.name, {})
        one = places.get((reading.device, reading.part))
        if one is None:
            series = Series(reading.value, at, self._keeps[reading.name])
            one = places[reading.device, reading.part] = _Followed(reading, series, rules, at)
            return one
        one.seen = at
        if reading.value == one.series.value and not one.needs_judging and not self._others[reading.name]:
            one.series.stay(at)
            return None
        one.reading = reading
        one.series.take(reading.value, at)
        return one

    def _values(self, source: _Source, reading: Reading) -> dict[str, float | str]:
        """What the same place tells of the readings that this one is compared with."""
        place = reading.device, reading.part
        named = self._others[reading.name]
        return {name: source[name][place].series.value for name in named if place in source.get(name, {})}


def _compare(places: dict[_Place, _Followed], at: datetime) -> None:
    """Judge the same reading of all devices of a node beside each other."""
    everybody = list(places.values())
    for number, state in enumerate(everybody[0].states):
        test = state.rule.test
        if isinstance(test, OutOfLine):
            whys = verdicts.out_of_line(test, [one.series for one in everybody], at)
            for one, why in zip(everybody, whys, strict=True):
                one.states[number].enter(why, one.reading, at)


def _of(source: _Source) -> Iterator[_Followed]:
    return (one for places in source.values() for one in places.values())


def _forget_what_is_gone(source: _Source, at: datetime) -> bool:
    """Whether anything is. A device that comes back is a new one, with lifetime counters of its own."""
    gone = [(places, place) for places in source.values() for place, one in places.items() if one.seen != at]
    for places, place in gone:
        del places[place]
    return bool(gone)


def _compared_with(rules: Iterable[Rule]) -> frozenset[str]:
    return frozenset(rule.test.other for rule in rules if isinstance(rule.test, Below) and rule.test.other)


def _window(rule: Rule) -> timedelta:
    return getattr(rule.test, "within", timedelta(0))


def _where(reading: Reading) -> str:
    return f"{reading.name} of {reading.part}" if reading.part else reading.name
