"""
Applies rules to readings: what is bad now, and since when the rest is good.

The engine receives what probes read and keeps no more of it than the windows of its rules need. It is deterministic:
the same samples give the same results. `healthd.core.diagnosis.signals.reconcile_findings` turns the results into the
findings of a node.

A reading that did not change and has no open window costs one comparison.

Each source has a time of its own: the time of its samples, as long as that grows. Where the clock is set back, the
source's time goes on from where it was, so that nothing has to wait until the clock has caught up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from healthd.core.diagnosis.readings import Reading, Sample
from healthd.core.diagnosis.signals import verdicts
from healthd.core.diagnosis.signals.rule import Below, OutOfLine, Rule
from healthd.core.diagnosis.signals.series import ALL_ONES, Series


@dataclass(frozen=True, slots=True)
class Bad:
    """The result of *rule* for a bad part of *device*: since when, last seen when, and the evidence, word for word."""

    rule: Rule
    device: str
    part: str
    since: datetime
    at: datetime
    text: str


@dataclass(frozen=True, slots=True)
class Good:
    """A device is good by a rule: *since* when, for how long it was *seen* to be good, and in which *parts*."""

    since: datetime
    seen: timedelta
    parts: frozenset[str]


class _State:
    """The result of one rule for one series: bad or good, and since when. *bad* once that held for long enough."""

    __slots__ = ("bad", "is_bad", "is_known", "rule", "since")

    def __init__(self, rule: Rule, at: datetime) -> None:
        self.rule = rule
        self.since = at
        self.is_bad = False
        self.is_known = True
        """The rule could be evaluated in its last run: the value that it compares with was there."""
        self.bad: Bad | None = None

    def update(self, why: str | None, reading: Reading, at: datetime, ahead: timedelta) -> None:
        """Bad because of *why*; good where it is empty; unchanged where it is None. A clock shows *at* - *ahead*."""
        self.is_known = why is not None
        if why is None:
            return
        if bool(why) != self.is_bad:
            self.is_bad, self.since = bool(why), at
        if not why:
            self.bad = None
        elif at - self.since >= self.rule.holds:
            since, until = self.since - ahead, at - ahead
            self.bad = Bad(self.rule, reading.device, reading.part, since, until, f"{_where(reading)} {why}")

    def settle(self, at: datetime) -> None:
        """The state must be seen again, and counts from *at* at the earliest."""
        self.bad = None
        if self.since <= at:
            self.is_bad, self.since = False, at


CLOCK_DRIFTS = timedelta(minutes=1)


class _Followed:
    """A series and the results of its rules."""

    __slots__ = ("answered", "is_new", "reading", "sample", "series", "states")

    def __init__(self, reading: Reading, series: Series, rules: Iterable[Rule], source: _Source) -> None:
        self.reading = reading
        self.series = series
        self.states = [_State(rule, source.now) for rule in rules]
        self.sample = source.samples
        self.answered = True
        """Its device answered in the last sample."""
        self.is_new = True
        """Not judged yet, or not since a repair."""

    @property
    def needs_judging(self) -> bool:
        """True also when the value stays: a window may end, or a state may have held for long enough."""
        return (
            self.is_new or not self.series.is_calm or any(state.is_bad or not state.is_known for state in self.states)
        )


_Place = tuple[str, str]
"""Device and part."""


class _Source:
    """The series of one source. *ahead* is by how much its time is ahead of a clock that was set back."""

    __slots__ = ("ahead", "names", "now", "samples")

    def __init__(self, at: datetime) -> None:
        self.names: dict[str, dict[_Place, _Followed]] = {}
        """By the reading's name and place. All of them were in the last sample."""
        self.now = at
        self.ahead = timedelta(0)
        self.samples = 0

    def begin_sample(self, at: datetime) -> datetime:
        """The time of a sample at *at*, which never goes back."""
        self.samples += 1
        self.ahead = max(self.ahead, self.now - at)
        self.now = at + self.ahead
        return self.now

    def all(self) -> Iterator[_Followed]:
        """All series of the source."""
        return (one for places in self.names.values() for one in places.values())


class Engine:
    """Follows the readings that *rules* are about, and ignores others. Each source must have a name of its own."""

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
        """By source, because it is read after every sample and rarely changes."""

    def ingest(self, sample: Sample) -> None:
        """Record one sample. A source that could not be read changes nothing: its earlier results remain."""
        if sample.trouble:
            return
        source = self._sources.setdefault(sample.source, _Source(sample.at))
        at = source.begin_sample(sample.at)
        touched = []
        for reading in sample.readings:
            if reading.value in ALL_ONES:
                _skip(source, reading)
            elif one := self._ingest(source, reading):
                touched.append(one)
        gone = _forget_what_is_gone(source)
        for one in touched:
            for state in one.states:
                if not isinstance(state.rule.test, OutOfLine):
                    others = self._values(source, one.reading)
                    why = verdicts.why_bad(state.rule.test, one.series, others, at)
                    state.update(why, one.reading, at, source.ahead)
            one.is_new = False
        for name in {one.reading.name for one in touched}:
            _compare(source, name)
        if touched or gone:
            self._bad[sample.source] = [state.bad for one in source.all() for state in one.states if state.bad]

    def bad(self) -> list[Bad]:
        """All that is bad now, in the order of devices and rules."""
        found = [bad for of_source in self._bad.values() for bad in of_source]
        return sorted(found, key=lambda bad: (bad.device, bad.rule.name, bad.part))

    def good(self, device: str, rule: str) -> Good | None:
        """How long every reported part of *device* is good by the rule *rule*. None: not good, or unknown."""
        found = [
            (source, state, one.reading.part)
            for source in self._sources.values()
            for one in source.all()
            if one.reading.device == device
            for state in one.states
            if state.rule.name == rule
        ]
        if not found or any(state.is_bad or not state.is_known for _, state, _ in found):
            return None
        return Good(
            since=max(state.since - source.ahead for source, state, _ in found),
            seen=min(source.now - state.since for source, state, _ in found),
            parts=frozenset(part for _, _, part in found),
        )

    def clears_after(self, rule: str) -> timedelta | None:
        """For how long a state must be good. None also for a rule that is not applied any more."""
        return self._clears.get(rule)

    def total(self, device: str, part: str, reading: str) -> float | None:
        """By how much a counter has grown since it was first seen, with its device. None: no source reports it."""
        found = (source.names.get(reading, {}).get((device, part)) for source in self._sources.values())
        return next((one.series.total for one in found if one is not None), None)

    def settle(self, at: datetime, noticed: datetime | None = None) -> None:
        """
        The node was repaired at *at*: earlier counts no longer matter, and states must be seen again.

        The same applies to samples with a time later than *noticed*: the clock was set back since.
        """
        for source in self._sources.values():
            until = at + source.ahead
            if noticed is not None and source.now - source.ahead > noticed + CLOCK_DRIFTS:
                until = max(until, source.now)
            for one in source.all():
                one.series.settle(until)
                one.is_new = True
                for state in one.states:
                    state.settle(until)
        self._bad.clear()

    def _ingest(self, source: _Source, reading: Reading) -> _Followed | None:
        """The series of *reading*, when there is something to judge."""
        rules = self._rules.get(reading.name)
        if rules is None:
            return None
        at = source.now
        places = source.names.setdefault(reading.name, {})
        one = places.get((reading.device, reading.part))
        if one is None:
            series = Series(reading.value, at, self._keeps[reading.name])
            one = places[reading.device, reading.part] = _Followed(reading, series, rules, source)
            return one
        one.sample, one.answered = source.samples, True
        if reading.value == one.series.value and not one.needs_judging and not self._others[reading.name]:
            one.series.stay(at)
            return None
        one.reading = reading
        one.series.ingest(reading.value, at)
        return one

    def _values(self, source: _Source, reading: Reading) -> dict[str, float | str]:
        """The values, at the same place, of the readings that this one is compared with."""
        place = reading.device, reading.part
        named = self._others[reading.name]
        names = source.names
        return {name: names[name][place].series.value for name in named if place in names.get(name, {})}


def _skip(source: _Source, reading: Reading) -> None:
    """
    The device did not answer. Its series goes on with the next answer: a series that began anew there would take what
    the device shows for a counter's first value. Until then it is not known to be good.
    """
    one = source.names.get(reading.name, {}).get((reading.device, reading.part))
    if one is not None:
        one.sample, one.answered = source.samples, False
        for state in one.states:
            state.is_known = False


def _compare(source: _Source, name: str) -> None:
    """Compare the same reading of all devices of a node with each other, but judge none that did not answer."""
    everybody = list(source.names[name].values())
    for number, state in enumerate(everybody[0].states):
        test = state.rule.test
        if isinstance(test, OutOfLine):
            whys = verdicts.out_of_line(test, [one.series for one in everybody], source.now)
            for one, why in zip(everybody, whys, strict=True):
                if not one.answered:
                    continue
                one.states[number].update(why, one.reading, source.now, source.ahead)


def _forget_what_is_gone(source: _Source) -> bool:
    """
    Forget devices that are gone. Returns whether there were any.

    A device that returns is new, with its own lifetime counters.
    """
    every, samples = source.names.values(), source.samples
    gone = [(places, place) for places in every for place, one in places.items() if one.sample != samples]
    for places, place in gone:
        del places[place]
    return bool(gone)


def _compared_with(rules: Iterable[Rule]) -> frozenset[str]:
    return frozenset(rule.test.other for rule in rules if isinstance(rule.test, Below) and rule.test.other)


def _window(rule: Rule) -> timedelta:
    return getattr(rule.test, "within", timedelta(0))


def _where(reading: Reading) -> str:
    return f"{reading.name} of {reading.part}" if reading.part else reading.name
