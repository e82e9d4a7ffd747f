"""
A month of random lives: whatever happens to a gang, and whenever a controller dies, the parts add up to its wall clock
times its GPUs, to the millisecond.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.accounting.figures import figures
from healthd.core.accounting.settle import is_due, settle
from healthd.core.accounting.timeline import counted, milliseconds, totals
from healthd.core.api import Cause, ChosenCheckpoint, Recovery, TimelineEntry
from healthd.core.api.gpu_time import GpuTime
from healthd.core.api.model import CauseKind, Phase
from tests.builders import a_cause
from tests.core.accounting.lives import MINUTE, a_life, a_view, at, members, seen
from tests.core.gangs import a_root

GPUS = 32
MONTH = 30 * 24 * 60.0
RULES = ("xid-79", "nvml-gpu-lost", "ib-link-downed", "gpu-lost", "")


class Life:
    """One gang of four members with eight GPUs each. Minutes count from the start of the month."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = self.started = 0.0
        self.step, self.saves = 0, [(0, 0.0)]
        self.recoveries: list[Recovery] = []
        self.root: dict[str, Any] = {"world": 4}
        self.every = self.dice.choice([30.0, 60.0, 120.0])
        self.stored: bytes | None = None
        self.increments = Counter[str]()

    @property
    def account(self) -> GpuTime:
        """As it is stored."""
        assert self.stored is not None
        return msgspec.json.decode(self.stored, type=GpuTime)

    def look(self, *, pods: Any = None) -> None:
        """A controller looks. It knows only what is stored, and may die before it stores anything, or look twice."""
        if self.dice.random() < 0.1:
            return
        progress = seen(self.saves[-1][0], self.saves[-1][1], every=self.every)
        view = a_view(a_root(progress=progress, started_at=at(self.started), **self.root), pods)
        before = self.account if self.stored else None
        shuffled = self.dice.sample(self.recoveries, len(self.recoveries))[-20:] if self.recoveries else []
        after = settle(before, view, shuffled, at(self.now))
        if after is None or not is_due(before, after) or self.dice.random() < 0.1:
            return
        after, grown = counted(before, after)
        self.stored = msgspec.json.encode(after)
        self.increments += grown

    def live(self) -> None:
        """One thing that happens, and what a controller sees of it."""
        happens = [self.train, self.train, self.train, self.fault, self.suspend, self.restart_by_itself]
        self.dice.choices(happens, weights=[20, 20, 20, 4, 1, 1])[0]()
        self.look()

    def pass_time(self, most: float) -> float:
        """The time after a while."""
        self.now += self.dice.uniform(0, most)
        return self.now

    def train(self) -> None:
        """It saves once more."""
        self.pass_time(2 * self.every)
        self.step += self.dice.randint(1, 50)
        self.saves.append((self.step, self.now))

    def suspend(self) -> None:
        """Its user stops it for a while."""
        self.pass_time(30)
        self.root["suspended"] = True
        self.look(pods=())
        self.pass_time(3000)
        self.look(pods=())
        self.start_again()

    def restart_by_itself(self) -> None:
        """Its own controller starts it again."""
        self.pass_time(60)
        self.root["own_restarts"] = self.root.get("own_restarts", 0) + 1
        self.look(pods=members(4, phase="Pending", own_restart=self.root["own_restarts"]))
        self.pass_time(20)

    def start_again(self) -> None:
        """Its user lets it run."""
        self.root["suspended"], self.root["stopped_by"], self.started = False, "", self.now
        self.look(pods=members(4, phase="Pending"))
        self.pass_time(20)

    def fault(self) -> None:
        """A recovery with one or more stops, which may end in each way, or hold."""
        causes, timeline, resumed = [self.a_cause()], [(self.pass_time(5), Phase.DETECTED)], list[ChosenCheckpoint]()
        while True:
            timeline += self.a_stop()
            if self.dice.random() < 0.05:
                timeline.append((self.now, Phase.GAVE_UP))
                break
            resumed.append(self.fall_back())
            timeline += [(self.pass_time(1), Phase.RESERVING), (self.pass_time(5), Phase.STARTING)]
            timeline.append((self.pass_time(20), Phase.CONFIRMING))
            if self.dice.random() < 0.7:
                self.train()
                timeline.append((self.now, self.dice.choice([Phase.RECOVERED, Phase.RECOVERED, Phase.SUPERSEDED])))
                break
            self.pass_time(100)
            causes.append(self.a_cause())
        self.enter(causes, timeline, resumed)

    def enter(self, causes: list[Cause], timeline: list[tuple[float, Phase]], resumed: list[ChosenCheckpoint]) -> None:
        """The recovery is over."""
        recovery = a_life(timeline, causes=causes, resumed=resumed, confirmed=self.step)
        jitter = self.dice.choice([0.0, 0.0, -3.0])  # a clock that was set
        bent = [TimelineEntry(phase=e.phase, at=e.at + timedelta(minutes=jitter)) for e in recovery.status.timeline[1:]]
        entries = [recovery.status.timeline[0], *bent]
        self.recoveries.append(replace(recovery, status=replace(recovery.status, timeline=entries)))
        self.started = next((when for when, phase in reversed(timeline) if phase is Phase.STARTING), self.started)
        if timeline[-1][1] is Phase.GAVE_UP:
            self.root |= {"suspended": True, "stopped_by": "train-1"}
            self.look(pods=())
            self.pass_time(600)
            self.start_again()

    def a_stop(self) -> list[tuple[float, Phase]]:
        """The stop of every member, perhaps with a hold."""
        way = [(self.pass_time(2), Phase.STOPPING), (self.pass_time(2), Phase.FENCING)]
        if self.dice.random() < 0.3:
            way += [(self.pass_time(2), Phase.HELD), (self.pass_time(900), Phase.FENCING)]
        return [*way, (self.pass_time(2), Phase.CHOOSING)]

    def fall_back(self) -> ChosenCheckpoint:
        """To one of the newest checkpoints, or to none."""
        if self.dice.random() < 0.03:
            self.step, self.saves = 0, [(0, self.now)]
            return ChosenCheckpoint()
        lost = min(self.dice.choice([0, 0, 0, 1, 4]), len(self.saves) - 1)
        self.saves = self.saves[: len(self.saves) - lost]
        self.step, saved_at = self.saves[-1]
        saved_ns = milliseconds(at(saved_at)) * 1_000_000
        return ChosenCheckpoint(path="/it", step=self.step, saved_ns=self.dice.choice([saved_ns, saved_ns, 0]))

    def a_cause(self) -> Cause:
        kind = self.dice.choice(list(CauseKind))
        when = at(self.now - self.dice.uniform(0, 3))
        rule = self.dice.choice(RULES) if kind is CauseKind.HARDWARE else ""
        return replace(a_cause(kind, finding=f"0000:3b:00.0/{rule}" if rule else ""), at=when)


def lived(seed: int) -> Life:
    life = Life(seed)
    while life.stored is None:
        life.look()
    while life.now < MONTH:
        life.live()
    return life


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_add_up_to_the_wall_clock_times_the_gpus(seed: int) -> None:
    life = lived(seed)
    account, amounts = life.account, totals(life.account)

    assert (account.until - account.since) * GPUS == amounts.total()
    assert milliseconds(at(life.now)) - account.until < 3 * 24 * 60 * MINUTE
    assert life.increments == amounts + Counter(account.owed)


def test_a_month_has_a_ratio_between_nothing_and_everything() -> None:
    found = figures([lived(0).account, lived(1).account])

    assert found.ettr is not None
    assert found.goodput is not None
    assert 0 < found.goodput < found.ettr < 1
    assert sum(loss.gpu_ms for loss in found.losses()) < found.whole - found.productive
