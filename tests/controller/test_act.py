"""What the controller does not do because somebody was faster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict, Forbidden
from healthd.controller.act import NotKept, TooLarge, perform, record
from healthd.controller.rebuilds import Rebuilds
from healthd.core.api import ANNOTATION_CLAIM, FINALIZER_JOB, FencedPod, Pod, Recovery, Slim
from healthd.core.api.model import Phase
from healthd.core.api.pod_packs import MOST_PODS
from healthd.core.recovery.actions import ClaimSpare, RemovePods, StopGang
from healthd.core.recovery.gang import GangView
from healthd.gangs import ADAPTERS
from tests.builders import a_node, a_pod, a_recovery
from tests.core.gangs import a_root
from tests.fakes import START, ManualClock, counting_uids
from tests.scenarios.scenario import Scenario

T = TypeVar("T", bound=Slim)


class Forgetful(EmbeddedCluster):
    """A cluster whose definition of Recovery does not know `letThrough` yet."""

    async def patch(self, kind: type[T], name: str, patch: Mapping[str, Any], **options: str) -> T:
        """As an API server with an older definition: what it does not know it drops without a word."""
        known = {key: value for key, value in patch.get("status", {}).items() if key != "letThrough"}
        return await super().patch(kind, name, {**patch, "status": known}, **options)


async def test_record_that_the_cluster_did_not_keep_is_an_error_and_says_what_to_do() -> None:
    clock = ManualClock()
    with Forgetful.open(None, clock=clock, new_uid=counting_uids()) as cluster:
        recovery = await cluster.create(a_recovery())
        status = replace(recovery.status, let_through=START, message="goes on")

        with pytest.raises(NotKept, match=r"did not keep letThrough in .* apply deploy/crds.yaml"):
            await record(cluster, recovery, status, clock.now())


async def test_a_record_of_more_pods_than_an_object_holds_is_an_error_and_is_not_written() -> None:
    clock = ManualClock()
    with EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids()) as cluster:
        recovery = await cluster.create(a_recovery())
        pods = [FencedPod(name="p", uid="u", node="n")] * (MOST_PODS + 1)

        with pytest.raises(TooLarge, match="30,000 pods, and this gang has 30,001; delete its failed pods"):
            await record(cluster, recovery, replace(recovery.status, pods=pods), clock.now())

        assert await cluster.get(Recovery, "train-1", "default") == recovery


async def test_a_gang_that_its_user_set_going_is_not_stopped_by_what_was_decided_before() -> None:
    scenario = Scenario(ranks=2, spares=0)
    await scenario.run_for(minutes=1)
    scenario.crash(0)
    before = await scenario.run_until(Phase.STOPPING)
    scenario.suspend()
    await scenario.run_until(Phase.SUPERSEDED)
    scenario.resume()

    with pytest.raises(Conflict, match="it has been changed"):
        await perform(
            scenario.cluster,
            StopGang(before.metadata.name),
            recovery=before,
            view=GangView(root=scenario.root),
            adapter=ADAPTERS["Job"],
            rebuilds=Rebuilds(scenario.cluster, ADAPTERS, ""),
        )

    assert not scenario.root.suspended


async def test_of_pods_whose_end_is_proven_only_what_another_finalizer_keeps_stays_and_is_called_failed() -> None:
    with EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids()) as cluster:
        recovery = await cluster.create(a_recovery())
        free = await cluster.create(a_pod("free", node="node-a"))
        counted = await cluster.create(a_pod("counted", node="node-a", finalizers=[FINALIZER_JOB]))
        kept = await cluster.create(a_pod("kept", node="node-a", finalizers=[FINALIZER_JOB, "example.com/mine"]))

        await perform(
            cluster,
            RemovePods(("free", "counted", "kept")),
            recovery=recovery,
            view=GangView(root=a_root(), pods=(free, counted, kept)),
            adapter=ADAPTERS["Job"],
            rebuilds=Rebuilds(cluster, ADAPTERS, ""),
        )
        left = (await cluster.list(Pod)).items

    assert [(pod.metadata.name, pod.status.phase, pod.metadata.finalizers) for pod in left] == [
        ("kept", "Failed", ["example.com/mine"])
    ]


async def test_a_claim_stands_although_the_check_on_the_spare_cannot_be_ended() -> None:
    clock = ManualClock()
    with WithoutChecks.open(None, clock=clock, new_uid=counting_uids()) as cluster:
        recovery = await cluster.create(a_recovery())
        spare = await cluster.create(a_node("spare", spare=True))
        view = GangView(root=a_root(), nodes={"spare": spare}, checks={"spare": (("check-spare-1-0", "uid-7"),)})

        claimed = await perform(
            cluster,
            ClaimSpare("spare", "bad"),
            recovery=recovery,
            view=view,
            adapter=ADAPTERS["Job"],
            rebuilds=Rebuilds(cluster, ADAPTERS, ""),
        )

        assert claimed is not None
        assert ANNOTATION_CLAIM in claimed.metadata.annotations
        assert cluster.asked == ["check-spare-1-0"]


class WithoutChecks(EmbeddedCluster):
    """A cluster in which the controller may not delete pods."""

    asked: list[str]

    async def delete(self, kind: type[T], name: str, namespace: str = "", **options: Any) -> None:
        """As an API server without that right."""
        self.asked = [name]
        raise Forbidden(f"{kind.__name__} {namespace}/{name} may not be deleted")
