"""
A model of training jobs, second by second: what a sampler reads of each rank while a job trains, saves, evaluates,
compiles, waits for data, or pauses. It is a model, not a recording; `_job_recording.py` records real ones.

Two views of each rank grow together: that of its processes, as `healthd run` reads them, and that of its control group,
as an agent reads it. Both are counters, in the order of `Usage`. Times are seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import exp
from typing import NamedTuple

from healthd.core.hang.samples import SIGNALS, Rates, Usage
from tests.bench._job_shapes import SHAPES, spread_evenly
from tests.fakes import START

Growth = list[float]
"""Of one rank in one second, in the order of `SIGNALS`."""
NOTHING = [0.0] * len(SIGNALS)
ON_TIME, LATE_A_LITTLE = 0.99, 0.998
"""Shares of the samples."""


class Rank(NamedTuple):
    """What one rank does in one second, by both views, and the states of its processes."""

    processes: Growth
    group: Growth
    states: str


class Second(NamedTuple):
    """What happens to a gang in one second."""

    ranks: Sequence[Rank] | None
    """None: the ranks do not run."""
    what: str
    saves: bool = False
    """The folder of checkpoints changes."""
    has_saved: bool = False
    """A checkpoint is complete."""


class Sample(NamedTuple):
    """One look at a gang, by both views. *used* is None while the ranks do not run."""

    at: datetime
    what: str
    processes: Sequence[Usage] | None
    groups: Sequence[Usage] | None
    saves: bool
    has_saved: bool
    attempt: int


class Event(NamedTuple):
    """Something that comes now and then: *every* so many seconds in the mean, and what happens in each second of it."""

    every: float
    seconds: Callable[[], Iterator[Second]]
    is_regular: bool = False


class Recorded(NamedTuple):
    """A real gang. *pauses* are the seconds of its pauses of *kind*, one after the other; empty: it has none."""

    kind: str
    pace: float
    training: list[list[Rank]]
    pauses: list[list[Rank]]

    def blocks(self, seconds: list[list[Rank]], dice: random.Random) -> Iterator[list[Rank]]:
        """Some of *seconds*, as they followed each other, without end."""
        while True:
            length = min(dice.randrange(20, 90), len(seconds))
            begin = dice.randrange(len(seconds) - length + 1)
            for ranks in seconds[begin : begin + length]:
                yield [Rank([*each.processes], [*each.group], each.states) for each in ranks]


@dataclass
class Job:
    """
    One gang. What differs between gangs is drawn from *seed*. What was *recorded* takes the place of the model.

    *shape*: one of `SHAPES`; empty: the middle.
    """

    seed: int
    recorded: Recorded | None = None
    shape: str = ""

    def __post_init__(self) -> None:
        self.dice = dice = random.Random(self.seed)
        self.count = dice.choice([2, 2, 3, 4, 4, 8])
        self.period = spread_evenly(dice, 0.1, 30.0)
        self.polls = dice.random() < 0.5
        if self.recorded is not None:
            self.count, self.period, self.polls = len(self.recorded.training[0]), self.recorded.pace, False
        """Ranks that wait use a processor, as those do that wait for a GPU."""
        self._yields = self.polls and dice.random() < 0.2
        """… by system calls."""
        self.work = dice.uniform(0.1, 0.9)
        self.jitter = dice.uniform(0.02, 0.25)
        self.cores = spread_evenly(dice, 0.3, 4.0)
        self.rates = {
            "switches": spread_evenly(dice, 2, 300),
            "faults": spread_evenly(dice, 1, 3000),
            "calls": spread_evenly(dice, 0.5, 300),
            "bytes": spread_evenly(dice, 100, 1e7),
        }
        self._in_kernel = dice.uniform(0.02, 0.3)
        self._has_disk = dice.random() < 0.5
        """Its data come from a disk of the node: its control group shows them."""
        self.background = dice.uniform(0, 0.01)
        self._slowed = 1.0
        self.victim = -1
        """The rank that hangs."""
        self.save = dice.choice(["rank 0 writes", "all write", "flush", "flush", "in the background"])
        self.save_takes = spread_evenly(dice, 1.5, 90.0)
        self._evaluates = dice.choice(["all", "rank 0 reads", "rank 0 computes", "all on the GPU"])
        self.evaluation_takes = spread_evenly(dice, 10, 300)
        self._writes_behind = 0
        self.saves_every = spread_evenly(dice, 300, 3600)
        self.evaluates_every = spread_evenly(dice, 600, 7200) if dice.random() < 0.7 else 0.0
        """0: it does not."""
        self.compiles_at_start = (10, 120) if dice.random() < 1 / 3 else (0, 0)
        self.compiles_every, self.compiles_for = 6 * 3600.0, (10, 180)
        self.members_change_every, self.members_change_for = 12 * 3600.0, (15, 90)
        self.starts_again_every = 24 * 3600.0
        if self.shape:
            SHAPES[self.shape](self, dice)
        self.events = list(self._drawn())

    def _drawn(self) -> Iterator[Event]:
        dice = self.dice
        yield Event(self.saves_every, self._saves, is_regular=True)
        if self.evaluates_every:
            yield Event(self.evaluates_every, self._evaluation, is_regular=True)
        yield Event(4 * 3600, self._data_are_late)
        yield Event(12 * 3600, self._server_pauses)
        yield Event(self.compiles_every, self._compiles)
        yield Event(self.members_change_every, self._members_change)
        yield Event(self.starts_again_every, self._starts_again)
        yield Event(spread_evenly(dice, 120, 1200), self._collects)
        yield Event(2 * 3600, self._is_starved)
        yield Event(48 * 3600, self._machine_sleeps)
        yield Event(100 * 3600, self._person_stops_it)

    # ------------------------------------------------------------------ what a rank does in one second

    def computes(self, seconds: float, waits: float, *, more: float = 1.0) -> Rank:
        """It works for so many *seconds* of this second, and *waits* for others in the rest."""
        dice = self.dice
        share = seconds * more
        noise = 0.8 + 0.4 * dice.random()
        cpu = share * self.cores * (0.9 + 0.2 * dice.random())
        polls = waits if self.polls else 0.0
        rates, moved = self.rates, self.rates["bytes"] * share * noise
        faults, calls = rates["faults"] * share * noise, rates["calls"] * share * noise
        idle = self.background * dice.random()
        system = cpu * self._in_kernel + polls * (0.5 if self._yields else 0.001)
        disk = moved if self._has_disk else 0.0
        used = cpu + polls + idle
        states = "R" if dice.random() < seconds + polls else "S"
        switches = rates["switches"] * share * noise
        processes = Rates(used, switches, faults, calls, read=moved, written=30.0 * share, ran=cpu + polls)
        group = Rates(used, faults=faults, calls=calls * (disk > 0), read=disk, system=system)
        return Rank([*processes], [*group], states)

    def waits(self, states: str = "") -> Rank:
        """For the other ranks."""
        rank = self.computes(0.0, 1.0)
        return rank._replace(states=states) if states else rank

    def sleeps(self, states: str = "S") -> Rank:
        """It waits for something that is no other rank."""
        cpu = self.background * self.dice.random()
        return Rank([*Rates(cpu, switches=self.dice.random())], [*Rates(cpu)], states)

    def moves(self, read: float = 0.0, written: float = 0.0, cpu: float = 0.3) -> Rank:
        """It reads or writes so many bytes."""
        noise = 0.7 + 0.6 * self.dice.random()
        calls = (read + written) / 65536 + 1
        disk = 1.0 if self._has_disk else 0.0
        read, written = read * noise, written * noise
        processes = Rates(cpu, 5.0, 20.0, calls, read, written, ran=cpu)
        group = Rates(cpu, 0.0, 20.0, calls * disk, read * disk, written * disk, system=cpu / 2)
        return Rank([*processes], [*group], self.dice.choice("RD"))

    def other_work(self, cores: float, faults: float, calls: float = 5.0) -> Rank:
        """Work of another kind than its steps."""
        noise = 0.5 + self.dice.random()
        used = Rates(cores, 3.0, faults * noise, calls * noise, read=1000.0, ran=cores)
        return Rank([*used], [*Rates(cores, faults=faults * noise, system=cores * 0.05)], "R")

    # ------------------------------------------------------------------ steps

    def trains(self) -> Iterator[Sequence[Rank]]:
        """Steps without end, each second of them."""
        if self.recorded is not None:
            yield from self.recorded.blocks(self.recorded.training, self.dice)
        steps = self._short_steps() if self.period < 0.5 else self._steps()
        while True:
            shares = next(steps)
            yield [self.computes(share, 1.0 - share, more=self._slowed) for share in shares]

    def _short_steps(self) -> Iterator[Sequence[float]]:
        stalls = 0.0
        while True:
            if self.dice.random() < 0.002:
                stalls = min(8.0, 0.3 * self.dice.paretovariate(1.2))
            lost, stalls = min(1.0, stalls), max(0.0, stalls - 1.0)
            noise = self.jitter / (1.0 / self.period) ** 0.5
            mean = self.work * (1.0 - lost)
            yield [max(0.0, mean * (1 + self.dice.gauss(0, noise))) for _ in range(self.count)]

    def _steps(self) -> Iterator[Sequence[float]]:
        """The part of each second in which each rank works. A step ends with its slowest rank."""
        at, begin = 0.0, 0.0
        work, end = self._step(begin)
        while True:
            done = [0.0] * self.count
            while True:
                for rank, length in enumerate(work):
                    done[rank] += max(0.0, min(at + 1, begin + length) - max(at, begin))
                if end >= at + 1:
                    break
                begin = end
                work, end = self._step(begin)
            at += 1.0
            yield done

    def _step(self, begin: float) -> tuple[list[float], float]:
        dice, length = self.dice, self.period / self._slowed
        if dice.random() < 0.003:
            length *= min(6.0, dice.paretovariate(1.5))
        work = [self.work * length * max(0.3, 1 + dice.gauss(0, self.jitter)) for _ in range(self.count)]
        return work, begin + max(*work, length * (1 + self.jitter * dice.gauss(0, 0.3)))

    # ------------------------------------------------------------------ what comes now and then

    def starts(self) -> Iterator[Second]:
        """Loads, waits for the others, compiles."""
        dice = self.dice
        for _ in range(dice.randrange(3, 40)):
            yield Second([self.moves(read=2e7, cpu=0.8) for _ in range(self.count)], "start")
        for _ in range(dice.randrange(1, 30)):
            yield Second([self.sleeps() for _ in range(self.count)], "start")
        for _ in range(round(dice.uniform(*self.compiles_at_start))):
            yield Second([self.other_work(1.5, 3000.0) for _ in range(self.count)], "start")

    def _saves(self) -> Iterator[Second]:
        dice = self.dice
        takes = self.save_takes * exp(dice.gauss(0, 0.35)) * (3.0 if dice.random() < 0.02 else 1.0)
        last, rate = max(1, round(takes)), spread_evenly(dice, 3e6, 3e8)
        if self.save == "in the background":
            for second in range(dice.randrange(1, 4)):
                copies = [self.other_work(1.0, 20000.0) for _ in range(self.count)]
                yield Second(copies, "save", saves=second == 0)
            self._writes_behind = last
            return
        if self.save == "all write shards":
            yield from self._shards(last, rate)
            return
        writers, real = self.count if self.save == "all write" else 1, self._recorded("save")
        shown = min(last, dice.randrange(1, 4)) if self.save == "flush" else last
        for second in range(last):
            one = self.moves(written=rate) if second < shown else self.sleeps("D")
            others = [self.moves(written=rate) if rank < writers else self.waits() for rank in range(1, self.count)]
            flushed = others if second < shown else [self.waits() for _ in range(1, self.count)]
            is_last = second == last - 1
            ranks = next(real) if real else [one, *flushed]
            yield Second(ranks, "save", saves=second == 0 or is_last, has_saved=is_last)

    def _shards(self, last: int, rate: float) -> Iterator[Second]:
        """All ranks write for long, one file after the other. Then they wait until all of it is on a slow disk."""
        every, wait = self.dice.randrange(3, 40), round(spread_evenly(self.dice, 3, 90))
        for second in range(last):
            ranks = [self.moves(written=rate * self.dice.uniform(0.1, 1)) for _ in range(self.count)]
            yield Second(ranks, "save", saves=second % every == 0)
        for second in range(wait):
            ranks = [self.sleeps("D"), *(self.waits() for _ in range(1, self.count))]
            yield Second(ranks, "save", saves=second == wait - 1, has_saved=second == wait - 1)

    def _evaluation(self) -> Iterator[Second]:
        real = self._recorded("evaluate")
        for _ in range(max(3, round(self.evaluation_takes * exp(self.dice.gauss(0, 0.2))))):
            yield Second(next(real) if real else list(self._evaluating()), "evaluation")

    def _evaluating(self) -> Iterator[Rank]:
        for rank in range(self.count):
            match self._evaluates:
                case "all":
                    yield self.computes(0.5 * self.work, 0.1)
                case "all on the GPU":
                    yield self.computes(0.05, 0.95)
                case "rank 0 reads":
                    yield self.waits() if rank else self.moves(read=1e6, cpu=1.0)
                case _:
                    yield self.waits() if rank else self.other_work(1.0, 30.0)

    def _data_are_late(self) -> Iterator[Second]:
        """One rank waits for its data and the others for it, or all for theirs."""
        one, real = self.dice.random() < 0.5, self._recorded("data")
        for _ in range(round(spread_evenly(self.dice, 10, 300))):
            others = (self.waits() if one else self.sleeps() for _ in range(1, self.count))
            yield Second(next(real) if real else [self.sleeps(), *others], "data are late")

    def _server_pauses(self) -> Iterator[Second]:
        for _ in range(round(spread_evenly(self.dice, 5, 120))):
            yield Second([self.sleeps("D") for _ in range(self.count)], "the file server pauses")

    def _compiles(self) -> Iterator[Second]:
        everyone, cores = self.dice.random() < 0.6, self.dice.uniform(0.9, 4.0)
        real, compiling = self._recorded("compile"), self.count if everyone else 1
        for _ in range(round(spread_evenly(self.dice, *self.compiles_for))):
            work = [self.other_work(cores, 1500.0) if rank < compiling else self.waits() for rank in range(self.count)]
            yield Second(next(real) if real else work, "compilation")

    def _members_change(self) -> Iterator[Second]:
        """Its own launcher makes it larger or smaller: all wait, and load what they had."""
        for _ in range(round(spread_evenly(self.dice, *self.members_change_for))):
            yield Second([self.sleeps() for _ in range(self.count)], "elastic pause")
        for _ in range(self.dice.randrange(5, 40)):
            yield Second([self.moves(read=2e7, cpu=0.8) for _ in range(self.count)], "elastic pause")

    def _starts_again(self) -> Iterator[Second]:
        """It is stopped, and another attempt begins."""
        for _ in range(self.dice.randrange(5, 60)):
            yield Second(None, "stopped")
        yield from self.starts()

    def _collects(self) -> Iterator[Second]:
        for _ in range(self.dice.choice([1, 1, 1, 2, 5])):
            yield Second([self.waits() if rank else self.other_work(1.0, 5.0) for rank in range(self.count)], "garbage")

    def _is_starved(self) -> Iterator[Second]:
        """Other programs take the processors."""
        self._slowed = self.dice.uniform(0.1, 0.5)
        steps = self.trains()
        for _ in range(round(spread_evenly(self.dice, 10, 120))):
            yield Second([rank._replace(states="R") for rank in next(steps)], "starved")
        self._slowed = 1.0

    def _machine_sleeps(self) -> Iterator[Second]:
        yield Second([self.sleeps() for _ in range(self.count)], "the machine sleeps")

    def _person_stops_it(self) -> Iterator[Second]:
        letter = self.dice.choice("Tt")
        for _ in range(round(spread_evenly(self.dice, 10, 300))):
            everyone = range(self.count)
            yield Second([self.sleeps(letter) if letter == "T" or not r else self.waits() for r in everyone], "stopped")

    def _recorded(self, kind: str) -> Iterator[list[Rank]] | None:
        """Its real pauses of this kind. None: they were not recorded."""
        recorded = self.recorded
        if recorded is None or recorded.kind != kind or not recorded.pauses:
            return None
        return recorded.blocks(recorded.pauses, self.dice)

    # ------------------------------------------------------------------ a life

    def life(self, seconds: float) -> Iterator[Second]:
        """Its start, and all that happens in so many *seconds*."""
        dice, passed = self.dice, 0
        for second in self.starts():
            passed += 1
            yield second
        due = [passed + dice.uniform(0.3, 1.0) * each.every for each in self.events]
        steps = self.trains()
        while passed < seconds:
            number = min(range(len(due)), key=due.__getitem__)
            while passed < min(due[number], seconds):
                passed += 1
                yield self._behind(Second(next(steps), "training"))
            event = self.events[number]
            for second in event.seconds():
                passed += 1
                yield self._behind(second)
            wait = event.every * (1.0 if event.is_regular else dice.expovariate(1.0))
            due[number] = passed + max(1.0, wait)

    def _behind(self, second: Second) -> Second:
        """With what it writes in the background."""
        if not self._writes_behind or second.ranks is None:
            return second
        self._writes_behind -= 1
        for rank in second.ranks[:1]:
            rank.processes[SIGNALS.index("written")] += 5e7
        is_last = self._writes_behind == 0
        return second._replace(saves=is_last, has_saved=is_last)

    def hang(self, kind: str) -> Iterator[Second]:
        """One rank stops, and the others wait for it, without end."""
        self.victim = self.dice.randrange(self.count)
        while True:
            yield Second(
                [self._hung(kind) if rank == self.victim else self.waits() for rank in range(self.count)], kind
            )

    def _hung(self, kind: str) -> Rank:
        match kind:
            case "spins":
                rank = self.computes(0.0, 0.0)
                rank.processes[0], rank.group[0] = 1.0, 1.0
                return rank._replace(states="R")
            case "is blocked":
                return self.sleeps("D")
            case "is stopped":
                return Rank([*NOTHING], [*NOTHING], "T")
            case _:
                return self.sleeps()


HANGS = ("is stopped", "sleeps", "spins", "is blocked")


@dataclass
class Sampler:
    """Looks at a gang once a second, sometimes late. Its clock goes on while the machine sleeps."""

    dice: random.Random
    count: int
    now: datetime = START
    attempt: int = 0
    _used: list[Growth] = field(default_factory=list)
    _groups: list[Growth] = field(default_factory=list)
    _is_late: float = 0.0
    _saves: bool = False
    _has_saved: bool = False
    _was_stopped: bool = False

    def __post_init__(self) -> None:
        self._used = [[*NOTHING] for _ in range(self.count)]
        self._groups = [[*NOTHING] for _ in range(self.count)]

    def look(self, second: Second) -> Sample | None:
        """After this second. None: it is late, and looks later."""
        dice = self.dice
        self.now += timedelta(seconds=1)
        if second.what == "the machine sleeps":
            self.now += timedelta(seconds=spread_evenly(dice, 60, 20000))
        self._saves |= second.saves
        self._has_saved |= second.has_saved
        self._grow(second)
        if self._is_late >= 1.0:
            self._is_late -= 1.0
            return None
        draw = dice.random()
        if draw > ON_TIME:
            self._is_late = dice.uniform(1.0, 2.5) if draw < LATE_A_LITTLE else dice.uniform(3.0, 30.0)
        saves, self._saves = self._saves, False
        has_saved, self._has_saved = self._has_saved, False
        at = self.now + timedelta(milliseconds=dice.randrange(20))
        if second.ranks is None:
            return Sample(at, second.what, None, None, saves, has_saved, self.attempt)
        processes = [Usage._make([*used, rank.states]) for used, rank in zip(self._used, second.ranks, strict=True)]
        groups = [Usage._make([*used, ""]) for used in self._groups]
        return Sample(at, second.what, processes, groups, saves, has_saved, self.attempt)

    def _grow(self, second: Second) -> None:
        if second.ranks is None:
            self.attempt += not self._was_stopped
            self._was_stopped = True
            return
        self._was_stopped = False
        for number, rank in enumerate(second.ranks):
            self._used[number] = [a + b for a, b in zip(self._used[number], rank.processes, strict=True)]
            self._groups[number] = [a + b for a, b in zip(self._groups[number], rank.group, strict=True)]
