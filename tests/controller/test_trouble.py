"""Trouble with one gang, or with the cluster, and what it must not lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import ClusterError, Forbidden, Unavailable, WebhookFailed
from healthd.controller.cache.cluster_state import ClusterState, GangKey, ObjectKey
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.ports import NoActivity
from healthd.controller.reconciler import Reconciler
from healthd.controller.schedule import RETRY, RETRY_MOST, STUCK_AFTER
from healthd.controller.workqueue import APART, APART_MOST, WorkQueue
from healthd.core.api import ANNOTATION_CHECKPOINT, ANNOTATION_RESTART, GangRef, ObjectReference, Pod, Recovery
from healthd.core.config import Config
from healthd.core.recovery.gang import Root
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.builders import a_job, a_recovery
from tests.fakes import ManualClock, counting_uids, settle
from tests.scenarios.scenario import reading_at_once

NAMES = ("first", "second", "third")


class Stores:
    """Where gangs save. *broken* ones raise their error, *slow* ones never answer; *asked* are those looked at."""

    def __init__(self) -> None:
        self.broken: dict[str, Exception] = {}
        self.slow: set[str] = set()
        self.asked: list[str] = []

    async def newest_step(self, root: Root) -> int | None:
        name = root.ref.name
        self.asked.append(name)
        if name in self.slow:
            await asyncio.Event().wait()
        if name in self.broken:
            raise self.broken[name]
        return None

    async def latest(self, root: Root, *_: object, **__: object) -> Any:
        raise AssertionError("nothing is recovered here")


class Senses(NoActivity):
    """Signs of life, and what comes in the way of them."""

    def __init__(self) -> None:
        self.trouble: Exception | None = None
        self.asked = 0

    def last(self, pods: Sequence[Pod]) -> datetime | None:
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return None


class ThreeGangs:
    """Running gangs with nothing wrong, whose progress is looked at."""

    def __init__(self, names: Sequence[str] = NAMES) -> None:
        self.clock = ManualClock()
        self.stores = Stores()
        self.senses = Senses()
        self.reported: list[tuple[str, str, str, str]] = []
        """Kind and name of the object, reason, message."""
        self.cluster_state = ClusterState(ADAPTERS)
        for number, name in enumerate(names, start=1):
            notes = {ANNOTATION_RESTART: "enabled", ANNOTATION_CHECKPOINT: f"/{name}"}
            job = a_job(name, annotations=notes, uid=f"uid-{name}", resource_version=str(number))
            self.cluster_state.upsert(job)
        no_one: Any = None
        dependencies = ReconcilerDependencies(
            cluster=no_one,
            clock=self.clock,
            adapters=ADAPTERS,
            checkpoints=self.stores,
            metrics=Metrics(),
            activity=self.senses,
            announce=self._report,
        )
        self.controller = Reconciler(dependencies, Config(), cluster_state=self.cluster_state)

    def _report(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        assert kind == "Warning"
        self.reported.append((about.kind, about.name, reason, message))

    async def cycle(self) -> timedelta:
        self.stores.asked.clear()
        again: timedelta = await reading_at_once(self.controller)(self.clock.now())
        return again

    def _first_is_ready_at(self) -> datetime:
        ready_at = self.controller._schedule.ready_at(GangKey("Job", "default", "first"))
        assert ready_at is not None
        return ready_at

    async def waits_of_first(self, cycles: int) -> list[timedelta]:
        """How long the first gang is left alone after each failure."""
        waits = []
        for _ in range(cycles):
            await self.cycle()
            waits.append(self._first_is_ready_at() - self.clock.now())
            self.clock.advance(waits[-1])
        return waits


async def test_trouble_with_one_gang_is_no_trouble_for_the_others() -> None:
    scenario = ThreeGangs()
    scenario.stores.broken = {"first": OSError("no answer"), "second": ZeroDivisionError("a fault of ours")}
    await scenario.cycle()

    assert scenario.stores.asked == ["first", "second", "third"]


async def test_a_gang_in_trouble_is_tried_again_less_and_less_often() -> None:
    scenario = ThreeGangs()
    scenario.senses.trouble = Unavailable("no route")

    waits = await scenario.waits_of_first(8)

    assert waits[:3] == [RETRY, RETRY * 2, RETRY * 4]
    assert waits[-1] == RETRY_MOST


async def test_once_it_works_again_the_next_trouble_is_a_new_one() -> None:
    scenario = ThreeGangs()
    scenario.senses.trouble = Unavailable("no route")
    await scenario.waits_of_first(3)
    scenario.senses.trouble = None
    await scenario.waits_of_first(1)
    scenario.senses.trouble = Unavailable("no route")

    assert await scenario.waits_of_first(1) == [RETRY]


@pytest.mark.parametrize(
    "trouble",
    [Forbidden('User "healthd" cannot patch jobs'), WebhookFailed('failed calling webhook "jobs.example.com"')],
)
async def test_trouble_that_lasts_is_reported_on_the_gang_and_on_its_recovery(trouble: ClusterError) -> None:
    scenario = ThreeGangs(["first"])
    job = scenario.cluster_state.gangs(GangKey("Job", "default", "first"))[0]
    recovery = a_recovery("first-1", uid="uid-recovery", resource_version="9")
    spec = msgspec.structs.replace(recovery.spec, gang=job)
    scenario.cluster_state.upsert(msgspec.structs.replace(recovery, spec=spec))
    scenario.senses.trouble = trouble
    began = scenario.clock.now()
    while scenario.clock.now() < began + STUCK_AFTER:
        assert scenario.reported == [], "it may be a race with another writer"
        await scenario.waits_of_first(1)
    await scenario.waits_of_first(1)

    why = f"healthd cannot go on with this gang, and tries again: {trouble}"
    assert scenario.reported == [("Job", "first", "GangStuck", why), ("Recovery", "first-1", "Stuck", why)]


async def test_an_outage_is_not_reported_on_each_gang() -> None:
    scenario = ThreeGangs()
    scenario.senses.trouble = Unavailable("no route")
    await scenario.waits_of_first(8)

    assert scenario.reported == []


async def test_a_recovery_of_a_kind_that_this_version_does_not_know_is_left_alone() -> None:
    scenario = ThreeGangs()
    gang = GangRef(kind="FutureJob", name="llama", namespace="default", uid="uid-llama")
    recovery = a_recovery(uid="uid-recovery", resource_version="9")
    spec = msgspec.structs.replace(recovery.spec, gang=gang)
    scenario.cluster_state.upsert(msgspec.structs.replace(recovery, spec=spec))
    with capture_logs() as logged:
        await scenario.cycle()
        asked = scenario.stores.asked[:]
        scenario.cluster_state.dirty_keys.add(GangKey("FutureJob", "default", "llama"))
        await scenario.cycle()

    assert asked == ["first", "second", "third"]
    assert [entry["gang"] for entry in logged if entry["event"] == "gang.unknown_kind"] == ["llama"], "it is said once"
    assert scenario.cluster_state.get(Recovery, ObjectKey("default", recovery.metadata.name)) is not None


async def test_a_store_that_takes_for_ever_is_no_wait_for_the_others() -> None:
    scenario = ThreeGangs()
    scenario.stores.slow = {"first"}
    tending = WorkQueue(scenario.controller, scenario.clock, asyncio.Event())
    running = asyncio.create_task(tending.run())
    await settle()
    await scenario.clock.run_for(timedelta(minutes=1))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert scenario.stores.asked.count("first") == 1
    assert scenario.stores.asked.count("third") > 5


async def test_a_gang_that_many_events_touch_is_read_now_and_then() -> None:
    scenario, wake = ThreeGangs(), asyncio.Event()
    running = asyncio.create_task(WorkQueue(scenario.controller, scenario.clock, wake).run())
    await settle()
    before = scenario.senses.asked
    for _ in range(200):  # in one second
        scenario.cluster_state.dirty_keys.add(GangKey("Job", "default", "first"))
        wake.set()
        await scenario.clock.run_for(timedelta(milliseconds=5))
    at_once = scenario.senses.asked - before
    scenario.cluster_state.dirty_keys.add(GangKey("Job", "default", "first"))
    wake.set()
    await scenario.clock.run_for(APART)
    last = scenario.senses.asked - before - at_once
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert 10 <= at_once <= 1 / APART.total_seconds()
    assert last == 1, "the last event is not forgotten"


class Laborious(Senses):
    """Each look at the pods of a gang *takes* a while of a processor."""

    def __init__(self, takes: timedelta) -> None:
        super().__init__()
        self._takes = takes
        self.used = 0.0
        """Seconds of it, in all."""

    def last(self, pods: Sequence[Pod]) -> datetime | None:
        self.used += self._takes.total_seconds()
        return super().last(pods)


@pytest.mark.parametrize(
    ("takes", "every"),
    [
        (timedelta(milliseconds=1), APART),
        (timedelta(milliseconds=100), timedelta(milliseconds=400)),
        (timedelta(seconds=1), APART_MOST),
    ],
)
async def test_a_gang_pauses_for_longer_the_longer_a_reconcile_computes(takes: timedelta, every: timedelta) -> None:
    scenario, wake = ThreeGangs(["first"]), asyncio.Event()
    scenario.stores.slow = {"first"}  # the answer of a store ends a pause
    scenario.senses = laborious = Laborious(takes)
    scenario.controller._observer._activity = laborious
    queue = WorkQueue(scenario.controller, scenario.clock, wake, counter=lambda: laborious.used)
    running = asyncio.create_task(queue.run())
    await settle()
    before, began = scenario.senses.asked, scenario.clock.now()
    while scenario.clock.now() - began < timedelta(seconds=30):
        scenario.cluster_state.dirty_keys.add(GangKey("Job", "default", "first"))
        wake.set()
        await scenario.clock.run_for(timedelta(milliseconds=5))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    passed, times = scenario.clock.now() - began, scenario.senses.asked - before
    assert 0.8 < (passed / every) / times < 1.2


async def test_a_gang_that_pauses_is_no_wait_for_another_whose_time_has_come() -> None:
    scenario, wake = ThreeGangs(), asyncio.Event()
    first, second = GangKey("Job", "default", "first"), GangKey("Job", "default", "second")
    scenario.senses.trouble = Unavailable("no route")
    running = asyncio.create_task(WorkQueue(scenario.controller, scenario.clock, wake).run())
    await settle()
    scenario.senses.trouble = None
    now = scenario.clock.now()
    scenario.controller.pause(first, now + timedelta(minutes=5))
    await scenario.clock.run_for(RETRY * 2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert scenario.controller._schedule.ready_at(first) == now + RETRY, "it is due, and pauses"
    second_at = scenario.controller._schedule.ready_at(second)
    assert second_at is not None
    assert second_at > now + RETRY * 2, "it was reconciled"


async def test_what_touches_a_gang_while_it_is_attended_to_is_not_forgotten() -> None:
    scenario = ThreeGangs()
    key = GangKey("Job", "default", "first")

    class Touching(Senses):
        def last(self, pods: Sequence[Pod]) -> datetime | None:
            scenario.cluster_state.dirty_keys.add(key)
            scenario.controller.ready_keys(scenario.clock.now())
            return None

    scenario.controller._observer._activity = Touching()
    await scenario.controller.reconcile(key, scenario.clock.now())

    assert key in scenario.controller.ready_keys(scenario.clock.now())


async def test_nothing_is_attended_to_while_the_sight_is_old() -> None:
    scenario = ThreeGangs()
    tending = WorkQueue(scenario.controller, scenario.clock, asyncio.Event(), trouble=lambda: "no update of pods")
    running = asyncio.create_task(tending.run())
    await settle()
    await scenario.clock.run_for(timedelta(minutes=1))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert scenario.stores.asked == []


async def test_a_sight_that_stays_old_costs_no_time() -> None:
    scenario = ThreeGangs()
    asked = 0

    def trouble() -> str:
        nonlocal asked
        asked += 1
        return "no update of pods"

    running = asyncio.create_task(WorkQueue(scenario.controller, scenario.clock, asyncio.Event(), trouble).run())
    await settle()
    await scenario.clock.run_for(timedelta(minutes=1))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert asked < 200, "some two a second"


class Unshowable(Metrics):
    """Fails at the first gang."""

    def show_gangs(self, gangs: Iterable[Root], *, invalid: Collection[str] = ()) -> None:
        raise OverflowError("int too large to convert to float")


async def test_metrics_that_cannot_be_shown_stand_before_no_work() -> None:
    scenario, metrics = ThreeGangs(), Unshowable()
    dependencies = ReconcilerDependencies(
        cluster=EmbeddedCluster.open(None, clock=scenario.clock, new_uid=counting_uids()),
        clock=scenario.clock,
        adapters=ADAPTERS,
        checkpoints=scenario.stores,
        metrics=metrics,
    )
    scenario.controller = Reconciler(dependencies, Config(), cluster_state=scenario.cluster_state)
    await scenario.controller.collect_garbage(scenario.clock.now())

    swept = metrics.registry.get_sample_value("healthd_loop_last_success_timestamp_seconds", {"loop": "controller"})
    assert swept == scenario.clock.now().timestamp()
    assert metrics.registry.get_sample_value("healthd_object_errors_total", {"where": "metrics"}) == 1


class Untidy(Metrics):
    """While it is *broken*, no sweep succeeds."""

    broken = False

    def loop_succeeded(self, loop: str, now: datetime) -> None:
        if self.broken:
            raise OverflowError("int too large to convert to float")


async def test_the_rounds_of_the_queue_stand_still_while_sweeps_fail_or_the_sight_is_old() -> None:
    scenario, metrics, trouble = ThreeGangs(), Untidy(), [""]
    dependencies = ReconcilerDependencies(
        cluster=EmbeddedCluster.open(None, clock=scenario.clock, new_uid=counting_uids()),
        clock=scenario.clock,
        adapters=ADAPTERS,
        checkpoints=scenario.stores,
        metrics=metrics,
    )
    controller = Reconciler(dependencies, Config(), cluster_state=scenario.cluster_state)
    queue = WorkQueue(controller, scenario.clock, asyncio.Event(), lambda: trouble[0])
    running, seen = asyncio.create_task(queue.run()), [queue.rounds]
    for metrics.broken, trouble[0] in ((False, ""), (True, ""), (False, ""), (False, "no update of pods"), (False, "")):
        await scenario.clock.run_for(timedelta(seconds=10))
        seen.append(queue.rounds)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    turned = [after - before for before, after in pairwise(seen)]
    assert [each > 5 for each in turned] == [True, False, True, False, True]
    assert max(turned[1], turned[3]) <= 1
