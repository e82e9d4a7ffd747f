"""Gangs that are sampled once a second, made up: what each member uses in each second, and when one of them hangs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isnan

from healthd.core.hang.samples import Usage
from healthd.core.hang.silence import GangRhythm, Silence
from tests.fakes import START

SECOND = timedelta(seconds=1)
Second = Callable[[int, int, random.Random], Usage]
"""What a rank uses in a second of the run. All of it is per second, with its states."""


def steps(period: float = 0.3, cpu: float = 0.4, **other: float) -> Second:
    """A rank that computes, exchanges gradients and waits for the next step."""
    rates = {"switches": 40.0, "faults": 60.0, "calls": 5.0, "written": 200.0, **other}

    def second(_rank: int, at: int, dice: random.Random) -> Usage:
        share = 1.0 if period <= 2 else (at % period < max(1.0, period / 3)) * 3.0
        noise = share * dice.uniform(0.8, 1.2)
        return Usage(cpu=cpu * noise, states="S", **{name: rate * noise for name, rate in rates.items()})

    return second


def bursts(period: float, seconds: float = 0.1) -> Second:
    """A rank that computes for a moment at the start of each step. A sample shows one step, none or two."""

    def second(_rank: int, at: int, _dice: random.Random) -> Usage:
        starts = (number * period for number in range(int((at - 1) / period), int(at / period) + 1))
        done = sum(max(0.0, min(at, start + seconds) - max(at - 1, start)) for start in starts) / seconds
        return Usage(cpu=0.06 * done, switches=10 * done, faults=20 * done, calls=5 * done, states="S")

    return second


def sleeps(_rank: int, _at: int, dice: random.Random) -> Usage:
    """It waits for its peers; background threads wake up now and then."""
    return Usage(cpu=dice.uniform(0, 0.004), switches=dice.uniform(0, 1), states="S")


def spins(_rank: int, _at: int, dice: random.Random) -> Usage:
    """It polls without end."""
    return Usage(cpu=dice.uniform(0.95, 1.0), states="R")


def computes(_rank: int, _at: int, dice: random.Random) -> Usage:
    """It uses a processor and nothing else, and so does its main thread."""
    ran = dice.uniform(0.6, 0.8)
    return Usage(cpu=dice.uniform(0.95, 1.0), ran=ran, starved=1 - ran, states="R")


def is_stopped(_rank: int, _at: int, _dice: random.Random) -> Usage:
    """SIGSTOP."""
    return Usage(states="T")


def is_traced(_rank: int, _at: int, _dice: random.Random) -> Usage:
    """A debugger has stopped it."""
    return Usage(states="t")


def is_starved(_rank: int, _at: int, _dice: random.Random) -> Usage:
    """It wants a processor and gets none."""
    return Usage(states="R")


def reads(_rank: int, _at: int, _dice: random.Random) -> Usage:
    """It loads data from a slow disk."""
    return Usage(cpu=0.01, calls=3, read=2e6, states="D")


def writes(_rank: int, _at: int, _dice: random.Random) -> Usage:
    """It writes a checkpoint to a slow disk."""
    return Usage(cpu=0.01, calls=3, written=2e6, states="D")


def evaluates(_rank: int, _at: int, dice: random.Random) -> Usage:
    """Other work than training: no peers, other data, other memory."""
    return Usage(cpu=1.0, switches=1, faults=dice.uniform(800, 1000), calls=40, read=1e5, states="R")


@dataclass
class Gang:
    """Ranks that are sampled; the clock stands where the last sample was taken."""

    ranks: int = 4
    seed: int = 0
    rhythm: GangRhythm = field(default_factory=GangRhythm)
    now: datetime = START
    second: int = 0
    silences: list[Silence | None] = field(default_factory=list)
    """What each sample since the last `run` showed."""

    def __post_init__(self) -> None:
        self._used = [Usage() for _ in range(self.ranks)]
        self._gone = set[int]()
        self._dice = random.Random(self.seed)

    def end(self, rank: int) -> None:
        """This rank is no more."""
        self._gone.add(rank)

    def run(self, seconds: int, *behaviour: Second, saves_at: Sequence[int] = ()) -> Silence | None:
        """Each rank does its own of *behaviour*, or all the same. The first silence within this time."""
        self.silences = []
        for second in range(seconds):
            self.now, self.second = self.now + SECOND, self.second + 1
            self._used = [
                self._after(used, behaviour[rank % len(behaviour)](rank, self.second, self._dice))
                for rank, used in enumerate(self._used)
            ]
            samples = {str(rank): used for rank, used in enumerate(self._used) if rank not in self._gone}
            self.silences.append(self.rhythm.observe(samples, self.now, saves=second in saves_at))
        return next((silence for silence in self.silences if silence is not None), None)

    @staticmethod
    def _after(used: Usage, second: Usage) -> Usage:
        sums = (b if isnan(a) else a + b for a, b in zip(used[:-1], second[:-1], strict=True))
        return Usage._make([*sums, second.states])
