"""Plain pods as gangs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict, NotFound
from healthd.core.api import Pod, PodGang, PodManifest
from healthd.core.recovery.gang import ClaimMount, Root, RootOutcome
from healthd.core.recovery.members import attempt_of, index_of
from healthd.gangs.podgang import MOST_ASKED, PodGangAdapter
from tests.agent.request_log import CountingCluster
from tests.builders import a_job, a_pod
from tests.gangs.builders import A_STEP, a_hint, an_empty_cluster, mounting, pod_gang
from tests.gangs.roots import roots_of

ADAPTER = PodGangAdapter()
ENABLED = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "file:///data"}


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


async def make(
    cluster: EmbeddedCluster, *names: str, annotations: Mapping[str, str] | None = None, node: str = "node-a"
) -> None:
    """Somebody makes pods of the gang `train`; they are given a node and run."""
    for name in names:
        await cluster.create(a_pod(name, gang="train", node=node, annotations=annotations or ENABLED))
        await says(cluster, name, "Running")


async def says(cluster: EmbeddedCluster, name: str, phase: str) -> None:
    """The kubelet says what became of a pod."""
    await cluster.patch(Pod, name, {"status": {"phase": phase}}, namespace="default", subresource="status")


async def pods(cluster: EmbeddedCluster) -> dict[str, Pod]:
    """All pods, by name."""
    return {pod.metadata.name: pod for pod in (await cluster.list(Pod)).items}


async def the_kubelet_ends_what_is_deleted(cluster: EmbeddedCluster) -> None:
    """Nothing is left of deleted pods."""
    for name, pod in (await pods(cluster)).items():
        if pod.metadata.deletion_timestamp is not None:
            await cluster.delete(Pod, name, namespace="default", grace_seconds=0)


async def discover(cluster: EmbeddedCluster) -> Root:
    """The gang, as it is seen for the first time."""
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))
    return await found(cluster)


async def found(cluster: EmbeddedCluster) -> Root:
    """The root as it stands."""
    return await pod_gang(cluster, ADAPTER)


async def tend(cluster: EmbeddedCluster, root: Root | None = None) -> None:
    """What a controller does at every look."""
    await ADAPTER.maintain(cluster, root or await found(cluster), list((await pods(cluster)).values()))


async def stop(cluster: EmbeddedCluster) -> Root:
    """Stop the gang and see its pods go."""
    await ADAPTER.stop(cluster, await found(cluster), "train-1")
    await the_kubelet_ends_what_is_deleted(cluster)
    return await found(cluster)


async def test_pods_that_no_one_asked_restarts_for_are_no_gang(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", annotations={"healthd.dev/restart": "no"})
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))

    assert await roots_of(ADAPTER, cluster) == []


async def test_the_gang_is_what_was_there_with_the_options_of_its_pods(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", "rank-1")

    root = await discover(cluster)

    assert (root.ref.name, root.world, root.seats) == ("train", 2, ("rank-0", "rank-1"))
    assert (root.options.restart, root.options.checkpoint, root.suspended) == (True, "file:///data", False)


async def test_where_its_pods_see_a_claim_is_remembered_with_them(cluster: EmbeddedCluster) -> None:
    pod = a_pod("rank-0", gang="train", annotations={**ENABLED, "healthd.dev/checkpoint": "pvc://runs/train"})
    await cluster.create(replace_struct(pod, spec=mounting(pod.spec, claim="runs", path="/runs")))

    root = await discover(cluster)

    assert root.mounts == (ClaimMount(claim="runs", path="/runs"),)


async def test_two_controllers_that_see_the_same_pods_remember_one_gang(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0")
    first = await discover(cluster)

    assert (await discover(cluster)).ref == first.ref


def test_a_pod_is_identified_by_its_name_and_claimed_by_its_label() -> None:
    pod = a_pod("rank-0", gang="train")

    assert (index_of(pod), ADAPTER.root_name(pod)) == ("rank-0", "train")


def test_a_pod_that_a_controller_makes_again_is_not_claimed() -> None:
    assert ADAPTER.root_name(a_pod("train-0", gang="train", owner=a_job(uid="uid-1"))) is None


async def test_a_member_that_comes_later_is_remembered_too(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0")
    await discover(cluster)
    await make(cluster, "rank-1")

    await tend(cluster)

    assert (await found(cluster)).seats == ("rank-0", "rank-1")


async def test_its_memory_goes_when_its_user_deletes_all_pods(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", "rank-1")
    await discover(cluster)
    for name in ("rank-0", "rank-1"):
        await cluster.delete(Pod, name, namespace="default", grace_seconds=0)

    with pytest.raises(NotFound):
        await cluster.get(PodGang, "train", "default")


async def test_stopping_deletes_the_pods_and_keeps_the_memory(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", "rank-1")
    await discover(cluster)

    root = await stop(cluster)

    assert await pods(cluster) == {}
    assert (root.suspended, root.stopped, root.stopped_by, root.deleting) == (True, True, "train-1", False)


async def test_a_stop_that_was_cut_off_is_finished_at_the_next_reconcile(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", "rank-1")
    await discover(cluster)
    mark = {"metadata": {"annotations": {"healthd.dev/stopped-by": "train-1"}, "ownerReferences": None}}
    await cluster.patch(PodGang, "train", mark, namespace="default")

    await tend(cluster)

    assert all(pod.metadata.deletion_timestamp for pod in (await pods(cluster)).values())


async def test_starting_makes_every_pod_again_with_its_hint(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", "rank-1")
    await discover(cluster)
    stopped = await stop(cluster)

    await ADAPTER.start(cluster, stopped, a_hint(checkpoint=A_STEP))

    made, root = await pods(cluster), await found(cluster)
    assert (set(made), root.attempt, root.suspended) == ({"rank-0", "rank-1"}, 3, False)
    assert all(pod.metadata.annotations["healthd.dev/resume-from"] == "/data/step_7" for pod in made.values())
    assert all(not pod.spec.node_name and not pod.spec.scheduling_gates for pod in made.values())
    assert set(root.companions.values()) == {pod.metadata.uid for pod in made.values()}


class Mortal:
    """A cluster whose caller dies before its n-th write."""

    def __init__(self, cluster: EmbeddedCluster, writes: int) -> None:
        self._cluster = cluster
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        """The verbs; those that write are counted."""
        verb = getattr(self._cluster, name)
        if name not in ("create", "patch", "delete"):
            return verb

        async def counted(*args: Any, **kwargs: Any) -> Any:
            if not self._left:
                raise InterruptedError
            self._left -= 1
            return await verb(*args, **kwargs)

        return counted


@pytest.mark.parametrize("writes", range(7))
async def test_a_start_that_was_cut_off_anywhere_is_finished_with_no_pod_twice(
    cluster: EmbeddedCluster, writes: int
) -> None:
    await make(cluster, "rank-0", "rank-1", "rank-2")
    await discover(cluster)
    stopped = await stop(cluster)
    with pytest.raises(InterruptedError):
        await ADAPTER.start(Mortal(cluster, writes), stopped, a_hint())
    before = {pod.metadata.uid for pod in (await pods(cluster)).values()}

    root = await found(cluster)
    if root.attempt != 3:
        await ADAPTER.start(cluster, root, a_hint())
    await tend(cluster)

    made = await pods(cluster)
    assert set(made) == {"rank-0", "rank-1", "rank-2"}
    assert before <= {pod.metadata.uid for pod in made.values()}
    assert not any(pod.spec.scheduling_gates for pod in made.values())
    assert (await found(cluster)).attempt == 3


async def test_nothing_is_started_beside_a_pod_of_another_attempt(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0")
    await discover(cluster)
    stopped = await stop(cluster)
    await make(cluster, "rank-9")

    with pytest.raises(Conflict, match="rank-9 of attempt 0 is still there"):
        await ADAPTER.start(cluster, stopped, a_hint())


async def test_what_a_deposed_controller_makes_never_runs_and_makes_room_for_the_next(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0")
    await discover(cluster)
    stopped = await stop(cluster)
    await cluster.patch(PodGang, "train", {"metadata": {"annotations": {"a": "b"}}}, namespace="default")
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, stopped, a_hint())

    late = (await pods(cluster))["rank-0"]
    assert [gate.name for gate in late.spec.scheduling_gates] == ["healthd.dev/gang"]
    await ADAPTER.start(cluster, await found(cluster), replace(a_hint(), recovery="train-4"))
    assert (await pods(cluster))["rank-0"].metadata.uid != late.metadata.uid


async def test_a_name_that_somebody_else_took_is_not_taken_for_ours(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0")
    await discover(cluster)
    stopped = await stop(cluster)
    await cluster.create(a_pod("rank-0", annotations={"healthd.dev/attempt": "3"}))

    with pytest.raises(Conflict, match="pod rank-0 cannot be made: another pod is called so"):
        await ADAPTER.start(cluster, stopped, a_hint())


async def test_the_next_restart_makes_pods_as_their_user_wrote_them(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0")
    await discover(cluster)
    for _ in range(2):
        await ADAPTER.start(cluster, await stop(cluster), a_hint(checkpoint=A_STEP))
        await tend(cluster)

    made = await cluster.get(PodManifest, "rank-0", "default")
    assert len(made.spec["containers"][0]["env"]) == 3
    assert len(made.spec["tolerations"]) == 1


async def test_a_member_that_its_user_makes_anew_belongs_to_the_present_attempt(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", "rank-1")
    await discover(cluster)
    await ADAPTER.start(cluster, await stop(cluster), a_hint())
    await cluster.delete(Pod, "rank-1", namespace="default", grace_seconds=0)
    await make(cluster, "rank-1")

    await tend(cluster)

    assert attempt_of((await pods(cluster))["rank-1"]) == 3


async def test_a_gang_whose_pods_all_succeeded_is_complete(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0", "rank-1")
    await discover(cluster)
    await says(cluster, "rank-0", "Succeeded")
    half = (await found(cluster)).ending
    await says(cluster, "rank-1", "Succeeded")

    assert (half, (await found(cluster)).ending) == (RootOutcome.NOT_ENDED, RootOutcome.COMPLETE)


BY_OWNER = {**ENABLED, "healthd.dev/recreate": "owner"}


async def test_pods_that_their_owner_makes_again_are_only_deleted_and_awaited(cluster: EmbeddedCluster) -> None:
    await make(cluster, "try1-0", "try1-1", annotations=BY_OWNER)
    await discover(cluster)

    await ADAPTER.start(cluster, await stop(cluster), a_hint(checkpoint=A_STEP))

    gang, root = await cluster.get(PodGang, "train", "default"), await found(cluster)
    assert await pods(cluster) == {}
    assert (root.attempt, root.world, root.deleting) == (3, 2, False)
    assert gang.metadata.annotations["healthd.dev/resume-from"] == "/data/step_7"


async def test_pods_that_their_owner_made_again_are_of_the_present_attempt(cluster: EmbeddedCluster) -> None:
    await make(cluster, "try1-0", "try1-1", annotations=BY_OWNER)
    await discover(cluster)
    await ADAPTER.start(cluster, await stop(cluster), a_hint())
    await make(cluster, "try2-0", "try2-1", annotations=BY_OWNER)

    await tend(cluster)

    root = await found(cluster)
    assert {attempt_of(pod) for pod in (await pods(cluster)).values()} == {3}
    assert (root.world, set(root.companions)) == (2, {"try2-0", "try2-1"})


async def test_pods_that_their_owner_makes_too_early_go_again(cluster: EmbeddedCluster) -> None:
    await make(cluster, "try1-0", annotations=BY_OWNER)
    await discover(cluster)
    await stop(cluster)
    await make(cluster, "try2-0", annotations=BY_OWNER)

    await tend(cluster)

    assert (await pods(cluster))["try2-0"].metadata.deletion_timestamp is not None


async def test_a_stale_view_of_a_stopped_gang_deletes_nothing_of_one_that_was_started(cluster: EmbeddedCluster) -> None:
    await make(cluster, "try1-0", annotations=BY_OWNER)
    await discover(cluster)
    stale = await stop(cluster)
    await ADAPTER.start(cluster, stale, a_hint())
    await make(cluster, "try2-0", annotations=BY_OWNER)

    await tend(cluster, stale)

    assert (await pods(cluster))["try2-0"].metadata.deletion_timestamp is None


async def test_one_member_that_is_gone_is_missed_and_all_of_them_are_their_users_doing(
    cluster: EmbeddedCluster,
) -> None:
    await make(cluster, "rank-0", "rank-1")
    root = await discover(cluster)
    await cluster.delete(Pod, "rank-1", namespace="default", grace_seconds=0)
    one = await found(cluster)
    await cluster.patch(PodGang, "train", {"metadata": {"ownerReferences": None}}, namespace="default")
    await cluster.delete(Pod, "rank-0", namespace="default", grace_seconds=0)

    assert (root.gone, root.deleting) == ((), False)
    assert (one.gone, one.deleting) == (("rank-1",), False)
    assert (await found(cluster)).deleting


@pytest.mark.parametrize("is_the_member", [True, False], ids=["the member without its label", "another pod"])
async def test_a_gang_is_not_stopped_while_a_pod_that_is_no_member_has_the_name_of_one(
    cluster: EmbeddedCluster, is_the_member: bool
) -> None:
    await make(cluster, "rank-0", "rank-1")
    await discover(cluster)
    if is_the_member:
        await cluster.patch(Pod, "rank-1", {"metadata": {"labels": {"healthd.dev/gang": None}}}, namespace="default")
    else:
        await cluster.delete(Pod, "rank-1", namespace="default", grace_seconds=0)
        await cluster.create(a_pod("rank-1"))
    taken = await found(cluster)
    await cluster.patch(Pod, "rank-1", {"metadata": {"labels": {"healthd.dev/gang": "train"}}}, namespace="default")

    assert ["label it so, or delete it" in why for why in taken.invalid] == [True]
    assert (await found(cluster)).invalid == ()


async def test_a_large_gang_that_is_being_deleted_costs_no_request_for_each_of_its_pods(
    cluster: EmbeddedCluster,
) -> None:
    names = [f"rank-{number}" for number in range(40)]
    await make(cluster, *names)
    await discover(cluster)
    for name in names[1:]:
        await cluster.delete(Pod, name, namespace="default", grace_seconds=0)
    counting: Any = CountingCluster(cluster)

    await ADAPTER.complete(counting, await found(cluster))

    assert counting.requests.count("get Pod") == MOST_ASKED
