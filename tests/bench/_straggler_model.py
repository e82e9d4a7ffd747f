"""
A model of synchronous gangs, as their windows of work shares: what is usual in healthy ones, and one rank that is slow.

It is a model, not a recording. Each rank works on its host for a part of a step, then all exchange gradients. The step
ends with the slowest rank. A window has of each rank what it worked in the parts of steps that fall into it: of long
steps one window has more than the next. Shares of a step are of what a healthy one takes when no rank is late.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp, sqrt
from statistics import fmean
from typing import NamedTuple

from healthd.agent.rhythms import WITHIN
from healthd.controller.fleet.stragglers import EVERY, WATCHED_EVERY
from healthd.core.api.health import MOST_WINDOWS, PodWork
from healthd.core.hang.pods import SAMPLE_EVERY
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.gang_work import GangWork, RankWork
from healthd.core.hang.work.slow_ranks import SlowRanks
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
SAMPLED = SAMPLE_EVERY.total_seconds()
RANKS = 8
"""Of a gang, where nothing else is said."""
A_DAY = 86400
DRIFTS = 592.0
"""Seconds: the time constant of a rank's drift."""
DRAWN = 500
"""Steps by which it is known how long a mean one takes: all wait for the last rank."""
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
    one. *beside*: beside its steps, as a server of metrics does. No rank waits for that.
    """

    rank: int
    by: float
    begin: float
    beside: bool = False


class Step(NamedTuple):
    """Each rank works from the begin on for so many seconds, and then waits for the end. Times are since the start."""

    begin: float
    end: float
    worked: Sequence[float]
    """By rank."""
    is_alone: bool = False
    """Rank 0 evaluates or saves, and no rank trains."""


class Gang:
    """One gang. What differs between gangs is drawn from *seed*."""

    def __init__(self, seed: int, drift: float = 0.01, window: float = WINDOW, ranks: int = RANKS) -> None:
        self.window = window
        self.ranks = ranks
        self._dice = dice = random.Random(seed)
        self._noise = _noise()
        self.period = 0.2 * 25 ** dice.random()
        """Seconds of a mean step of the healthy gang, but for pauses and drift: 0.2 to 5."""
        self._work = dice.uniform(0.2, 0.9)
        self._rest = 1 - self._work
        self._jitter = dice.uniform(0.02, 0.1) * self._work
        uneven = dice.uniform(0.002, 0.02)
        self._uneven = [dice.gauss(0, uneven) for _ in range(ranks)]
        self._uneven[0] += dice.uniform(0, 0.1)
        self._drifts = [0.0] * ranks
        self._again = exp(-window / DRIFTS)
        self._new = drift * sqrt(1 - self._again**2)
        self._of_ranks = [(rank, _Now(dice, kind)) for rank in range(ranks) for kind in (COLLECTIONS, DAEMONS)]
        self._of_rank_0 = [_Now(dice, kind) for kind in (SAVES, EVALUATIONS)]
        self._phase = _Now(dice, PHASES)
        self._all = [*(each for _, each in self._of_ranks), *self._of_rank_0, self._phase]
        self._quiet_until = 0.0
        self._alone, self._alone_until = 0.0, 0.0
        self._steps: deque[Step] = deque()
        """Those that are not over yet."""
        self._next_at = 0.0
        """When the next step begins."""
        self._mean = fmean(max(self._work_of_step()) for _ in range(DRAWN)) + self._rest
        self.paused: list[float] = []
        """Of each window, the seconds in which rank 0 worked alone."""

    def slower(self, slow: Slow) -> float:
        """How much longer a mean step takes because of it: by less than it needs, for other ranks are late, too."""
        if slow.beside:
            return 0.0
        steps = [self._work_of_step() for _ in range(DRAWN)]
        least = fmean(map(max, steps)) + self._rest
        for work in steps:
            work[slow.rank] += slow.by * self._mean
        return (fmean(map(max, steps)) + self._rest) / least - 1

    def windows(self, count: int, slow: Slow | None = None, early: Sequence[float] = ()) -> Iterator[ShareWindow]:
        """*count* windows, one after the other. Those of each rank begin and end so many seconds too *early*."""
        names, begin, length = [str(rank) for rank in range(self.ranks)], START, timedelta(seconds=self.window)
        early = early or [0.0] * self.ranks  # a run samples all of its ranks at the same time
        for number in range(count):
            shares = dict(zip(names, self._shares(number, slow, early), strict=True))
            yield ShareWindow(begin, begin + length, shares)
            begin += length

    def _shares(self, number: int, slow: Slow | None, early: Sequence[float]) -> list[WorkShare]:
        """Of each rank what it worked in the parts of steps that fall into the window."""
        begin, end, steps = number * self.window, (number + 1) * self.window, self._steps
        normal = self._normal()
        self._drifts = [self._again * d + self._new * n for d, n in zip(self._drifts, normal, strict=True)]
        while self._next_at < end:
            steps.append(self._step(self._next_at, slow))
            self._next_at = steps[-1].end
        self.paused.append(sum(_within(each.begin, each.end, begin, end) for each in steps if each.is_alone))
        ran = [
            sum(_within(each.begin, each.begin + each.worked[rank], begin - by, end - by) for each in steps)
            for rank, by in enumerate(early)
        ]
        while steps and steps[0].end <= end - max(early):
            steps.popleft()
        return [WorkShare(min(1.0, each / self.window)) for each in ran]

    def _step(self, begin: float, slow: Slow | None) -> Step:
        is_quiet = begin + self.period <= self._quiet_until
        if not is_quiet:
            self._begin_pauses(begin)
        if begin < self._alone_until:
            end = min(begin + self.period, self._alone_until)
            return Step(begin, end, [self._alone * (end - begin), *[0.0] * (self.ranks - 1)], is_alone=True)
        work = self._work_of_step()
        for rank, pauses in () if is_quiet else self._of_ranks:
            work[rank] += pauses.share(begin, self.period) * pauses.size
        last = max(work)
        if slow is not None:
            since = begin + self.period - slow.begin * self.window
            work[slow.rank] += slow.by * self._mean * min(1.0, max(0.0, since / self.period))
            last = last if slow.beside else max(work)
        second = self.period / self._mean
        return Step(begin, begin + second * (last + self._rest), [second * each for each in work])

    def _work_of_step(self) -> list[float]:
        """Of each rank, but for pauses."""
        return [
            self._work + own + drift + self._jitter * some
            for own, drift, some in zip(self._uneven, self._drifts, self._normal(), strict=True)
        ]

    def _normal(self) -> Sequence[float]:
        """One value for each rank."""
        place = int(self._dice.random() * (_TABLE - self.ranks))
        return self._noise[place : place + self.ranks]

    def _begin_pauses(self, at: float) -> None:
        """Those that begin between two steps: rank 0 works alone from *at* on, or all have other work."""
        if (phase := self._phase.due(at)) is not None:
            self._work = min(0.9, max(0.2, self._work * phase.size))
        for pauses in self._of_rank_0:
            if at >= self._alone_until and (pause := pauses.due(at)) is not None:
                self._alone, self._alone_until = pause.size, at + pause.seconds
        self._quiet_until = min(each.begin for each in self._all)


class _Pause(NamedTuple):
    seconds: float
    size: float


class _Now:
    """Pauses of one kind, one after the other."""

    def __init__(self, dice: random.Random, kind: Pauses) -> None:
        self._dice, self._kind = dice, kind
        self.begin = self._end = -1.0
        self.size = 0.0
        self._next(0.0)

    def share(self, at: float, seconds: float) -> float:
        """The share of the *seconds* from *at* on in which it happens."""
        if at >= self._end:
            self._next(at)
        return _within(self.begin, self._end, at, at + seconds) / seconds

    def due(self, at: float) -> _Pause | None:
        """One that begins *at* the end of a step, for which it had to wait."""
        if at < self.begin:
            return None
        pause = _Pause(self._end - self.begin, self.size)
        self._next(at + pause.seconds)
        return pause

    def _next(self, at: float) -> None:
        dice, kind = self._dice, self._kind
        self.begin = at + dice.uniform(0.5, 1.5) * kind.every
        self._end = self.begin + dice.uniform(kind.shortest, kind.longest)
        self.size = dice.uniform(kind.least, kind.most)


def _within(begin: float, end: float, since: float, until: float) -> float:
    """The seconds from *begin* to *end* that are between two times."""
    return max(0.0, min(end, until) - max(begin, since))


def _noise(_kept: list[float] = []) -> list[float]:  # noqa: B006 - made once
    """Standard normal values."""
    if not _kept:
        dice = random.Random(1)
        _kept.extend(dice.gauss(0, 1) for _ in range(_TABLE))
    return _kept


def reported(gang: Gang, count: int, slow: Slow | None = None) -> list[tuple[float, Straggler]]:
    """What is reported of *gang* in *count* windows: seconds after its start, and the rank."""
    ranks, found = SlowRanks(), list[tuple[float, Straggler]]()
    for window in gang.windows(count, slow):
        begun = [each for each in ranks.add(window) if each.ended_at is None]
        found += [((window.end - START).total_seconds(), each) for each in begun]
    return found


class PodGang:
    """
    The same gang as pods of one rank, each on a node of its own, as their agents publish it and the controller sees it.

    A rank that works all the time uses one core. Control groups are taken to count no waits for a processor. Each agent
    samples once a second, but not all at the same time: the windows of a rank end up to a second too early. *asks*:
    agents answer when the controller asks them for the newest minutes, as older ones do not.
    """

    def __init__(self, gang: Gang, seed: int, *, asks: bool = True) -> None:
        self._gang = gang
        self._ranks = range(gang.ranks)
        self._asks = asks
        self._dice = random.Random(seed)
        self.writes = 0
        """Of all agents."""
        self.asked = 0
        """Nodes, each time that one is asked."""
        self._cores: list[deque[float]] = [deque(maxlen=PARTS * (MOST_WINDOWS + 1)) for _ in self._ranks]
        """Of each rank, in fine windows."""
        self._early = [SAMPLED * self._dice.random() for _ in self._ranks]
        self._late = [WITHIN * self._dice.random() for _ in self._ranks]
        self._wrote = [START - WORK_AFTER * self._dice.random() for _ in self._ranks]
        self._asked_until = [START] * gang.ranks
        self._published: dict[str, RankWork] = {}

    def reported(self, count: int, slow: Slow | None = None) -> list[tuple[float, Straggler]]:
        """What is reported in *count* windows: seconds after the start, and the rank."""
        found, work, compared = list[tuple[float, Straggler]](), None, START
        for number, window in enumerate(self._gang.windows(count, slow, self._early), start=1):
            for rank in self._ranks:
                self._cores[rank].append(window.shares[str(rank)].ran)
                self._write(rank, window.end, number % PARTS)
            now = window.end + IN_FLIGHT + WATCHED_EVERY * self._dice.random()
            is_due = now - compared >= EVERY - TICK / 2 or (work is not None and work.is_watched(now))
            if len(self._published) < len(self._ranks) or not is_due:
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
