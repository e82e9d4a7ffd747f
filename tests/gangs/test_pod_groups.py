"""Groups of plain pods in a queue of Kueue: what their Workload and pods say, how they are stopped and made again."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict, Forbidden, NotFound
from healthd.core.api import Condition, ObjectMeta, OwnerReference, Pod, PodGang, PodManifest, Workload
from healthd.core.api.kubernetes.kueue import WorkloadSpec, WorkloadStatus
from healthd.core.recovery.gang import Root
from healthd.gangs.kinds import ALL
from tests.gangs.builders import A_STEP, a_hint, an_empty_cluster, pod_gang
from tests.gangs.kueue import ADMITTED, EVICTED, STOPPED, WAITS

ADAPTER = ALL["PodGang"]
GROUP = {
    "healthd.dev/gang": "train",
    "kueue.x-k8s.io/queue-name": "lq",
    "kueue.x-k8s.io/pod-group-name": "train",
    "kueue.x-k8s.io/managed": "true",
}
NOTES = {
    "healthd.dev/restart": "enabled",
    "kueue.x-k8s.io/pod-group-total-count": "2",
    "kueue.x-k8s.io/role-hash": "5d93babe",
}
GATED = [{"name": "kueue.x-k8s.io/admission"}]
FINALIZER = "kueue.x-k8s.io/managed"
NAMES = ("rank-0", "rank-1")


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


async def make(
    cluster: EmbeddedCluster,
    *names: str,
    labels: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    gated: bool = False,
) -> None:
    """Pods of the group, as Kueue has admitted them or, *gated*, holds them."""
    for name in names or NAMES:
        meta = ObjectMeta(
            name=name,
            namespace="default",
            labels={**GROUP, **(labels or {})},
            annotations={**NOTES, **(notes or {})},
            finalizers=[FINALIZER],
        )
        spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never"}
        spec |= {"schedulingGates": GATED} if gated else {"nodeName": "node-a"}
        await cluster.create(PodManifest(metadata=meta, spec=spec))
        await says(cluster, name, {"phase": "Pending" if gated else "Running"})


async def says(cluster: EmbeddedCluster, name: str, status: Mapping[str, Any]) -> None:
    """The status of a pod is written."""
    await cluster.patch(Pod, name, {"status": status}, namespace="default", subresource="status")


async def pods(cluster: EmbeddedCluster) -> dict[str, Pod]:
    """All pods, by name."""
    return {pod.metadata.name: pod for pod in (await cluster.list(Pod)).items}


async def a_workload(
    cluster: EmbeddedCluster,
    conditions: Mapping[str, tuple[str, str, str]] = ADMITTED,
    *,
    notes: Mapping[str, str] | None = None,
    active: bool = True,
    status: Mapping[str, Any] | None = None,
    owner: Mapping[str, Any] | None = None,
) -> None:
    """What Kueue makes for all pods that are there."""
    owners = [
        OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
        for pod in (await pods(cluster)).values()
    ]
    owners = [msgspec.structs.replace(each, **(owner or {})) for each in owners]
    meta = ObjectMeta(
        name="train",
        namespace="default",
        annotations={"kueue.x-k8s.io/is-group-workload": "true", **(notes or {})},
        owner_references=owners,
    )
    await cluster.create(Workload(metadata=meta, spec=WorkloadSpec(active=active)))
    said = [Condition(type=k, status=s, reason=r, message=m) for k, (s, r, m) in conditions.items()]
    body = {**msgspec.to_builtins(WorkloadStatus(conditions=said)), **(status or {})}
    await cluster.patch(Workload, "train", {"status": body}, namespace="default", subresource="status")


async def a_group(cluster: EmbeddedCluster, **workload: Any) -> Root:
    """One that runs and that healthd knows."""
    await make(cluster)
    await a_workload(cluster, **workload)
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))
    return await found(cluster)


async def found(cluster: EmbeddedCluster) -> Root:
    """The root as it stands."""
    return await pod_gang(cluster, ADAPTER)


async def tend(cluster: EmbeddedCluster) -> None:
    """What a controller does at every look."""
    await ADAPTER.maintain(cluster, await found(cluster), list((await pods(cluster)).values()))


async def kueue_takes_in(cluster: EmbeddedCluster) -> None:
    """Pods that were made again: its webhook has written its finalizer to each, and they get a Workload."""
    for name in await pods(cluster):
        await cluster.patch(Pod, name, {"metadata": {"finalizers": [FINALIZER]}}, namespace="default")
    await a_workload(cluster)


async def kueue_ends_the_pods(cluster: EmbeddedCluster) -> None:
    """Each has been deleted and has ended, and stays for Kueue's sake."""
    for name in await pods(cluster):
        await cluster.delete(Pod, name, namespace="default", grace_seconds=0)
        await says(cluster, name, {"phase": "Failed"})


async def kueue_lets_go(cluster: EmbeddedCluster) -> None:
    """Of the pods of a Workload that was deleted."""
    with pytest.raises(NotFound):
        await cluster.get(Workload, "train", "default")
    for name in await pods(cluster):
        await cluster.patch(Pod, name, {"metadata": {"finalizers": None}}, namespace="default")


async def stopped(cluster: EmbeddedCluster) -> Root:
    """A group that healthd has stopped."""
    await ADAPTER.stop(cluster, await a_group(cluster), "train-3")
    await kueue_ends_the_pods(cluster)
    return await found(cluster)


async def test_an_admitted_group_is_guarded(cluster: EmbeddedCluster) -> None:
    root = await a_group(cluster)

    assert (root.invalid, root.suspended, root.unadmitted, root.queue) == ((), False, "", "lq")
    assert root.hint_labels == {"healthd.dev/gang": "train"}
    assert (await cluster.get(PodGang, "train", "default")).metadata.labels["kueue.x-k8s.io/queue-name"] == "lq"


async def test_one_that_a_newer_kueue_has_marked_when_it_admitted_it_is_guarded(cluster: EmbeddedCluster) -> None:
    await make(cluster, labels={"kueue.x-k8s.io/podset": "5d93babe"}, notes={"kueue.x-k8s.io/workload": "train"})
    await a_workload(cluster)
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))

    assert (await found(cluster)).invalid == ()


async def test_it_is_stopped_by_its_workload_and_remembered(cluster: EmbeddedCluster) -> None:
    root = await stopped(cluster)

    workload = await cluster.get(Workload, "train", "default")
    assert (workload.spec.active, workload.metadata.annotations["healthd.dev/stopped-by"]) == (False, "train-3")
    assert (root.suspended, root.stopped, root.stopped_by, root.deleting, root.invalid) == (
        True,
        True,
        "train-3",
        False,
        (),
    )
    assert set(await pods(cluster)) == {*NAMES}


async def test_a_stop_of_which_only_the_workload_knows_is_made_whole(cluster: EmbeddedCluster) -> None:
    await a_group(cluster)
    mark = {"metadata": {"annotations": {"healthd.dev/stopped-by": "train-3"}}, "spec": {"active": False}}
    await cluster.patch(Workload, "train", mark, namespace="default")
    half = await found(cluster)

    await tend(cluster)

    assert (half.suspended, half.stopped, half.stopped_by) == (True, False, "train-3")
    root = await found(cluster)
    assert (root.stopped, root.stopped_by) == (True, "train-3")
    assert all(pod.metadata.deletion_timestamp for pod in (await pods(cluster)).values())


async def test_a_group_that_runs_again_is_not_stopped_for_a_workload_that_a_cache_still_shows(
    cluster: EmbeddedCluster,
) -> None:
    """Pods, PodGangs and Workloads have a watch each, and that of the Workloads may be the last to say what it saw."""
    root = await stopped(cluster)
    earlier = await cluster.get(Workload, "train", "default")
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint(checkpoint=A_STEP))
    await kueue_lets_go(cluster)
    await ADAPTER.start(cluster, root, a_hint(checkpoint=A_STEP))
    await kueue_takes_in(cluster)

    class Cache:
        def __getattr__(self, verb: str) -> Any:
            return getattr(cluster, verb)

        async def get(self, kind: Any, *name: str) -> Any:
            return earlier if kind is Workload else await cluster.get(kind, *name)

    ref = (await found(cluster)).ref
    seen = await ADAPTER.find(Cache(), ref)
    assert seen is not None
    assert (seen.stopped_by, seen.stopped) == ("train-3", False)
    with suppress(Conflict):
        await ADAPTER.maintain(cluster, seen, list((await pods(cluster)).values()))

    assert (await found(cluster)).stopped_by == ""
    assert not any(pod.metadata.deletion_timestamp for pod in (await pods(cluster)).values())


@pytest.mark.parametrize("change", [{"status": {"conditions": []}}, {"spec": {"active": False}}])
async def test_one_that_kueue_or_its_user_stops_meanwhile_is_not_stopped(
    cluster: EmbeddedCluster, change: Mapping[str, Any]
) -> None:
    root = await a_group(cluster)
    subresource = "status" if "status" in change else ""
    await cluster.patch(Workload, "train", change, namespace="default", subresource=subresource)

    with pytest.raises(Conflict):
        await ADAPTER.stop(cluster, root, "train-3")

    assert (await found(cluster)).stopped_by == ""
    assert "healthd.dev/stopped-by" not in (await cluster.get(Workload, "train", "default")).metadata.annotations


async def test_nothing_is_done_where_healthd_may_not_delete_its_workload(cluster: EmbeddedCluster) -> None:
    root = await a_group(cluster)

    class Refusing:
        def __getattr__(self, verb: str) -> Any:
            return getattr(cluster, verb)

        async def delete(self, *_: Any, **__: Any) -> None:
            raise Forbidden("the controller cannot delete workloads")

    with pytest.raises(Forbidden):
        await ADAPTER.stop(Refusing(), root, "train-3")

    assert (await found(cluster)) == root
    assert (await cluster.get(Workload, "train", "default")).spec.active


async def test_its_workload_is_deleted_before_its_pods_are_made_again(cluster: EmbeddedCluster) -> None:
    root = await stopped(cluster)
    before = {pod.metadata.uid for pod in (await pods(cluster)).values()}

    with pytest.raises(Conflict, match="Kueue still has the Workload train"):
        await ADAPTER.start(cluster, root, a_hint(checkpoint=A_STEP))
    await kueue_lets_go(cluster)
    await ADAPTER.start(cluster, await found(cluster), a_hint(checkpoint=A_STEP))

    made = await pods(cluster)
    assert set(made) == {*NAMES}
    assert not before & {pod.metadata.uid for pod in made.values()}
    assert {pod.metadata.annotations["kueue.x-k8s.io/role-hash"] for pod in made.values()} == {"5d93babe"}
    assert {(await found(cluster)).attempt} == {3}


async def test_pods_that_kueue_still_keeps_are_waited_for(cluster: EmbeddedCluster) -> None:
    root = await stopped(cluster)
    await cluster.delete(Workload, "train", namespace="default")

    with pytest.raises(Conflict, match=f"rank-0 of an earlier attempt .* deleted, kept by its finalizers {FINALIZER}"):
        await ADAPTER.start(cluster, root, a_hint())


async def test_the_workload_of_its_own_new_pods_stays(cluster: EmbeddedCluster) -> None:
    root = await stopped(cluster)
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint())
    await kueue_lets_go(cluster)
    await ADAPTER.start(cluster, root, a_hint())
    undone = {"metadata": {"annotations": {"healthd.dev/stopped-by": "train-3", "healthd.dev/attempt": None}}}
    await cluster.patch(PodGang, "train", undone, namespace="default")
    await a_workload(cluster)
    made = {pod.metadata.uid for pod in (await pods(cluster)).values()}

    await ADAPTER.start(cluster, await found(cluster), a_hint())

    assert (await cluster.get(Workload, "train", "default")).spec.active
    assert made == {pod.metadata.uid for pod in (await pods(cluster)).values()}


async def test_the_workload_of_pods_that_another_start_has_made_goes_with_them(cluster: EmbeddedCluster) -> None:
    root = await stopped(cluster)
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint())
    await kueue_lets_go(cluster)
    await cluster.patch(PodGang, "train", {"metadata": {"annotations": {"a": "b"}}}, namespace="default")
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint())
    late = {pod.metadata.uid for pod in (await pods(cluster)).values()}
    await kueue_takes_in(cluster)

    for _ in range(2):  # it is deactivated, then deleted
        with pytest.raises(Conflict, match="Kueue still has the Workload train"):
            await ADAPTER.start(cluster, await found(cluster), replace(a_hint(), recovery="train-4"))
    await kueue_lets_go(cluster)
    await ADAPTER.start(cluster, await found(cluster), replace(a_hint(), recovery="train-4"))

    made = await pods(cluster)
    assert set(made) == {*NAMES}
    assert not late & {pod.metadata.uid for pod in made.values()}


FOREIGN: list[dict[str, Any]] = [{"notes": {"kueue.x-k8s.io/is-group-workload": "false"}}, {"owner": {"kind": "Job"}}]
"""Workloads of the group's name that Kueue has made for something else: a user may choose that name."""


@pytest.mark.parametrize("foreign", FOREIGN)
@pytest.mark.parametrize("active", [True, False])
async def test_a_workload_that_was_made_for_something_else_is_never_written_to(
    cluster: EmbeddedCluster, foreign: dict[str, Any], active: bool
) -> None:
    await stopped(cluster)
    await cluster.delete(Workload, "train", namespace="default")
    await a_workload(cluster, active=active, **foreign)
    before = await cluster.get(Workload, "train", "default")

    root = await found(cluster)
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint())

    assert await cluster.get(Workload, "train", "default") == before
    assert "the Workload of its name was not made for a group of pods" in " ".join(root.invalid)


async def test_a_group_of_its_name_that_its_user_runs_without_healthd_is_left_alone(cluster: EmbeddedCluster) -> None:
    """The user has deleted the Workload of the stopped group, and has made other pods in the group."""
    await stopped(cluster)
    await cluster.delete(Workload, "train", namespace="default")
    await kueue_lets_go(cluster)
    await make(cluster, "mine-0", "mine-1", labels={"healthd.dev/gang": "none"})
    await a_workload(cluster)
    before = await cluster.get(Workload, "train", "default")

    root = await found(cluster)
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint())

    assert await cluster.get(Workload, "train", "default") == before
    assert "other pods are in the group of its name, such as 'mine-0'" in " ".join(root.invalid)


@pytest.mark.parametrize("act", ["stop", "start"])
async def test_a_controller_that_was_deposed_between_two_of_its_requests_writes_to_no_new_workload(
    cluster: EmbeddedCluster, act: str
) -> None:
    """The next leader restarts the gang, and once more, before the old one goes on."""
    running = await a_group(cluster)
    await ADAPTER.stop(cluster, running, "train-3")
    await kueue_ends_the_pods(cluster)
    halted = await found(cluster)

    async def starts_again() -> None:
        with suppress(Conflict):
            await ADAPTER.start(cluster, halted, a_hint(checkpoint=A_STEP))
        await kueue_lets_go(cluster)
        await ADAPTER.start(cluster, halted, a_hint(checkpoint=A_STEP))
        await kueue_takes_in(cluster)

    class Deposed:
        """It goes on at its first read of the Workload."""

        waited = False

        def __getattr__(self, verb: str) -> Any:
            return getattr(cluster, verb)

        async def get(self, kind: Any, *name: str) -> Any:
            if kind is Workload and not self.waited:
                self.waited = True
                await starts_again()
            return await cluster.get(kind, *name)

    acts = {
        "stop": lambda: ADAPTER.stop(Deposed(), replace(running, resource_version=halted.resource_version), "train-0"),
        "start": lambda: ADAPTER.start(Deposed(), halted, replace(a_hint(), recovery="train-0")),
    }
    with pytest.raises(Conflict):
        await acts[act]()

    assert (await cluster.get(Workload, "train", "default")).spec.active
    assert (await found(cluster)).stopped_by == ""


class Killed(Exception):
    """The controller has ended."""


class Mortal:
    """The cluster of a controller that is killed after so many writes."""

    def __init__(self, cluster: EmbeddedCluster, writes: int) -> None:
        self._cluster = cluster
        self._left = writes

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._cluster, verb)

        async def write(*args: Any, **options: Any) -> Any:
            if not self._left:
                raise Killed
            answer = await call(*args, **options)
            self._left -= not options.get("dry_run", False)
            return answer

        return write if verb in ("create", "patch", "delete") else call


async def kueue_works(cluster: EmbeddedCluster) -> None:
    """What Kueue does until nothing changes any more."""
    there, known = await pods(cluster), (await cluster.list(Workload)).items
    if known and not known[0].spec.active:
        await kueue_ends_the_pods(cluster)
        given_back = {"status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}}
        await cluster.patch(Workload, "train", given_back, namespace="default", subresource="status")
    elif not known and any(pod.metadata.deletion_timestamp for pod in there.values()):
        await kueue_lets_go(cluster)
    elif not known and len(there) == len(NAMES):
        await kueue_takes_in(cluster)


async def goes_on(cluster: Any) -> None:
    """What a controller does whose recovery wants the gang to run its third attempt."""
    with suppress(Conflict):
        await ADAPTER.maintain(cluster, await found(cluster), list((await pods(cluster)).values()))
    root = await found(cluster)
    with suppress(Conflict):
        if root.stopped and not root.holds_quota:
            await ADAPTER.start(cluster, root, a_hint(checkpoint=A_STEP))
        elif root.attempt < 3 and not root.suspended:
            await ADAPTER.stop(cluster, root, "train-3")


@pytest.mark.parametrize("writes", range(16))
async def test_a_controller_that_is_killed_after_any_write_leads_to_one_restart(
    cluster: EmbeddedCluster, writes: int
) -> None:
    await a_group(cluster)
    before = {pod.metadata.uid for pod in (await pods(cluster)).values()}
    mortal, uids = Mortal(cluster, writes), list[set[str]]()
    with suppress(Killed):
        for _ in range(12):
            await goes_on(mortal)
            await kueue_works(cluster)
    for _ in range(12):
        await goes_on(cluster)
        await kueue_works(cluster)
        uids.append({pod.metadata.uid for pod in (await pods(cluster)).values()})

    root = await found(cluster)
    assert (root.attempt, root.suspended, root.stopped_by, root.invalid) == (3, False, "", ())
    assert (await cluster.get(Workload, "train", "default")).spec.active
    assert len(uids[-1]) == len(NAMES)
    assert not uids[-1] & before
    made = {uid for each in uids for uid in each} - before
    assert made == uids[-1], "they were made once"


async def test_until_its_quota_is_back_it_says_so(cluster: EmbeddedCluster) -> None:
    root = await stopped(cluster)
    given_back = {"status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}}
    await cluster.patch(Workload, "train", given_back, namespace="default", subresource="status")

    assert (root.holds_quota, (await found(cluster)).holds_quota) == (True, False)


async def test_new_pods_that_kueue_has_not_taken_in_only_wait(cluster: EmbeddedCluster) -> None:
    await make(cluster, gated=True)
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))
    unseen = await found(cluster)
    await a_workload(cluster, WAITS)
    waits = await found(cluster)

    assert (unseen.unadmitted, unseen.invalid) == ("Kueue has no Workload for it in queue 'lq'", ())
    assert (waits.unadmitted, waits.evicted) == ("it waits in Kueue's queue 'lq': insufficient unused quota", False)
    assert (unseen.suspended, waits.suspended) == (True, True)
    await tend(cluster)
    assert not any(pod.metadata.deletion_timestamp for pod in (await pods(cluster)).values())


async def test_pods_that_are_not_all_recorded_are_no_gang_yet(cluster: EmbeddedCluster) -> None:
    await make(cluster, "rank-0")
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))
    await make(cluster, "rank-1")
    await a_workload(cluster)
    early = await found(cluster)

    await tend(cluster)

    assert (early.suspended, early.unadmitted) == (True, "1 of its 2 pods are recorded so far")
    assert ((await found(cluster)).suspended, (await found(cluster)).world) == (False, 2)


@pytest.mark.parametrize("conditions", [EVICTED, ADMITTED])
async def test_what_kueue_has_stopped_is_its_own_affair(
    cluster: EmbeddedCluster, conditions: Mapping[str, tuple[str, str, str]]
) -> None:
    await a_group(cluster, conditions=conditions)
    preempted = {"type": "TerminationTarget", "status": "True", "reason": "WorkloadEvictedDueToPreempted"}
    for name in NAMES:
        await says(cluster, name, {"conditions": [preempted]})
    await kueue_ends_the_pods(cluster)

    root = await found(cluster)

    assert (root.suspended, root.stopped_by, root.evicted, root.deleting) == (True, "", True, False)
    assert root.unadmitted


async def test_one_that_its_user_has_deactivated_stays_so(cluster: EmbeddedCluster) -> None:
    root = await a_group(cluster, conditions=STOPPED, active=False)

    assert (root.suspended, root.stopped_by, root.unadmitted) == (True, "", "")


async def test_pods_that_kueue_keeps_after_their_user_has_deleted_their_record_get_no_other(
    cluster: EmbeddedCluster,
) -> None:
    """An empty one would stay after them, in no queue, and stand in the way of the next group of this name."""
    await stopped(cluster)
    await cluster.delete(PodGang, "train", namespace="default")

    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))
    assert (await cluster.list(PodGang)).items == []

    await cluster.delete(Workload, "train", namespace="default")
    await kueue_lets_go(cluster)
    assert (await a_group(cluster)).invalid == ()


@pytest.mark.parametrize("what", ["its pods", "its Workload"])
async def test_what_its_user_has_deleted_stays_so(cluster: EmbeddedCluster, what: str) -> None:
    await a_group(cluster)
    if what == "its Workload":
        await cluster.delete(Workload, "train", namespace="default")
    await kueue_ends_the_pods(cluster)

    root = await found(cluster)

    assert (root.deleting, root.stopped_by) == (True, "")


@pytest.mark.parametrize(
    ("pod", "workload", "why"),
    [
        ({"notes": {"kueue.x-k8s.io/retriable-in-group": "false"}}, {}, "'kueue.x-k8s.io/retriable-in-group'"),
        ({"notes": {"kueue.x-k8s.io/pod-group-serving": "true"}}, {}, "'kueue.x-k8s.io/pod-group-serving'"),
        ({"labels": {"kueue.x-k8s.io/prebuilt-workload-name": "train"}}, {}, "prebuilt-workload-name"),
        ({"labels": {"kueue.x-k8s.io/tas": "true"}}, {}, "'kueue.x-k8s.io/tas'"),
        ({"labels": {"kueue.x-k8s.io/pod-group-name": "other"}}, {}, "pod-group-name: train"),
        ({"notes": {"kueue.x-k8s.io/pod-group-total-count": "1"}}, {}, "is not their number, 2"),
        ({"notes": {"healthd.dev/recreate": "owner"}}, {}, "made again by their owner"),
        ({}, {"status": {"clusterName": "far"}}, "MultiKueue"),
        ({}, {"status": {"admissionChecks": [{"name": "provisioning", "state": "Ready"}]}}, "admission check"),
        (
            {},
            {"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {"levels": ["hostname"]}}]}}},
            "by topology",
        ),
        ({}, {"notes": {"kueue.x-k8s.io/is-group-workload": "false"}}, "not made for a group of pods"),
        ({}, {"owner": {"kind": "Job"}}, "not made for a group of pods"),
        ({}, {"notes": {"healthd.dev/stopped-by": "x" * 300}, "active": False}, "stopped-by on its Workload"),
    ],
)
async def test_what_cannot_be_restarted_is_left_alone_with_the_reason(
    cluster: EmbeddedCluster, pod: dict[str, Any], workload: dict[str, Any], why: str
) -> None:
    await make(cluster, **pod)
    await a_workload(cluster, **workload)
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))

    said = (await found(cluster)).invalid

    assert any(why in each for each in said), said
    assert all(each.startswith("it is in Kueue's queue 'lq', and ") for each in said)


async def test_whatever_is_on_its_pods_the_reason_is_short(cluster: EmbeddedCluster) -> None:
    await make(cluster, notes={f"kueue.x-k8s.io/{number}-{'x' * 40}": "" for number in range(3000)})
    await a_workload(cluster)
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))

    (said,) = (await found(cluster)).invalid

    assert "and 2997 more" in said
    assert len(said) < 500


async def test_a_group_that_runs_without_a_workload_is_left_alone(cluster: EmbeddedCluster) -> None:
    await make(cluster)
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))

    (said,) = (await found(cluster)).invalid

    assert said == "it is in Kueue's queue 'lq', and no Workload is there for it, where one should be"


async def test_pods_that_are_admitted_one_by_one_are_left_alone(cluster: EmbeddedCluster) -> None:
    await make(cluster)
    for name in NAMES:
        alone = {"metadata": {"labels": {"kueue.x-k8s.io/pod-group-name": None}}}
        await cluster.patch(Pod, name, alone, namespace="default")
    await ADAPTER.discover(cluster, "default", "train", list((await pods(cluster)).values()))

    assert "pod-group-name: train" in " ".join((await found(cluster)).invalid)


def test_a_change_of_its_workload_concerns_the_gang() -> None:
    group = ObjectMeta(name="train", annotations={"kueue.x-k8s.io/is-group-workload": "true"})

    assert ADAPTER.beside is Workload
    assert ADAPTER.root_beside(Workload(metadata=group)) == "train"
    assert ADAPTER.root_beside(Workload(metadata=ObjectMeta(name="job-train-1234"))) is None
