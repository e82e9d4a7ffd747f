"""What is read again before something is done, and what must not be believed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Labels
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.controller.fresh_reads import FreshRead, FreshReader, hinges, one_by_one
from healthd.controller.rebuilds import Rebuilds
from healthd.controller.workqueue import in_parallel
from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_RESTART,
    ANNOTATION_STOPPED_BY,
    LABEL_GANG,
    FencedPod,
    GangRef,
    Job,
    Node,
    NodeHealth,
    Pod,
    PodGang,
    Recovery,
    RecoveryStatus,
)
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.api.model import CauseKind, Phase
from healthd.core.recovery.phases.stopping import OVERDUE
from healthd.gangs import ADAPTERS
from tests.builders import a_cause, a_job, a_node, a_nodehealth, a_pod, a_recovery
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START, ManualClock, counting_uids

PODS = [FencedPod(name=f"train-{rank}", uid=f"uid-{rank}", node=f"node-{rank}", index=str(rank)) for rank in range(2)]


class Counted:
    """A cluster that counts who asks for what."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self.asked: list[str] = []
        self.selected: list[Labels | None] = []

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)

        async def call(kind: Any, *args: Any, **options: Any) -> Any:
            self.asked.append(f"{name} {kind.__name__}")
            self.selected += [options.get("labels")] if (name, kind) == ("list", Pod) else []
            return await verb(kind, *args, **options)

        return call


class NoticedGang:
    """A gang of two on their nodes, as it was noticed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids())
        self.cluster_state = ClusterState(ADAPTERS)

    async def set_up(self, phase: Phase, **status: Any) -> Recovery:
        """The recovery of the gang, in *phase*."""
        for rank in range(2):
            await self.cluster.create(a_node(f"node-{rank}"))
            await self._boot(f"node-{rank}", "boot-1")
        self.job = await self.cluster.create(a_job("train", annotations={ANNOTATION_RESTART: "enabled"}))
        for rank in range(2):
            labels = {"batch.kubernetes.io/job-name": "train"}
            await self.cluster.create(a_pod(f"train-{rank}", node=f"node-{rank}", owner=self.job, labels=labels))
        recovery = await self.cluster.create(a_recovery(gang=self.job, labels={"healthd.dev/gang": "train"}))
        known = RecoveryStatus(phase=phase, **status)
        patch = {"status": msgspec.to_builtins(known)}
        recovery = await self.cluster.patch(
            Recovery, recovery.metadata.name, patch, namespace="default", subresource="status"
        )
        await read_everything(self.cluster, self.cluster_state, ADAPTERS)
        return recovery

    async def _boot(self, node: str, boot_id: str) -> None:
        patch = {"status": {"nodeInfo": {"bootID": boot_id}}}
        await self.cluster.patch(Node, node, patch, subresource="status")

    async def reboot(self, node: str) -> None:
        """What is not noticed yet."""
        await self._boot(node, "boot-2")

    async def stop_job(self) -> None:
        """The Job's controller says that it makes no more pods."""
        condition = {"type": "Suspended", "status": "True"}
        await self.cluster.patch(Job, "train", {"spec": {"suspend": True}}, namespace="default")
        patch = {"status": {"conditions": [condition]}}
        await self.cluster.patch(Job, "train", patch, namespace="default", subresource="status")

    async def end_pods(self, *names: str) -> None:
        """They ended, which the cache has seen."""
        for name in names:
            ended = {"status": {"phase": "Failed"}}
            await self.cluster.patch(Pod, name, ended, namespace="default", subresource="status")
        await read_everything(self.cluster, self.cluster_state, ADAPTERS)

    async def snapshot(self, recovery: Recovery, cluster: Any = None, blamed: Sequence[str] = ()) -> FreshRead:
        faults = [a_cause(node=node) for node in blamed]
        through = cluster or self.cluster
        rebuilds = Rebuilds(through, ADAPTERS, "")
        fresh_reader = FreshReader(through, self.cluster_state, ADAPTERS, one_by_one, lambda view: faults, rebuilds)
        return await fresh_reader.at_recovery(recovery, self.clock.now())


@pytest.fixture
def scenario() -> NoticedGang:
    return NoticedGang()


def boot(snapshot: FreshRead, node: str) -> str:
    return snapshot.view.nodes[node].status.node_info.boot_id


async def test_what_the_agents_of_a_gang_that_hangs_report_is_read_again_before_it_is_restarted(
    scenario: NoticedGang,
) -> None:
    await scenario.set_up(Phase.DETECTED)
    pod = await scenario.cluster.get(Pod, "train-1", "default")
    rhythm = PodRhythm(uid=pod.metadata.uid, state=MemberState.SILENT, since=START)
    await scenario.cluster.create(a_nodehealth("node-1"))
    silent = {"status": {"rhythms": [msgspec.to_builtins(rhythm)], "bootId": "boot-1"}}
    works: dict[str, Any] = {"status": {"rhythms": []}}
    patched = await scenario.cluster.patch(NodeHealth, "node-1", silent, subresource="status")
    scenario.cluster_state.upsert(patched)
    await scenario.cluster.patch(NodeHealth, "node-1", works, subresource="status")
    hangs = a_cause(CauseKind.HANG)
    rebuilds = Rebuilds(scenario.cluster, ADAPTERS, "")
    reader = FreshReader(scenario.cluster, scenario.cluster_state, ADAPTERS, one_by_one, lambda _: [hangs], rebuilds)
    view = await reader.at_fault(GangRef(kind="Job", name="train", namespace="default", uid=scenario.job.metadata.uid))

    assert view.health["node-1"].status.rhythms == []
    assert view.nodes["node-1"].status.node_info.boot_id == view.health["node-1"].status.boot_id == "boot-1"


async def test_the_boot_of_a_node_is_what_it_is_now_where_the_fence_asks_for_it(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.FENCING, pods=PODS)
    await scenario.reboot("node-1")

    assert boot(await scenario.snapshot(recovery), "node-1") == "boot-2"


async def test_a_node_that_a_fault_is_put_down_to_is_read_again_in_every_phase(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.CONFIRMING)
    await scenario.cluster.patch(Node, "node-1", {"spec": {"unschedulable": True}})

    snapshot = await scenario.snapshot(recovery, blamed=["node-1"])

    assert snapshot.view.nodes["node-1"].spec.unschedulable


async def test_where_no_one_asks_for_it_no_boot_is_known_rather_than_an_old_one(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.CHOOSING)

    assert boot(await scenario.snapshot(recovery), "node-1") == ""


async def test_a_node_that_seems_to_have_booted_is_read_while_the_gang_is_stopped(scenario: NoticedGang) -> None:
    known = [msgspec.structs.replace(pod, boot_id="boot-1") for pod in PODS]
    recovery = await scenario.set_up(Phase.STOPPING, pods=known)
    await scenario.reboot("node-1")
    unnoticed = await scenario.snapshot(recovery)
    await read_everything(scenario.cluster, scenario.cluster_state, ADAPTERS)

    snapshot = await scenario.snapshot(recovery)

    assert boot(unnoticed, "node-1") == ""
    assert (boot(snapshot, "node-0"), boot(snapshot, "node-1")) == ("", "boot-2")


async def test_a_pod_that_no_one_noticed_is_seen_before_the_stop_is_called_complete(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.STOPPING)
    await scenario.end_pods("train-0", "train-1")
    labels = {"batch.kubernetes.io/job-name": "train"}
    await scenario.cluster.create(a_pod("train-late", node="node-0", owner=scenario.job, labels=labels))
    await scenario.stop_job()

    snapshot = await scenario.snapshot(recovery)

    assert [pod.metadata.name for pod in snapshot.view.pods] == ["train-0", "train-1", "train-late"]


async def test_the_pods_of_a_gang_are_not_listed_while_one_is_known_whose_end_is_still_to_be_reported(
    scenario: NoticedGang,
) -> None:
    recovery = await scenario.set_up(Phase.STOPPING)
    await scenario.stop_job()
    await scenario.end_pods("train-0")
    counted = Counted(scenario.cluster)

    assert not (await scenario.snapshot(recovery, counted)).view.is_listed
    assert "list Pod" not in counted.asked

    await scenario.end_pods("train-1")
    assert (await scenario.snapshot(recovery, counted)).view.is_listed


async def test_a_pod_of_which_no_report_will_come_does_not_keep_the_stop_from_being_called_complete(
    scenario: NoticedGang,
) -> None:
    recovery = await scenario.set_up(Phase.STOPPING)
    await scenario.stop_job()
    await scenario.end_pods("train-0")
    await scenario.cluster.delete(Pod, "train-1", namespace="default", grace_seconds=30)
    await read_everything(scenario.cluster, scenario.cluster_state, ADAPTERS)
    before = await scenario.snapshot(recovery)
    scenario.clock.advance(timedelta(seconds=30) + OVERDUE)

    assert (before.view.is_listed, (await scenario.snapshot(recovery)).view.is_listed) == (False, True)


async def test_a_pod_that_is_proven_to_have_ended_is_not_waited_for(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.STOPPING)
    await scenario.stop_job()
    proof = "its node was rebooted"
    pods = [
        FencedPod(name=p.metadata.name, uid=p.metadata.uid, node=p.spec.node_name, proof=proof)
        for p in (await scenario.cluster.list(Pod)).items
    ]
    await scenario.cluster.patch(
        Recovery,
        recovery.metadata.name,
        {"status": {"pods": msgspec.to_builtins(pods)}},
        namespace="default",
        subresource="status",
    )

    assert (await scenario.snapshot(recovery)).view.is_listed


async def test_what_became_of_members_is_read_before_a_stopped_gang_starts_again_as_the_same_attempt(
    scenario: NoticedGang,
) -> None:
    """As in seed 3650005425: the record was older than a second stop, and so was the cache."""
    recovery = await scenario.set_up(Phase.STARTING, attempt=1)
    attempt = {"metadata": {"annotations": {ANNOTATION_ATTEMPT: "1"}}}
    await scenario.cluster.patch(Job, "train", attempt, namespace="default")
    before = await scenario.snapshot(recovery)
    await scenario.stop_job()
    await scenario.cluster.patch(
        Pod, "train-0", {"status": {"phase": "Failed"}}, namespace="default", subresource="status"
    )

    again = await scenario.snapshot(recovery)

    assert (before.view.is_listed, again.view.is_listed) == (False, True)
    assert [pod.status.phase for pod in again.view.pods] == ["Failed", "Pending"]


async def test_no_pod_is_overlooked_whose_root_was_made_again_and_the_cache_has_not_seen_that(
    scenario: NoticedGang,
) -> None:
    """As in seed 3630000142: without them the fence was closed, and their finalizers were never taken off."""
    recovery = await scenario.set_up(Phase.FENCING, pods=PODS)
    former = msgspec.structs.replace(scenario.job.metadata, uid="of-the-former-job")
    scenario.cluster_state.remove(scenario.job)
    scenario.cluster_state.upsert(msgspec.structs.replace(scenario.job, metadata=former))

    snapshot = await scenario.snapshot(recovery)

    assert [pod.metadata.name for pod in snapshot.view.pods] == ["train-0", "train-1"]


async def test_a_pod_whose_termination_status_is_pending_is_waited_for(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.FENCING, pods=PODS)
    await scenario.cluster.delete(Pod, "train-0", namespace="default", grace_seconds=0)
    assert (await scenario.snapshot(recovery)).awaited == ("train-0",)

    await read_everything(scenario.cluster, scenario.cluster_state, ADAPTERS)
    snapshot = await scenario.snapshot(recovery)

    assert snapshot.awaited == ()
    assert [pod.metadata.name for pod in snapshot.view.deleted] == ["train-0"]


async def test_only_pods_with_the_name_of_the_gang_are_asked_for(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.FENCING)
    counted = Counted(scenario.cluster)

    await scenario.snapshot(recovery, counted)

    assert counted.selected == [{"batch.kubernetes.io/job-name": "train"}]


async def test_pods_of_others_are_no_members(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.FENCING)
    await scenario.cluster.create(a_pod("web"))

    assert [pod.metadata.name for pod in (await scenario.snapshot(recovery)).view.pods] == ["train-0", "train-1"]


async def test_a_recovery_that_ended_meanwhile_belongs_to_no_gang_any_more(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.FENCING)
    ended = {"status": {"phase": "Superseded"}}
    await scenario.cluster.patch(Recovery, recovery.metadata.name, ended, namespace="default", subresource="status")

    assert (await scenario.snapshot(recovery)).recovery is None


async def test_a_look_costs_what_the_gang_is_large_and_not_what_the_cluster_is(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.CHOOSING)
    counted = Counted(scenario.cluster)

    await scenario.snapshot(recovery, counted)

    assert counted.asked == ["get Recovery", "get Job"]


async def test_many_nodes_of_few_are_read_by_one_list(scenario: NoticedGang) -> None:
    for number in range(2, 8):
        await scenario.cluster.create(a_node(f"node-{number}"))
    recovery = await scenario.set_up(
        Phase.STARTING, attempt=1, placement={str(number): f"node-{number}" for number in range(8)}
    )
    counted = Counted(scenario.cluster)

    await scenario.snapshot(recovery, counted)

    assert counted.asked == ["get Recovery", "get Job", "list Node", "list NodeHealth"]


async def test_a_node_that_is_gone_is_not_in_the_view(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.RESERVING, replacements={"node-1": "node-0"})
    await scenario.cluster.delete(Node, "node-1")

    assert "node-1" not in (await scenario.snapshot(recovery)).view.nodes


async def test_a_plan_never_goes_back_to_what_was_known_of_a_node_before_it_was_read(scenario: NoticedGang) -> None:
    for name in ("spare-1", "spare-2", "spare-3"):
        await scenario.cluster.create(a_node(name, spare=True))
    recovery = await scenario.set_up(Phase.RESERVING, replacements={"node-1": "spare-1", "node-0": "spare-3"})
    await scenario.cluster.patch(Node, "spare-1", {"spec": {"unschedulable": True}})
    await scenario.cluster.delete(Node, "spare-3")
    await scenario.snapshot(recovery)
    changed = {"status": {"replacements": {"node-1": "spare-2", "node-0": None}}}
    another = await scenario.cluster.patch(
        Recovery, recovery.metadata.name, changed, namespace="default", subresource="status"
    )

    nodes = (await scenario.snapshot(another)).view.nodes

    assert nodes["spare-1"].spec.unschedulable
    assert "spare-3" not in nodes


def test_a_start_hinges_on_every_node_that_it_is_to_use() -> None:
    placement, replacements = {"0": "good", "1": "spare"}, {"bad": "spare"}
    recovery = a_recovery_in(Phase.STARTING, attempt=1, placement=placement, replacements=replacements)

    assert hinges(recovery, a_root(attempt=0)) == ["bad", "good", "spare"]
    assert hinges(recovery, a_root(attempt=1)) == []


def test_the_stop_itself_hinges_on_nothing_and_what_follows_on_boots_that_are_not_known() -> None:
    known = FencedPod(name="known", uid="uid", node="node-9", boot_id="boot-1")
    recovery = a_recovery_in(Phase.STOPPING, pods=[*PODS, known])

    assert hinges(recovery, a_root(suspended=False)) == []
    assert hinges(recovery, a_root(suspended=True)) == ["node-0", "node-1"]


def test_a_fault_hinges_on_the_nodes_that_are_blamed() -> None:
    recovery = a_recovery_in(Phase.DETECTED, causes=[a_cause(node="bad")])

    assert hinges(recovery, a_root()) == ["bad"]


async def test_reads_in_parallel_answer_in_order_and_fail_as_one_would() -> None:
    async def answer(number: int) -> int:
        if number == 3:
            raise OSError("the third")
        return number

    reads = [partial(answer, number) for number in range(3)]
    assert await in_parallel(2)(reads) == [0, 1, 2]

    with pytest.raises(OSError, match="the third"):
        await in_parallel(2)([*reads, partial(answer, 3)])


async def test_a_recovery_that_is_gone_leaves_the_cache_though_no_event_says_so(scenario: NoticedGang) -> None:
    recovery = await scenario.set_up(Phase.STOPPING)
    await scenario.cluster.delete(Recovery, recovery.metadata.name, namespace="default")

    read = await scenario.snapshot(recovery)

    assert read.recovery is None
    assert list(scenario.cluster_state.recoveries()) == []


async def test_a_pod_that_lost_its_label_while_its_plain_gang_was_stopped_is_named(scenario: NoticedGang) -> None:
    cluster, adapter = scenario.cluster, ADAPTERS["PodGang"]
    for name in ("rank-0", "rank-1"):
        await cluster.create(a_pod(name, gang="plain", node="node-0", annotations={ANNOTATION_RESTART: "enabled"}))
    await adapter.discover(cluster, "default", "plain", (await cluster.list(Pod)).items)
    (gang,) = (await cluster.list(PodGang)).items
    await cluster.patch(Pod, "rank-1", {"metadata": {"labels": {LABEL_GANG: None}}}, namespace="default")
    stopped = {"metadata": {"annotations": {ANNOTATION_STOPPED_BY: "plain-1"}}}
    await cluster.patch(PodGang, "plain", stopped, namespace="default")
    known = RecoveryStatus(
        phase=Phase.CHOOSING, pods=[FencedPod(name="rank-0", uid="u", node="node-0", index="rank-0")]
    )
    recovery = await cluster.create(a_recovery("plain-1", gang=gang, labels={LABEL_GANG: "plain"}))
    patch = {"status": msgspec.to_builtins(known)}
    recovery = await cluster.patch(Recovery, "plain-1", patch, namespace="default", subresource="status")
    await read_everything(cluster, scenario.cluster_state, ADAPTERS)

    root = (await scenario.snapshot(recovery)).view.root

    assert root is not None
    (why,) = root.invalid
    assert why.startswith("pod rank-1 has the name of a member and is none")
