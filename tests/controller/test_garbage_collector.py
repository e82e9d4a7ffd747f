"""What is given back when it is not needed any more, and what is kept because it is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.json import encode

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Forbidden, Invalid
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.controller.fresh_reads import FreshReader, one_by_one
from healthd.controller.garbage_collector import GarbageCollector, needs_hint
from healthd.controller.rebuilds import Rebuilds
from healthd.core.api import (
    ANNOTATION_CLAIM,
    ANNOTATION_RESTART,
    ANNOTATION_STOPPED_BY,
    FINALIZER_FENCE,
    HINT_CURRENT,
    LABEL_GANG,
    LABEL_HINT,
    Attempt,
    ChosenCheckpoint,
    CustomObject,
    Job,
    Node,
    Pod,
    PodStatus,
    Recovery,
)
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import Root, RootOutcome, no_sign
from healthd.core.recovery.nodes.spares import Claim, is_spare, read_claim
from healthd.gangs import ADAPTERS
from healthd.gangs.kinds import ALL
from healthd.telemetry.isolation import Isolation
from tests.builders import a_job, a_node, a_pod, a_recovery
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import ManualClock, counting_uids
from tests.scenarios.scenario import Scenario

FIRST = [Attempt(number=1, checkpoint=ChosenCheckpoint())]


def current(scenario: Scenario) -> list[str]:
    """The recoveries whose hint new pods carry."""
    return [
        each.metadata.name for each in scenario.recoveries() if each.metadata.labels.get(LABEL_HINT) == HINT_CURRENT
    ]


async def stop_another_gang(scenario: Scenario, *, on: str) -> Job:
    """Its recovery waits for the proof that its one pod *on* that node has ended."""
    notes = {ANNOTATION_RESTART: "enabled", ANNOTATION_STOPPED_BY: "other-1"}
    job = await scenario.ground_truth.create(a_job("other", ranks=1, annotations=notes, suspend=True))
    await scenario.ground_truth.create(a_recovery("other-1", gang=job, labels={LABEL_GANG: "other"}))
    pods = [{"name": "other-0", "uid": "uid", "node": on, "index": "0"}]
    entry = {"phase": "Fencing", "at": scenario.clock.now().isoformat(), "message": "no member runs any more"}
    status = {"phase": "Fencing", "attempt": 1, "pods": pods, "timeline": [entry]}
    await scenario.ground_truth.patch(
        Recovery, "other-1", {"status": status}, namespace="default", subresource="status"
    )
    return job


async def test_pods_carry_the_hint_of_the_recovery_that_started_them() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert current(scenario) == [scenario.recovery().metadata.name]


@pytest.mark.slow
async def test_the_hint_of_an_earlier_recovery_is_taken_away() -> None:
    scenario = Scenario(spares=2)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=15)
    scenario.fault("node-0")
    await scenario.run_for(minutes=5)

    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED, Phase.RECOVERED]
    assert current(scenario) == [scenario.recoveries()[-1].metadata.name]


async def test_a_gang_that_is_gone_has_no_hint() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.delete()
    await scenario.run_for(minutes=2)

    assert current(scenario) == []


async def test_a_spare_whose_claim_a_person_took_away_is_no_node_of_one_gang_alone() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    spare = (await scenario.run_until(Phase.RECOVERED)).status.replacements["node-1"]
    await scenario.ground_truth.patch(Node, spare, {"metadata": {"annotations": {ANNOTATION_CLAIM: None}}})
    await scenario.run_for(minutes=2)

    assert (await scenario.ground_truth.get(Node, spare)).spec.taints == []
    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED]


class WithoutRights:
    """A cluster in which no user may read custom objects, as where `deploy/` grants nothing for them."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._cluster, verb)

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        """Raises Forbidden for custom objects, whether they exist or not."""
        if issubclass(kind, CustomObject):
            raise Forbidden(f"{kind.__name__} is forbidden")
        return await self._cluster.get(kind, name, namespace)


@pytest.mark.slow
async def test_a_kind_that_may_not_be_read_does_not_keep_a_spare_claimed() -> None:
    scenario = Scenario()
    cluster = WithoutRights(scenario.ground_truth.seen_by("controller"))
    scenario.add_loop("controller", scenario.new_controller("controller", cluster, adapters=ALL))
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.delete()
    await scenario.run_for(minutes=5)

    assert scenario.pool() == ["node-2"]


@pytest.mark.slow
async def test_a_node_that_a_stopped_gang_will_go_on_on_is_no_spare_of_the_gang_that_left_it() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    await stop_another_gang(scenario, on="node-1")
    scenario.repair("node-1")
    await scenario.run_for(minutes=5)
    assert scenario.pool() == []

    await scenario.ground_truth.delete(Job, "other", namespace="default")
    await scenario.run_for(minutes=5)

    assert scenario.pool() == ["node-1"]


@pytest.mark.slow
async def test_a_repaired_node_joins_the_pool_for_the_spare_of_one_gang_alone() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.machines.add("node-9")
    job = await stop_another_gang(scenario, on="node-9")
    uid = job.metadata.uid
    claim = Claim(recovery="other-1", namespace="default", gang="other", gang_uid=uid, instead_of="node-1")
    await scenario.ground_truth.create(a_node("node-9", annotations={ANNOTATION_CLAIM: encode(claim).decode()}))
    scenario.repair("node-1")
    await scenario.run_for(minutes=5)

    nodes = (await scenario.ground_truth.list(Node)).items
    claims = {node.metadata.name: found.instead_of for node in nodes if (found := read_claim(node))}
    assert (scenario.pool(), claims) == ([], {"node-2": "", "node-9": "node-1"})


async def test_a_node_with_a_pod_that_the_cache_has_not_seen_is_no_spare_yet() -> None:
    cluster = EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids())
    cluster_state = ClusterState(ADAPTERS)
    claim = Claim(recovery="train-1", namespace="default", gang="train", gang_uid="gone", instead_of="bad")
    await cluster.create(a_node("spare", annotations={ANNOTATION_CLAIM: encode(claim).decode()}))
    await read_everything(cluster, cluster_state, ADAPTERS)
    pod = await cluster.create(a_pod("unseen", node="spare"))
    reader = FreshReader(cluster, cluster_state, ADAPTERS, one_by_one, lambda _: (), Rebuilds(cluster, ADAPTERS, ""))
    collector = GarbageCollector(cluster, cluster_state, reader, ADAPTERS, Isolation())

    await collector.tidy(lambda _: no_sign)
    assert not is_spare(await cluster.get(Node, "spare"))

    await cluster.delete(Pod, "unseen", namespace="default", uid=pod.metadata.uid, grace_seconds=0)
    await collector.tidy(lambda _: no_sign)
    assert is_spare(await cluster.get(Node, "spare"))


@pytest.mark.slow
async def test_the_oldest_recoveries_of_a_gang_are_forgotten() -> None:
    scenario = Scenario(spares=3, budget=4, recovery=RecoveryPolicy(keep=2))
    await scenario.run_for(minutes=1)
    for node in ("node-0", "node-1", "node-2"):
        scenario.fault(node)
        await scenario.run_for(minutes=15)

    assert [recovery.spec.first_attempt for recovery in scenario.recoveries()] == [2, 3]


@pytest.mark.slow
async def test_the_history_of_a_gang_outlives_it_for_a_while() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(keep_for=timedelta(hours=2)))
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.delete()
    await scenario.run_for(hours=1)
    assert len(scenario.recoveries()) == 1

    await scenario.run_for(hours=2)

    assert scenario.recoveries() == []


@pytest.mark.parametrize(
    ("recovery", "root", "needed"),
    [
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), a_root(attempt=1), True),
        (a_recovery_in(Phase.SUPERSEDED, attempts=FIRST), a_root(attempt=1), True),
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), a_root(attempt=2), False),
        (a_recovery_in(Phase.STARTING, attempts=FIRST), a_root(attempt=0), True),
        (a_recovery_in(Phase.RESERVING), a_root(attempt=0), False),
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), a_root(attempt=1, ending=RootOutcome.COMPLETE), False),
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), None, False),
    ],
    ids=["it-runs", "superseded-and-runs", "another-runs", "about-to-start", "not-yet", "finished", "gone"],
)
def test_a_hint_is_needed_while_its_attempt_runs(recovery: Recovery, root: Root | None, needed: bool) -> None:
    assert needs_hint(recovery, root) == needed


class Refusing:
    """A cluster that refuses to give one pod back."""

    def __init__(self, cluster: EmbeddedCluster, refused: str) -> None:
        self._cluster = cluster
        self._refused = refused

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._cluster, verb)

    async def patch(self, kind: type[Any], name: str, patch: Any, **options: Any) -> Any:
        if name == self._refused:
            raise Invalid(f"{name}: it has something that a newer API server does not accept")
        return await self._cluster.patch(kind, name, patch, **options)


async def test_one_pod_that_is_not_given_back_keeps_no_other() -> None:
    clock = ManualClock()
    with EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids()) as cluster:
        for name in ("a-refused", "b-other"):
            ended = PodStatus(phase="Succeeded")
            pod = a_pod(name, labels={"batch.kubernetes.io/job-name": "gone"}, finalizers=[FINALIZER_FENCE])
            await cluster.create(pod)
            await cluster.patch(Pod, name, {"status": to_builtins(ended)}, namespace="default", subresource="status")
        seen: Any = Refusing(cluster, "a-refused")
        cluster_state = ClusterState(ADAPTERS)
        await read_everything(cluster, cluster_state, ADAPTERS)
        tidier = GarbageCollector(
            seen,
            cluster_state,
            FreshReader(seen, cluster_state, ADAPTERS, one_by_one, lambda _: (), Rebuilds(seen, ADAPTERS, "")),
            ADAPTERS,
            Isolation(),
        )
        with pytest.raises(Invalid):
            await tidier.tidy(lambda _: no_sign)

        left = {pod.metadata.name: pod.metadata.finalizers for pod in (await cluster.list(Pod)).items}
        assert left == {"a-refused": [FINALIZER_FENCE], "b-other": []}
