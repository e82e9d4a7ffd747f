"""
A model of synchronous gangs, as their windows of work shares: what is usual in healthy ones, and one rank that is slow.

It is a model, not a recording. Times within a step are in units of the step of a healthy gang. Each rank works on its
host for a part of the step, then all exchange gradients. The step ends with the slowest rank.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp, sqrt
from statistics import fmean
from typing import NamedTuple

from healthd.agent.rhythms import WITHIN
from healthd.controller.fleet.stragglers import EVERY, WATCHED_EVERY
from healthd.core.api.health import MOST_WINDOWS, PodWork
from healthd.core.hang.work.gang_work import GangWork, RankWork
from healthd.core.hang.work.stragglers import Straggler, StragglerDetector
from healthd.core.hang.work.work_share import ShareWindow, WorkShare
from healthd.core.hang.work.work_windows import FINE
from healthd.core.node.reporting import WORK_AFTER, WORK_ASKED_AFTER, WORK_CHANGED_AFTER
from healthd.core.node.work_changes import has_changed
from tests.fakes import START

WINDOW = 5.0
"""Seconds, in a run: a step of the slowest gang of the model."""
OF_PODS = 15.0
"""The same as agents publish it: three such steps."""
PARTS = round(OF_PODS / FINE)
TICK = timedelta(seconds=FINE)
IN_FLIGHT = timedelta(seconds=4)
"""From the end of a fine window until the controller knows it of all that it asked."""
RANKS = 8
A_DAY = 86400
DRIFTS = 592.0
"""Seconds: the time constant of a rank's drift."""
_TABLE = 1 << 16


class Pauses(NamedTuple):
    """Something that comes now and then, *every* so many seconds, half of that more or less, and how much of it."""

    every: float
    shortest: float
    longest: float
    least: float
    most: float


COLLECTIONS = Pauses(300, 0.1, 1.0, 0.3, 1.0)
"""Garbage collection of one rank: a share of the time that it takes is added to its work."""
DAEMONS = Pauses(900, 3.0, 60.0, 0.05, 0.4)
"""Another program on a rank's cores, or a cold page cache: this share of a step more."""
EVALUATIONS = Pauses(3600, 20.0, 300.0, 0.6, 1.0)
"""Rank 0 works alone, for this share of the time."""
SAVES = Pauses(1200, 2.0, 60.0, 0.3, 1.0)
"""The same for a checkpoint that rank 0 writes."""
PHASES = Pauses(3 * 3600, 0.0, 0.0, 0.8, 1.2)
"""All ranks have that much of the work from then on: another data set, a longer sequence."""


@dataclass(frozen=True, slots=True)
class Slow:
    """
    Rank *rank* needs *by* of the mean step of its healthy gang more from window *begin* on, which may be the middle of
    one.
    """

    rank: int
    by: float
    begin: float


class Gang:
    """One gang of 8 ranks. What differs between gangs is drawn from *seed*."""

    def __init__(self, seed: int, drift: float = 0.01, window: float = WINDOW) -> None:
        self.window = window
        self._dice = dice = random.Random(seed)
        self._noise = _noise()
        self.period = 0.2 * 25 ** dice.random()
        """Seconds: 0.2 to 5."""
        self._work = dice.uniform(0.2, 0.9)
        jitter = dice.uniform(0.02, 0.1) * self._work
        self._jitter = jitter / sqrt(window / self.period)
        self._rest = 1 - self._work + 1.4 * jitter
        uneven = dice.uniform(0.002, 0.02)
        self._uneven = [dice.gauss(0, uneven) for _ in range(RANKS)]
        self._uneven[0] += dice.uniform(0, 0.1)
        self._drifts = [0.0] * RANKS
        self._again = exp(-window / DRIFTS)
        self._new = drift * sqrt(1 - self._again**2)
        self._of_ranks = [(rank, _Now(dice, kind, window)) for rank in range(RANKS) for kind in (COLLECTIONS, DAEMONS)]
        self._of_rank_0 = [_Now(dice, kind, window) for kind in (SAVES, EVALUATIONS)]
        self._phase = _Now(dice, PHASES._replace(shortest=window, longest=window), window)
        self._all = [*(each for _, each in self._of_ranks), *self._of_rank_0, self._phase]
        self._quiet_until = 0.0
        self.paused: list[float] = []
        """Of each window, the seconds in which rank 0 worked alone."""

    @property
    def step(self) -> float:
        """The mean step of the healthy gang, but for pauses and drift."""
        return self._work + max(self._uneven) + self._rest

    def windows(self, count: int, slow: Slow | None = None) -> Iterator[ShareWindow]:
        """*count* windows, one after the other."""
        names, begin, length = [str(rank) for rank in range(RANKS)], START, timedelta(seconds=self.window)
        for number in range(count):
            shares = dict(zip(names, self._shares(number, slow), strict=True))
            yield ShareWindow(begin, begin + length, shares)
            begin += length

    def _shares(self, number: int, slow: Slow | None) -> list[WorkShare]:
        at, noise, place = number * self.window, self._noise, self._dice.randrange(_TABLE - 2 * RANKS)
        self._drifts = [
            self._again * d + self._new * n for d, n in zip(self._drifts, noise[place : place + RANKS], strict=True)
        ]
        jitter = noise[place + RANKS : place + 2 * RANKS]
        work = [
            self._work + own + drift + self._jitter * some
            for own, drift, some in zip(self._uneven, self._drifts, jitter, strict=True)
        ]
        if slow is not None and number + 1 > slow.begin:
            work[slow.rank] += slow.by * self.step * min(1.0, number + 1 - slow.begin)
        together, alone = self._pauses(at, work) if at + self.window > self._quiet_until else (1.0, 0.0)
        self.paused.append(self.window * (1 - together))
        step = max(work) + self._rest
        shares = [min(1.0, together * max(0.0, each) / step) for each in work]
        shares[0] = min(1.0, shares[0] + alone)
        return [WorkShare(share) for share in shares]

    def _pauses(self, at: float, work: list[float]) -> tuple[float, float]:
        """Add to *work*. The shares of the window in which all step, and in which rank 0 works alone."""
        for rank, pauses in self._of_ranks:
            work[rank] += pauses.share(at) * pauses.size
        if self._phase.share(at):
            self._work = min(0.9, max(0.2, self._work * self._phase.size))
        together, alone = 1.0, 0.0
        for pauses in self._of_rank_0:
            share = min(together, pauses.share(at))
            together, alone = together - share, alone + share * pauses.size
        self._quiet_until = min(each.begin for each in self._all)
        return together, alone


class _Now:
    """Pauses of one kind, one after the other."""

    def __init__(self, dice: random.Random, kind: Pauses, window: float) -> None:
        self._dice, self._kind, self._window = dice, kind, window
        self.begin = self._end = -1.0
        self.size = 0.0
        self._next(0.0)

    def share(self, at: float) -> float:
        """The share of the window from *at* on in which it happens."""
        if at >= self._end:
            self._next(at)
        until = at + self._window
        if until <= self.begin:
            return 0.0
        return (min(self._end, until) - max(self.begin, at)) / self._window

    def _next(self, at: float) -> None:
        dice, kind = self._dice, self._kind
        self.begin = at + dice.uniform(0.5, 1.5) * kind.every
        self._end = self.begin + dice.uniform(kind.shortest, kind.longest)
        self.size = dice.uniform(kind.least, kind.most)


def _noise(_kept: list[float] = []) -> list[float]:  # noqa: B006 - made once
    """Standard normal values."""
    if not _kept:
        dice = random.Random(1)
        _kept.extend(dice.gauss(0, 1) for _ in range(_TABLE))
    return _kept


def reported(gang: Gang, count: int, slow: Slow | None = None) -> list[tuple[float, Straggler]]:
    """What is reported of *gang* in *count* windows: seconds after its start, and the rank."""
    detector, found = StragglerDetector(), list[tuple[float, Straggler]]()
    for window in gang.windows(count, slow):
        begun = [each for each in detector.add(window) if each.ended_at is None]
        found += [((window.end - START).total_seconds(), each) for each in begun]
    return found


class PodGang:
    """
    The same gang as pods of one rank, each on a node of its own, as their agents publish it and the controller sees it.

    A rank that works all the time uses one core. Control groups are taken to count no waits for a processor. *asks*:
    agents answer when the controller asks them for the newest minutes, as older ones do not.
    """

    def __init__(self, gang: Gang, seed: int, *, asks: bool = True) -> None:
        self._gang = gang
        self._asks = asks
        self._dice = random.Random(seed)
        self.writes = 0
        """Of all agents."""
        self.asked = 0
        """Nodes, each time that one is asked."""
        self._cores: list[deque[float]] = [deque(maxlen=PARTS * (MOST_WINDOWS + 1)) for _ in range(RANKS)]
        """Of each rank, in fine windows."""
        self._late = [WITHIN * self._dice.random() for _ in range(RANKS)]
        self._wrote = [START - WORK_AFTER * self._dice.random() for _ in range(RANKS)]
        self._asked_until = [START] * RANKS
        self._published: dict[str, RankWork] = {}

    def reported(self, count: int, slow: Slow | None = None) -> list[tuple[float, Straggler]]:
        """What is reported in *count* windows: seconds after the start, and the rank."""
        found, work, compared = list[tuple[float, Straggler]](), None, START
        for number, window in enumerate(self._gang.windows(count, slow), start=1):
            for rank in range(RANKS):
                self._cores[rank].append(window.shares[str(rank)].ran)
                self._write(rank, window.end, number % PARTS)
            now = window.end + IN_FLIGHT + WATCHED_EVERY * self._dice.random()
            is_due = now - compared >= EVERY - TICK / 2 or (work is not None and work.is_watched(now))
            if len(self._published) < RANKS or not is_due:
                continue
            compared, work = now, work or GangWork(dict(sorted(self._published.items())))
            begun = [each for each in work.observe(self._published, now) if each.ended_at is None]
            found += [((now - START).total_seconds(), each) for each in begun]
            self._ask(work.to_ask(now))
        return found

    def _ask(self, asked: Mapping[str, datetime]) -> None:
        self.asked += len(asked)
        for name, until in asked.items() if self._asks else ():
            self._asked_until[int(name)] = until

    def _write(self, rank: int, end: datetime, over: int) -> None:
        """*over*: fine windows since the end of the last longer one."""
        known, now, cores = self._published.get(str(rank)), end + self._late[rank], [*self._cores[rank]]
        is_asked = now < self._asked_until[rank]
        longer = cores[(len(cores) - over) % PARTS : len(cores) - over]
        if not longer or not (is_asked or known is None or known.work.end < end - over * TICK):
            return
        means = [round(fmean(longer[at : at + PARTS]), 3) for at in range(0, len(longer), PARTS)]
        work = PodWork(end=end - over * TICK, seconds=round(OF_PODS), cores=means[-MOST_WINDOWS:])
        after = WORK_ASKED_AFTER if is_asked else WORK_CHANGED_AFTER if has_changed(work) else WORK_AFTER
        if now - self._wrote[rank] >= after:
            fine = [round(each, 3) for each in cores[-MOST_WINDOWS:]]
            recent = PodWork(end=end, seconds=FINE, cores=fine) if is_asked else None
            self._published[str(rank)] = RankWork(str(rank), work, now, recent)
            self._wrote[rank], self.writes = now, self.writes + 1
