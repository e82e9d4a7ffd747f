"""StatefulSets as gangs, with a launcher and without."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict
from healthd.core.api import LABEL_GANG, GangRef, Job, ObjectMeta, OwnerReference, StatefulSet, StatefulSetStatus
from healthd.core.recovery.gang import ClaimMount, Root, RootOutcome
from healthd.core.recovery.members import index_of
from healthd.gangs.job import JobAdapter
from healthd.gangs.statefulset import StatefulSetAdapter
from tests.builders import a_job, a_pod
from tests.gangs.builders import A_STEP, a_hint, a_statefulset, an_empty_cluster, mounting

ADAPTER = StatefulSetAdapter()
LAUNCHER = {"healthd.dev/launcher": "mpirun"}
ELASTIC = {"healthd.dev/restart": "enabled", "healthd.dev/min-nodes": "1"}


def read(stateful: StatefulSet) -> Root:
    """The root of a StatefulSet that is one."""
    root = ADAPTER.read(stateful)
    assert root is not None
    return root


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


async def stored(cluster: EmbeddedCluster, **fields: Any) -> Root:
    """The root of a StatefulSet that is in the cluster."""
    made = await cluster.create(a_statefulset(**fields))
    return await found(cluster, read(made).ref)


async def found(cluster: EmbeddedCluster, ref: GangRef) -> Root:
    """The root as it stands."""
    root = await ADAPTER.find(cluster, ref)
    assert root is not None
    return root


async def stateful_set(cluster: EmbeddedCluster) -> StatefulSet:
    """The object as it stands."""
    return await cluster.get(StatefulSet, "train", "default")


async def launcher(cluster: EmbeddedCluster) -> Job:
    """The launcher as it stands."""
    return await cluster.get(Job, "mpirun", "default")


async def status(cluster: EmbeddedCluster, *, pods: int) -> None:
    """The StatefulSet controller has seen everything, and there are so many pods."""
    generation = (await stateful_set(cluster)).metadata.generation
    seen = {"observedGeneration": generation, "replicas": pods, "readyReplicas": pods}
    await cluster.patch(StatefulSet, "train", {"status": seen}, namespace="default", subresource="status")


async def suspended_says_the_job_controller(cluster: EmbeddedCluster) -> None:
    """The launcher's own controller has ended its pods."""
    seen = {"conditions": [{"type": "Suspended", "status": "True"}]}
    await cluster.patch(Job, "mpirun", {"status": seen}, namespace="default", subresource="status")


@pytest.mark.parametrize(
    ("replicas", "seen", "stopped"),
    [
        pytest.param(0, StatefulSetStatus(observed_generation=5), True, id="its controller says so"),
        pytest.param(0, StatefulSetStatus(observed_generation=5, replicas=1), False, id="a pod is left"),
        pytest.param(0, StatefulSetStatus(observed_generation=4), False, id="its controller has not noticed yet"),
        pytest.param(2, StatefulSetStatus(observed_generation=5), False, id="it is to run"),
    ],
)
def test_it_has_stopped_when_its_controller_has_seen_the_zero_and_no_pod_is_left(
    replicas: int, seen: StatefulSetStatus, stopped: bool
) -> None:
    assert read(a_statefulset(replicas=replicas, status=seen, generation=5)).stopped is stopped


def test_a_member_is_identified_by_its_ordinal() -> None:
    assert index_of(a_pod(labels={"apps.kubernetes.io/pod-index": "3"})) == "3"


def test_it_is_never_stopped_where_that_deletes_the_volumes_of_its_pods() -> None:
    assert not read(a_statefulset(when_scaled="Delete")).options.restart


async def test_stopping_scales_to_zero_and_remembers_the_replicas_in_one_write(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster, replicas=3)

    await ADAPTER.stop(cluster, root, "train-1")

    stopped = await found(cluster, root.ref)
    assert (await stateful_set(cluster)).spec.replicas == 0
    assert (stopped.suspended, stopped.stopped_by, stopped.world) == (True, "train-1", 3)
    assert int(stopped.resource_version) == int(root.resource_version) + 1


async def test_starting_brings_back_as_many_replicas_with_the_hint_in_one_write(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster, replicas=3)
    await ADAPTER.stop(cluster, root, "train-3")
    stopped = await found(cluster, root.ref)

    await ADAPTER.start(cluster, stopped, a_hint(checkpoint=A_STEP))

    started, stateful = await found(cluster, root.ref), await stateful_set(cluster)
    assert int(started.resource_version) == int(stopped.resource_version) + 1
    assert (stateful.spec.replicas, started.attempt, started.stopped_by) == (3, 3, "")
    assert stateful.spec.template.metadata.annotations["healthd.dev/resume-from"] == "/data/step_7"
    assert stateful.spec.template.metadata.labels["healthd.dev/restarted"] == stateful.metadata.uid
    assert "healthd.dev/replicas" not in stateful.metadata.annotations


async def test_a_shorter_placement_shrinks_it(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster, replicas=3, annotations=ELASTIC)
    await ADAPTER.stop(cluster, root, "train-3")

    await ADAPTER.start(cluster, await found(cluster, root.ref), a_hint({"0": "a", "1": "b"}))

    assert (await found(cluster, root.ref)).world == 2


async def test_a_longer_placement_grows_it(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster, replicas=2, annotations=ELASTIC)
    await ADAPTER.stop(cluster, root, "train-3")

    await ADAPTER.start(cluster, await found(cluster, root.ref), a_hint({"0": "a", "1": "b", "2": "c", "+0": "d"}))

    assert (await found(cluster, root.ref)).world == 3


async def test_a_user_who_scales_it_while_it_is_stopped_is_seen(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster, replicas=3)
    await ADAPTER.stop(cluster, root, "train-1")
    await cluster.patch(StatefulSet, "train", {"spec": {"replicas": 2}}, namespace="default")

    scaled = await found(cluster, root.ref)
    assert (scaled.suspended, scaled.edited_since_stop, scaled.world) == (False, True, 2)


async def test_one_that_its_user_scaled_to_zero_was_not_stopped_by_healthd(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster, replicas=0)

    assert (root.suspended, root.stopped_by) == (True, "")


async def with_launcher(cluster: EmbeddedCluster, **job: Any) -> Root:
    """A gang of three workers and a launcher of one pod."""
    await cluster.create(a_launcher(**job))
    return await stored(cluster, replicas=3, annotations=LAUNCHER)


def a_launcher(*, gang: str = "train", **job: Any) -> Job:
    """A launcher of one pod, which carries the label of *gang*."""
    made = a_job("mpirun", ranks=1, **job)
    template = replace(made.spec.template, metadata=ObjectMeta(labels={LABEL_GANG: gang}))
    return replace(made, spec=replace(made.spec, template=template))


async def test_the_launcher_is_a_member_but_has_no_place_of_its_own(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)

    assert (root.world, root.seats) == (4, ("0", "1", "2"))


async def test_a_claim_that_only_the_launcher_mounts_is_known(cluster: EmbeddedCluster) -> None:
    job = a_launcher()
    template = replace(job.spec.template, spec=mounting(job.spec.template.spec, claim="runs", path="/runs"))
    await cluster.create(replace(job, spec=replace(job.spec, template=template)))

    root = await stored(cluster, annotations=LAUNCHER)

    assert root.mounts == (ClaimMount(claim="runs", path="/runs"),)


@pytest.mark.parametrize("gang", ["other", ""])
async def test_a_job_whose_pods_are_no_members_is_no_launcher(cluster: EmbeddedCluster, gang: str) -> None:
    await cluster.create(a_launcher(gang=gang))

    root = await stored(cluster, replicas=3, annotations=LAUNCHER)

    why = "job/mpirun: its pod template has no label healthd.dev/gang: train, so it is no launcher of this gang"
    assert root.invalid == (why,)


def test_a_pod_of_the_launcher_belongs_to_the_workers_by_its_label() -> None:
    owner = OwnerReference(kind="Job", name="mpirun", uid="uid-1", controller=True)
    pod = a_pod(gang="train", owner_references=[owner])

    assert (ADAPTER.root_name(pod), ADAPTER.root_uid(pod)) == ("train", "")


def test_a_pod_that_belongs_to_no_one_is_not_claimed() -> None:
    assert ADAPTER.root_name(a_pod(gang="train")) is None


async def test_stopping_suspends_the_launcher_too(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)

    await ADAPTER.stop(cluster, root, "train-1")

    assert (await launcher(cluster)).spec.suspend
    assert (await stateful_set(cluster)).spec.replicas == 0


async def test_a_stop_that_was_cut_off_after_the_launcher_is_done_again(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)
    await ADAPTER.stop(cluster, root, "train-1")
    before = {"metadata": {"annotations": {"healthd.dev/stopped-by": None}}, "spec": {"replicas": 3}}
    await cluster.patch(StatefulSet, "train", before, namespace="default")

    half = await found(cluster, root.ref)
    assert not half.suspended
    await ADAPTER.stop(cluster, half, "train-1")
    assert (await stateful_set(cluster)).spec.replicas == 0


async def test_a_launcher_that_its_user_suspended_is_a_gang_that_its_user_suspended(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster, suspend=True)

    assert (root.suspended, root.stopped_by) == (True, "")


async def test_a_gang_is_stopped_when_its_launcher_is(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)
    await ADAPTER.stop(cluster, root, "train-1")
    await status(cluster, pods=0)

    assert not (await found(cluster, root.ref)).stopped
    await suspended_says_the_job_controller(cluster)
    assert (await found(cluster, root.ref)).stopped


async def test_the_launcher_goes_on_when_every_worker_is_ready(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)
    await ADAPTER.stop(cluster, root, "train-3")
    await status(cluster, pods=0)
    await suspended_says_the_job_controller(cluster)
    await ADAPTER.start(cluster, await found(cluster, root.ref), a_hint(checkpoint=A_STEP))
    await status(cluster, pods=2)

    await ADAPTER.maintain(cluster, await found(cluster, root.ref), ())
    assert (await launcher(cluster)).spec.suspend

    await status(cluster, pods=3)
    await ADAPTER.maintain(cluster, await found(cluster, root.ref), ())
    job = await launcher(cluster)
    assert not job.spec.suspend
    assert job.spec.template.metadata.annotations["healthd.dev/resume-from"] == "/data/step_7"
    assert job.spec.template.metadata.annotations["healthd.dev/attempt"] == "3"
    assert job.spec.template.metadata.labels["healthd.dev/restarted"] == root.ref.uid


async def test_the_launcher_does_not_go_on_beside_workers_that_are_yet_to_be_stopped(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)
    await ADAPTER.stop(cluster, root, "train-1")
    cut_off = {"metadata": {"annotations": {"healthd.dev/stopped-by": None}}, "spec": {"replicas": 3}}
    await cluster.patch(StatefulSet, "train", cut_off, namespace="default")
    await status(cluster, pods=3)
    await suspended_says_the_job_controller(cluster)

    await ADAPTER.maintain(cluster, await found(cluster, root.ref), ())

    assert (await launcher(cluster)).spec.suspend


async def test_the_launcher_goes_on_with_workers_that_their_user_set_going_again(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)
    await ADAPTER.stop(cluster, root, "train-1")
    await cluster.patch(StatefulSet, "train", {"spec": {"replicas": 3}}, namespace="default")
    await status(cluster, pods=3)
    await suspended_says_the_job_controller(cluster)

    await ADAPTER.maintain(cluster, await found(cluster, root.ref), ())

    assert not (await launcher(cluster)).spec.suspend


async def test_a_launcher_that_its_user_suspends_is_left_alone(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)
    await status(cluster, pods=3)
    await cluster.patch(Job, "mpirun", {"spec": {"suspend": True}}, namespace="default")

    await ADAPTER.maintain(cluster, root, ())

    assert (await launcher(cluster)).spec.suspend


@pytest.mark.parametrize(("condition", "ending"), [("Complete", RootOutcome.COMPLETE), ("Failed", RootOutcome.FAILED)])
async def test_a_gang_ends_as_its_launcher_does(cluster: EmbeddedCluster, condition: str, ending: RootOutcome) -> None:
    root = await with_launcher(cluster)
    seen = {"conditions": [{"type": condition, "status": "True"}]}
    await cluster.patch(Job, "mpirun", {"status": seen}, namespace="default", subresource="status")

    assert (await found(cluster, root.ref)).ending is ending


async def test_a_launcher_that_healthd_stopped_is_no_gang_of_its_own(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster, annotations={"healthd.dev/restart": "enabled"})
    await ADAPTER.stop(cluster, root, "train-1")

    assert JobAdapter().read(await launcher(cluster)) is None


async def test_a_late_stop_never_touches_a_launcher_that_has_changed_since(cluster: EmbeddedCluster) -> None:
    root = await with_launcher(cluster)
    await cluster.patch(Job, "mpirun", {"metadata": {"labels": {"a": "b"}}}, namespace="default")

    with pytest.raises(Conflict):
        await ADAPTER.stop(cluster, root, "train-1")
    assert not (await launcher(cluster)).spec.suspend


async def test_an_act_upon_a_statefulset_that_has_changed_since_is_refused(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster)
    await cluster.patch(StatefulSet, "train", {"metadata": {"labels": {"a": "b"}}}, namespace="default")

    with pytest.raises(Conflict):
        await ADAPTER.stop(cluster, root, "train-1")
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint())
