"""
What the instruments of one machine show: readings that real rules are about, going bad and good as a schedule wants.

Which rules are played follows from the dice. Values are made from each rule's test, so every table of rules has its
turn over many schedules.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

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
    Test,
)
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.diagnosis.tiers import tier
from tests.simulation.machines import PCI

NICS = tuple(f"0000:{bus}:00.0" for bus in ("5d", "5e", "9a", "9b"))
"""As many as it takes to compare one with its peers."""
RANGE = 2**32
_COUNTED = (Grows, OutOfLine)


@dataclass
class SimulatedReading:
    """One reading of one part of a device. *is_there* is false while nothing tells it."""

    name: str
    device: str
    part: str
    tests: list[Test]
    value: float | str = 0
    is_there: bool = True
    glitch: float | None = None
    """What it shows at the next sample alone, whatever its value is."""
    seen: float | str = 0
    """What the last sample should have seen."""

    def show(self) -> float | str:
        """What a sample sees. A counter on its way to its value is no nonsense: nothing tells it from slow growth."""
        shown = self.value if self.glitch is None or self._is_on_its_way(self.glitch) else self.glitch
        self.glitch, self.seen = None, self.value
        return shown

    def _is_on_its_way(self, shown: float) -> bool:
        if isinstance(self.seen, str) or isinstance(self.value, str):
            return False
        return self.is_counter and self.seen < shown < self.value

    @property
    def is_counter(self) -> bool:
        """It only grows, but for wraps and resets."""
        return any(isinstance(test, _COUNTED) for test in self.tests)

    def worsen(self, dice: random.Random) -> None:
        """Go bad by one of its tests, or a step towards that."""
        test = dice.choice(self.tests)
        match test:
            case Is(values):
                self.value = dice.choice(sorted(values))
            case IsNot():
                self.value = "something-else"
            case AtLeast(limit):
                self.value = limit + dice.choice([0, 1])
            case Below(limit, other):
                self.value = (GOOD_GAUGE if other else limit) - 1
            case FellBelowBest():
                self.value = GOOD_GAUGE - dice.choice([1, 2])
            case Changes():
                self.value = "other" if self.value == "fine" else "fine"
            case Grows(by, _):
                self._count(dice.choice([1, by / 2, by, by, by + 1]))
            case OutOfLine(_, floor, _):
                self._count(floor * dice.choice([0.5, 1, 3]))

    def better(self) -> None:
        """Be good again; what was counted stays so."""
        if not self.is_counter:
            self.value = self._good()
        elif any(isinstance(test, AtLeast) for test in self.tests):
            self.value = 0

    def reset(self, dice: random.Random) -> None:
        """Begin to count at zero again, as a driver does that is loaded anew."""
        if self.is_counter and isinstance(self.value, int | float) and 0 < self.value < RANGE / 2:
            self.value = dice.choice([0, 0, int(self.value) // 2])

    def err(self, dice: random.Random) -> bool:
        """Show nonsense once, as a device does that does not answer in time. Words never do."""
        if not isinstance(self.value, int | float):
            return False
        ones = [RANGE - 1, RANGE * RANGE - 1]
        self.glitch = dice.choice([*ones, 0, int(self.value) // 2] if self.is_counter else ones)
        return True

    def _count(self, amount: float) -> None:
        value = self.value if isinstance(self.value, int | float) else 0
        after = int(value) + max(1, int(amount))
        if after == RANGE - 1:  # this is what a device shows that does not answer: no counter stands there
            after += 2
        # A counter of 32 bits begins at zero again, one that cannot go so far in one step does not.
        self.value = after - RANGE if value < RANGE <= after and after - RANGE < RANGE / 16 else after

    def begin(self, dice: random.Random) -> None:
        """The value on the first day: lifetime counters stand anywhere, also close to their end."""
        if not self.is_counter:
            self.value = self._good()
        elif not any(isinstance(test, AtLeast) for test in self.tests):
            self.value = dice.choice([0, 0, 17, RANGE - 20])

    def _good(self) -> float | str:
        # What none of its rules calls bad: any value will do for one that names bad ones.
        test = next((test for test in self.tests if isinstance(test, IsNot)), self.tests[0])
        match test:
            case IsNot(values):
                return min(values)
            case Is() | Changes():
                return "fine"
            case AtLeast(limit):
                return limit - 1
            case Below(limit, other):
                return GOOD_GAUGE if other else limit + 1
        return GOOD_GAUGE


GOOD_GAUGE = 16


@dataclass
class SimulatedReadings:
    """All dials of one machine by their source, and the sources that cannot be read."""

    sources: dict[str, list[SimulatedReading]] = field(default_factory=dict)
    in_trouble: set[str] = field(default_factory=set)

    @classmethod
    def roll(cls, dice: random.Random, count: int = 6, always: Sequence[str] = ()) -> SimulatedReadings:
        """Dials for some rules of each kind, those named *always* among them."""
        made = cls()
        for rule in _some_rules(dice, count, always):
            made.add(rule, dice)
        for dial in made.dials():
            dial.begin(dice)
        return made

    def add(self, rule: Rule, dice: random.Random) -> None:
        """The dials that *rule* reads."""
        dials = self.sources.setdefault(rule.reads.partition(".")[0], [])
        if any(dial.name == rule.reads for dial in dials):
            return
        tests = [one.test for one in known_rules().values() if one.reads == rule.reads]
        parts = dice.choice([("",), ("port 1", "port 2")])
        for device in NICS if isinstance(rule.test, OutOfLine) else (PCI,):
            for part in parts:
                dials.append(SimulatedReading(rule.reads, device, part, tests))
                if isinstance(rule.test, Below) and rule.test.other:
                    dials.append(SimulatedReading(rule.test.other, device, part, [FellBelowBest()]))

    def dials(self) -> list[SimulatedReading]:
        """All of them."""
        return [dial for dials in self.sources.values() for dial in dials]

    def samples(self, at: datetime, sources: Iterable[str]) -> Iterator[Sample]:
        """What *sources* show at *at*."""
        return (shown for shown, _ in self.samples_and_ground_truth(at, sources))

    def samples_and_ground_truth(self, at: datetime, sources: Iterable[str]) -> Iterator[tuple[Sample, Sample]]:
        """What *sources* show at *at*, and what they would show if no dial did err."""
        for source in sources:
            if source in self.in_trouble:
                sample = Sample(source=source, at=at, trouble="it does not answer")
                yield sample, sample
                continue
            there = [dial for dial in self.sources[source] if dial.is_there]
            readings = [Reading(dial.device, dial.name, dial.value, dial.part) for dial in there]
            ground_truth = Sample(source=source, at=at, readings=readings)
            reported = [Reading(each.device, each.name, each.show(), each.part) for each in there]
            yield Sample(source=source, at=at, readings=reported), ground_truth

    def show_lost_gpu(self) -> None:
        """The driver has lost the GPU, as a reader of it can see."""
        for dial in self.dials():
            if dial.name == "nvml.state":
                dial.value = "lost"

    def heal(self) -> None:
        """Everything is there, and good."""
        self.in_trouble.clear()
        for dial in self.dials():
            dial.is_there = True
            dial.glitch = None
            dial.better()


def _some_rules(dice: random.Random, count: int, always: Sequence[str]) -> list[Rule]:
    rules = list(known_rules().values())
    severe = [rule for rule in rules if tier(rule.tier).quarantines]
    chosen = [known_rules()[name] for name in always]
    return [*chosen, *dice.sample(severe, count // 2), *dice.sample(rules, count - count // 2)]


def strike(instruments: SimulatedReadings, dice: random.Random) -> str:
    """Something happens to a dial or a source. Answers what."""
    dial = dice.choice(instruments.dials())
    where = f"{dial.name} of {dial.device} {dial.part}"
    roll = dice.random()
    if roll < 0.5:
        dial.worsen(dice)
        return f"{where} is {dial.value}"
    if roll < 0.7:
        for one in [dial] if dice.random() < 0.5 else instruments.dials():
            one.better()
        return f"{where} is good"
    if roll < 0.76:
        dial.reset(dice)
        return f"{where} counts from {dial.value}"
    if roll < 0.82 and dial.err(dice):
        return f"{where} shows {dial.glitch} once"
    if roll < 0.88:
        dial.is_there = not dial.is_there
        return f"{where} is {'there' if dial.is_there else 'gone'}"
    source = dice.choice(sorted(instruments.sources))
    instruments.in_trouble.symmetric_difference_update({source})
    return f"{source} is {'in trouble' if source in instruments.in_trouble else 'well'}"
