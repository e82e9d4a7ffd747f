"""The controller's loop over an embedded cluster: what it notices, and what it leaves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from healthd.controller.cache.cluster_state import ClusterState, ObjectKey
from healthd.controller.cache.informers import read_everything
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.ports import CheckpointAnswer
from healthd.controller.reconciler import Reconciler
from healthd.core.api import ANNOTATION_CLAIM, FINALIZER_FENCE, Node, NodeHealth, Pod, PodManifest
from healthd.core.api.model import Phase
from healthd.core.config import BreakerPolicy, RemediationPolicy
from healthd.core.node.check_pods import NAMESPACE
from healthd.core.recovery.gang import Root
from healthd.core.remediation.node_check import CheckOrder, check_pod
from healthd.gangs import ADAPTERS
from tests.builders import a_job, a_node, a_pod
from tests.fakes import ManualClock
from tests.scenarios.scenario import METRICS, Scenario, reading_at_once
from tests.simulation.faulty_cluster import StaleCache
from tests.simulation.step_scheduler import at_once
from tests.simulation.training import SeenCheckpoints, Store


async def test_pods_of_a_deleted_namesake_are_not_members() -> None:
    scenario = Scenario(ranks=1, spares=0)
    former = await scenario.cluster.create(a_job("former"))
    await scenario.cluster.create(a_pod("old", owner=former, labels={"batch.kubernetes.io/job-name": "train"}))

    cluster_state = ClusterState(ADAPTERS)
    await read_everything(scenario.cluster, cluster_state, ADAPTERS)

    assert cluster_state.gang_of(ObjectKey("default", "old")) is None
    assert cluster_state.members(scenario.root.ref) == ()


async def test_pods_of_a_deleted_gang_are_let_go_once_they_have_ended() -> None:
    scenario = Scenario(ranks=2, spares=0)
    await scenario.run_for(minutes=1)
    assert all(FINALIZER_FENCE in pod.metadata.finalizers for pod in scenario.pods())

    scenario.delete()
    await scenario.run_for(minutes=2)

    assert scenario.pods() == []


async def test_a_claim_is_not_undone_by_a_controller_that_has_not_seen_its_recovery() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    informer = StaleCache(scenario.ground_truth.seen_by("controller-2"))
    late = scenario.new_controller("controller-2", informer=informer)
    await late(scenario.clock.now())
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    informer.forget(Node)

    await late(scenario.clock.now())

    assert ANNOTATION_CLAIM in scenario.node("node-2").metadata.annotations


async def test_a_second_fault_in_an_attempt_whose_recovery_was_superseded_is_recovered_too() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    scenario.crash(0)
    await scenario.run_until(Phase.STOPPING)
    scenario.suspend()
    await scenario.run_until(Phase.SUPERSEDED)
    scenario.resume()
    await scenario.run_for(minutes=3)
    scenario.crash(1)
    await scenario.run_until(Phase.RECOVERED)

    assert len(scenario.recoveries()) == 2
    assert scenario.root.attempt == 1


async def test_gangs_that_did_not_ask_for_it_are_left_alone() -> None:
    scenario = Scenario(ranks=2, spares=1, options={"healthd.dev/restart": ""})
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_for(minutes=5)

    assert scenario.recoveries() == []
    assert scenario.quarantined() == ["node-1"]
    assert not scenario.root.suspended


async def test_a_store_that_does_not_answer_keeps_no_fault_from_being_seen() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    del scenario._loops["controller"]
    scenario.store.outage = "error"
    scenario.fault("node-1")
    await scenario.run_for(seconds=2)

    await scenario.new_controller("the next")(scenario.clock.now())

    assert [recovery.spec.cause.node for recovery in scenario.recoveries()] == ["node-1"]


async def test_a_gang_that_went_on_while_no_controller_looked_is_not_called_silent() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=5)
    del scenario._loops["controller"]
    await scenario.run_for(hours=1)

    await scenario.new_controller("the next")(scenario.clock.now())

    assert scenario.recoveries() == []
    assert scenario.root.progress.at == scenario.clock.now()


@pytest.mark.slow
async def test_a_gang_whose_store_does_not_answer_is_not_called_silent() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=5)
    scenario.store.outage = "error"
    await scenario.run_for(hours=1)

    assert scenario.recoveries() == []


class SlowStore(SeenCheckpoints):
    """A store that takes an hour for each answer."""

    def __init__(self, stores: dict[str, Store], clock: ManualClock) -> None:
        super().__init__(stores)
        self._clock = clock

    async def newest_step(self, root: Root) -> int | None:
        self._clock.advance(timedelta(hours=1))
        return await super().newest_step(root)


async def test_a_step_is_as_new_as_the_answer_of_the_store() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=5)
    del scenario._loops["controller"]
    await scenario.run_for(minutes=5)
    store = SlowStore(scenario.trainers.stores, scenario.clock)
    dependencies = ReconcilerDependencies(
        cluster=scenario.cluster, clock=scenario.clock, adapters=ADAPTERS, checkpoints=store, metrics=METRICS
    )
    slow = Reconciler(dependencies, scenario.config)

    await reading_at_once(slow)(scenario.clock.now())

    assert scenario.root.progress.at == scenario.clock.now()


async def test_a_gang_that_was_given_up_and_let_go_on_keeps_its_spare() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.patch_job({"metadata": {"annotations": {"healthd.dev/stopped-by": "given-up-before"}}})
    for pod in scenario.pods():
        at_once(scenario.ground_truth.patch(Pod, pod.metadata.name, {"spec": {"nodeName": None}}, namespace="default"))

    await scenario.new_controller("the next")(scenario.clock.now())

    assert ANNOTATION_CLAIM in scenario.node("node-2").metadata.annotations


async def test_a_spare_that_somebody_else_uses_is_not_claimed_until_he_is_gone() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    await scenario.ground_truth.create(a_pod("notebook", node="node-2"))
    scenario.fault("node-1")

    await scenario.run_until(Phase.HELD)
    version = scenario.recoveries()[0].metadata.resource_version
    await scenario.run_for(minutes=5)

    (held,) = scenario.recoveries()
    assert held.status.message.endswith("held free, but not used: node-2 (occupied by default/notebook)")
    assert held.metadata.resource_version == version
    assert ANNOTATION_CLAIM not in scenario.node("node-2").metadata.annotations
    await scenario.ground_truth.delete(Pod, "notebook", namespace="default", grace_seconds=0)
    await scenario.run_until(Phase.RECOVERED)
    assert scenario.places() == {"0": "node-0", "1": "node-2"}


def a_check(node: str) -> PodManifest:
    """A check of healthd that holds all GPUs of *node*."""
    order = CheckOrder(
        node=a_node(node), attempt=1, check=0, gpus=8, image="healthd:1", policy=RemediationPolicy(check_by_pod=True)
    )
    return check_pod(order)


async def test_a_spare_that_is_only_being_checked_is_claimed_at_once_and_its_check_is_ended() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    await scenario.ground_truth.create(a_check("node-2"))
    scenario.fault("node-1")

    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    (check,) = (await scenario.ground_truth.list(Pod, namespace=NAMESPACE)).items or (None,)
    assert check is None or check.metadata.deletion_timestamp is not None
    assert [entry for entry in scenario.recoveries()[0].status.timeline if entry.phase is Phase.HELD] == []


async def test_of_several_spares_one_is_claimed_that_no_one_uses() -> None:
    scenario = Scenario(ranks=2, spares=3)
    await scenario.run_for(minutes=1)
    for spare in ("node-2", "node-3"):
        await scenario.cluster.create(a_pod(f"notebook-{spare}", node=spare))
    scenario.fault("node-1")

    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-4"}


async def test_of_several_spares_one_is_claimed_whose_agent_was_heard_of_lately() -> None:
    scenario = Scenario(ranks=2, spares=2)
    await scenario.run_for(minutes=1)
    last_year = {"status": {"seenAt": "2025-01-01T00:00:00Z"}}
    await scenario.cluster.patch(NodeHealth, "node-2", last_year, subresource="status")
    scenario.fault("node-1")

    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-3"}


@pytest.mark.slow
async def test_the_breaker_is_shown_open_until_it_closes() -> None:
    scenario = Scenario(breaker=BreakerPolicy(restarts=1, window=timedelta(hours=1)))
    await scenario.run_for(minutes=2)
    before = is_breaker_open()
    scenario.crash(0)
    await scenario.run_until(Phase.RECOVERED)
    after_a_restart = is_breaker_open()
    await scenario.run_for(minutes=60)

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
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=5)
    dependencies = ReconcilerDependencies(
        cluster=scenario.ground_truth.seen_by("controller"),
        clock=scenario.clock,
        adapters=ADAPTERS,
        checkpoints=Elsewhere(scenario.trainers.stores),
        metrics=METRICS,
    )
    scenario._loops["controller"] = reading_at_once(Reconciler(dependencies, scenario.config))
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.status.checkpoint is not None
    assert recovery.status.checkpoint.step > 0
    assert [entry.phase for entry in recovery.status.timeline].count(Phase.CHOOSING) == 1
