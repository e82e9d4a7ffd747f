"""The controller's loop over an embedded cluster: what it notices, and what it leaves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from healthd.controller.cluster_state import ClusterState, ObjectKey
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.informers import read_everything
from healthd.controller.ports import CheckpointAnswer
from healthd.controller.reconciler import Reconciler
from healthd.core.api import ANNOTATION_CLAIM, FINALIZER_FENCE, Node, NodeHealth, Pod
from healthd.core.api.model import Phase
from healthd.core.config import BreakerPolicy
from healthd.core.recovery.gang import Root
from healthd.gangs import ADAPTERS
from tests.builders import a_job, a_pod
from tests.fakes import ManualClock
from tests.scenarios.stage import METRICS, Stage, reading_at_once
from tests.simulation.faulty import StaleCache
from tests.simulation.training import SeenCheckpoints, Store
from tests.simulation.turns import at_once


async def test_pods_of_a_deleted_namesake_are_not_members() -> None:
    stage = Stage(ranks=1, spares=0)
    former = await stage.cluster.create(a_job("former"))
    await stage.cluster.create(a_pod("old", owner=former, labels={"batch.kubernetes.io/job-name": "train"}))

    cluster_state = ClusterState(ADAPTERS)
    await read_everything(stage.cluster, cluster_state, ADAPTERS)

    assert cluster_state.gang_of(ObjectKey("default", "old")) is None
    assert cluster_state.members(stage.root.ref) == ()


async def test_pods_of_a_deleted_gang_are_let_go_once_they_have_ended() -> None:
    stage = Stage(ranks=2, spares=0)
    await stage.run_for(minutes=1)
    assert all(FINALIZER_FENCE in pod.metadata.finalizers for pod in stage.pods())

    stage.delete()
    await stage.run_for(minutes=2)

    assert stage.pods() == []


async def test_a_claim_is_not_undone_by_a_controller_that_has_not_seen_its_recovery() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=1)
    informer = StaleCache(stage.truth.seen_by("controller-2"))
    late = stage.new_controller("controller-2", informer=informer)
    await late(stage.clock.now())
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)
    informer.forget(Node)

    await late(stage.clock.now())

    assert ANNOTATION_CLAIM in stage.node("node-2").metadata.annotations


async def test_a_second_fault_in_an_attempt_whose_recovery_was_superseded_is_recovered_too() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=1)
    stage.crash(0)
    await stage.run_until(Phase.STOPPING)
    stage.suspend()
    await stage.run_until(Phase.SUPERSEDED)
    stage.resume()
    await stage.run_for(minutes=3)
    stage.crash(1)
    await stage.run_until(Phase.RECOVERED)

    assert len(stage.recoveries()) == 2
    assert stage.root.attempt == 1


async def test_gangs_that_did_not_ask_for_it_are_left_alone() -> None:
    stage = Stage(ranks=2, spares=1, options={"healthd.dev/restart": ""})
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_for(minutes=5)

    assert stage.recoveries() == []
    assert stage.quarantined() == ["node-1"]
    assert not stage.root.suspended


async def test_a_store_that_does_not_answer_keeps_no_fault_from_being_seen() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=1)
    del stage._loops["controller"]
    stage.store.outage = "error"
    stage.fault("node-1")
    await stage.run_for(seconds=2)

    await stage.new_controller("the next")(stage.clock.now())

    assert [recovery.spec.cause.node for recovery in stage.recoveries()] == ["node-1"]


async def test_a_gang_that_went_on_while_no_controller_looked_is_not_called_silent() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=5)
    del stage._loops["controller"]
    await stage.run_for(hours=1)

    await stage.new_controller("the next")(stage.clock.now())

    assert stage.recoveries() == []
    assert stage.root.progress.at == stage.clock.now()


async def test_a_gang_whose_store_does_not_answer_is_not_called_silent() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=5)
    stage.store.outage = "error"
    await stage.run_for(hours=1)

    assert stage.recoveries() == []


class SlowStore(SeenCheckpoints):
    """A store that takes an hour for each answer."""

    def __init__(self, stores: dict[str, Store], clock: ManualClock) -> None:
        super().__init__(stores)
        self._clock = clock

    async def newest_step(self, root: Root) -> int | None:
        self._clock.advance(timedelta(hours=1))
        return await super().newest_step(root)


async def test_a_step_is_as_new_as_the_answer_of_the_store() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=5)
    del stage._loops["controller"]
    await stage.run_for(minutes=5)
    store = SlowStore(stage.trainers.stores, stage.clock)
    dependencies = ReconcilerDependencies(
        cluster=stage.cluster, clock=stage.clock, adapters=ADAPTERS, checkpoints=store, metrics=METRICS
    )
    slow = Reconciler(dependencies, stage.config)

    await reading_at_once(slow)(stage.clock.now())

    assert stage.root.progress.at == stage.clock.now()


async def test_a_gang_that_was_given_up_and_let_go_on_keeps_its_spare() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)
    stage.patch_job({"metadata": {"annotations": {"healthd.dev/stopped-by": "given-up-before"}}})
    for pod in stage.pods():
        at_once(stage.truth.patch(Pod, pod.metadata.name, {"spec": {"nodeName": None}}, namespace="default"))

    await stage.new_controller("the next")(stage.clock.now())

    assert ANNOTATION_CLAIM in stage.node("node-2").metadata.annotations


async def test_a_spare_that_somebody_else_uses_is_not_claimed_until_he_is_gone() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=1)
    await stage.truth.create(a_pod("notebook", node="node-2"))
    stage.fault("node-1")

    await stage.run_until(Phase.HELD)
    version = stage.recoveries()[0].metadata.resource_version
    await stage.run_for(minutes=5)

    (held,) = stage.recoveries()
    assert held.status.message.endswith("held free, but not used: node-2 (occupied by default/notebook)")
    assert held.metadata.resource_version == version
    assert ANNOTATION_CLAIM not in stage.node("node-2").metadata.annotations
    await stage.truth.delete(Pod, "notebook", namespace="default", grace_seconds=0)
    await stage.run_until(Phase.RECOVERED)
    assert stage.places() == {"0": "node-0", "1": "node-2"}


async def test_of_several_spares_one_is_claimed_that_nobody_uses() -> None:
    stage = Stage(ranks=2, spares=3)
    await stage.run_for(minutes=1)
    for spare in ("node-2", "node-3"):
        await stage.cluster.create(a_pod(f"notebook-{spare}", node=spare))
    stage.fault("node-1")

    await stage.run_until(Phase.RECOVERED)

    assert stage.places() == {"0": "node-0", "1": "node-4"}


async def test_of_several_spares_one_is_claimed_whose_agent_was_heard_of_lately() -> None:
    stage = Stage(ranks=2, spares=2)
    await stage.run_for(minutes=1)
    last_year = {"status": {"seenAt": "2025-01-01T00:00:00Z"}}
    await stage.cluster.patch(NodeHealth, "node-2", last_year, subresource="status")
    stage.fault("node-1")

    await stage.run_until(Phase.RECOVERED)

    assert stage.places() == {"0": "node-0", "1": "node-3"}


async def test_the_breaker_is_shown_open_until_it_closes() -> None:
    stage = Stage(breaker=BreakerPolicy(restarts=1, window=timedelta(hours=1)))
    await stage.run_for(minutes=2)
    before = is_breaker_open()
    stage.crash(0)
    await stage.run_until(Phase.RECOVERED)
    after_a_restart = is_breaker_open()
    await stage.run_for(minutes=60)

    assert (before, after_a_restart, is_breaker_open()) == (0, 1, 0)


def is_breaker_open() -> float | None:
    return METRICS.registry.get_sample_value("healthd_breaker_open", {"crowd": "restarts"})


class Elsewhere(SeenCheckpoints):
    """What is verified elsewhere: the answer comes when it was asked for the third time."""

    asked = 0

    async def latest(self, root: Root, *how: Any, **more: Any) -> CheckpointAnswer:
        self.asked += 1
        if self.asked < 3:
            return CheckpointAnswer(None, [], pending="a pod reads the checkpoints")
        return await super().latest(root, *how, **more)


async def test_a_gang_waits_for_what_is_verified_elsewhere() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=5)
    dependencies = ReconcilerDependencies(
        cluster=stage.truth.seen_by("controller"),
        clock=stage.clock,
        adapters=ADAPTERS,
        checkpoints=Elsewhere(stage.trainers.stores),
        metrics=METRICS,
    )
    stage._loops["controller"] = reading_at_once(Reconciler(dependencies, stage.config))
    stage.fault("node-1")
    recovery = await stage.run_until(Phase.RECOVERED)

    assert recovery.status.checkpoint is not None
    assert recovery.status.checkpoint.step > 0
    assert [entry.phase for entry in recovery.status.timeline].count(Phase.CHOOSING) == 1
