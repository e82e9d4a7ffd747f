"""
Deleting: at once, gracefully, and with finalizers.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.cluster.port import AlreadyExists, Cluster, Conflict, EventType, Invalid, NotFound
from healthd.core.api import Job, Lease, Node, Pod, Recovery
from tests.builders import a_job, a_lease, a_pod, a_recovery
from tests.contract.following import exists, next_object

FENCE, OTHER = "healthd.dev/fence", "example.com/other"


async def bound_pod(cluster: Cluster, name: str, namespace: str, node: Node, *finalizers: str) -> Pod:
    """A pod that a kubelet may be running, with 30 s of grace."""
    return await cluster.create(
        a_pod(name, namespace=namespace, node=node.metadata.name, grace_seconds=30, finalizers=list(finalizers))
    )


async def keep_finalizers(cluster: Cluster, name: str, namespace: str, *finalizers: str) -> None:
    """Patch all other finalizers away."""
    await cluster.patch(Pod, name, {"metadata": {"finalizers": list(finalizers)}}, namespace=namespace)


async def test_plain_object_goes_at_once(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_lease(name, namespace=namespace))
    await cluster.delete(Lease, name, namespace=namespace)

    with pytest.raises(NotFound):
        await cluster.get(Lease, name, namespace)


async def test_absent_object_is_not_found(cluster: Cluster, name: str, namespace: str) -> None:
    with pytest.raises(NotFound, match=name):
        await cluster.delete(Lease, name, namespace=namespace)


async def test_stale_version_is_a_conflict(cluster: Cluster, name: str, namespace: str) -> None:
    old = (await cluster.create(a_lease(name, namespace=namespace))).metadata.resource_version
    await cluster.patch(Lease, name, {"spec": {"holderIdentity": "a"}}, namespace=namespace)

    with pytest.raises(Conflict):
        await cluster.delete(Lease, name, namespace=namespace, resource_version=old)

    assert await exists(cluster, Lease, name, namespace)


async def test_uid_of_a_former_object_is_a_conflict(cluster: Cluster, name: str, namespace: str) -> None:
    former = await cluster.create(a_lease(name, namespace=namespace))
    await cluster.delete(Lease, name, namespace=namespace, uid=former.metadata.uid)
    await cluster.create(a_lease(name, namespace=namespace))

    with pytest.raises(Conflict):
        await cluster.delete(Lease, name, namespace=namespace, uid=former.metadata.uid)

    assert await exists(cluster, Lease, name, namespace)


async def test_pod_that_was_never_bound_goes_at_once(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_pod(name, namespace=namespace))
    await cluster.delete(Pod, name, namespace=namespace)

    assert not await exists(cluster, Pod, name, namespace)


async def test_bound_pod_stays_and_is_marked(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    made = await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace)

    pod = await cluster.get(Pod, name, namespace)

    assert pod.metadata.deletion_grace_period_seconds == 30
    assert pod.metadata.deletion_timestamp is not None
    assert pod.metadata.creation_timestamp is not None
    assert pod.metadata.deletion_timestamp >= pod.metadata.creation_timestamp + timedelta(seconds=30)
    assert pod.spec == made.spec


async def test_mark_of_deletion_is_an_event(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    made = await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace)
    await cluster.delete(Pod, name, namespace=namespace, grace_seconds=0)

    events = cluster.watch(Pod, since=made.metadata.resource_version, namespace=namespace)

    assert (await next_object(events, EventType.MODIFIED)).metadata.deletion_timestamp is not None


async def test_grace_of_the_request_beats_that_of_the_pod(
    cluster: Cluster, name: str, namespace: str, node: Node
) -> None:
    await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace, grace_seconds=7)

    assert (await cluster.get(Pod, name, namespace)).metadata.deletion_grace_period_seconds == 7


async def test_the_kubelets_confirmation_removes_the_pod(
    cluster: Cluster, name: str, namespace: str, node: Node
) -> None:
    await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace)
    await cluster.delete(Pod, name, namespace=namespace, grace_seconds=0)

    assert not await exists(cluster, Pod, name, namespace)


async def test_second_delete_shortens_the_grace(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace)
    first = (await cluster.get(Pod, name, namespace)).metadata
    await cluster.delete(Pod, name, namespace=namespace, grace_seconds=10)
    second = (await cluster.get(Pod, name, namespace)).metadata

    assert second.deletion_grace_period_seconds == 10
    assert first.deletion_timestamp is not None
    assert second.deletion_timestamp == first.deletion_timestamp - timedelta(seconds=20)


@pytest.mark.parametrize("again", [None, 30, 60])
async def test_second_delete_never_lengthens_the_grace(
    cluster: Cluster, name: str, namespace: str, node: Node, again: int | None
) -> None:
    await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace)
    first = await cluster.get(Pod, name, namespace)
    await cluster.delete(Pod, name, namespace=namespace, grace_seconds=again)

    assert await cluster.get(Pod, name, namespace) == first


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pod_goes_at_once(cluster: Cluster, name: str, namespace: str, node: Node, phase: str) -> None:
    await bound_pod(cluster, name, namespace, node)
    await cluster.patch(Pod, name, {"status": {"phase": phase}}, namespace=namespace, subresource="status")
    await cluster.delete(Pod, name, namespace=namespace)

    assert not await exists(cluster, Pod, name, namespace)


async def test_finalizer_keeps_the_object_until_it_is_patched_away(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_recovery(name, namespace=namespace, finalizers=[FENCE]))
    await cluster.delete(Recovery, name, namespace=namespace)
    kept = await cluster.get(Recovery, name, namespace)
    await cluster.patch(Recovery, name, {"metadata": {"finalizers": []}}, namespace=namespace)

    assert kept.metadata.deletion_timestamp is not None
    assert not await exists(cluster, Recovery, name, namespace)


async def test_begun_deletion_counts_as_a_generation(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_job(name, namespace=namespace, suspend=True, finalizers=[FENCE]))
    await cluster.patch(Job, name, {"spec": {"parallelism": 1}}, namespace=namespace)
    await cluster.delete(Job, name, namespace=namespace)

    assert (await cluster.get(Job, name, namespace)).metadata.generation == 3


async def test_object_waits_for_its_last_finalizer(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_pod(name, namespace=namespace, finalizers=[FENCE, OTHER]))
    await cluster.delete(Pod, name, namespace=namespace)
    await keep_finalizers(cluster, name, namespace, OTHER)

    assert (await cluster.get(Pod, name, namespace)).metadata.finalizers == [OTHER]


async def test_last_finalizer_gone_is_a_deleted_event(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_pod(name, namespace=namespace, finalizers=[FENCE]))
    await cluster.delete(Pod, name, namespace=namespace)
    marked = await cluster.get(Pod, name, namespace)
    await keep_finalizers(cluster, name, namespace)

    events = cluster.watch(Pod, since=marked.metadata.resource_version, namespace=namespace)

    assert (await next_object(events, EventType.DELETED)).metadata.uid == marked.metadata.uid


async def test_bound_pod_needs_kubelet_then_finalizer(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    await bound_pod(cluster, name, namespace, node, FENCE)
    await cluster.delete(Pod, name, namespace=namespace)
    await cluster.delete(Pod, name, namespace=namespace, grace_seconds=0)
    confirmed = await cluster.get(Pod, name, namespace)
    await keep_finalizers(cluster, name, namespace)

    assert confirmed.metadata.deletion_grace_period_seconds == 0
    assert not await exists(cluster, Pod, name, namespace)


async def test_bound_pod_needs_finalizer_then_kubelet(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    await bound_pod(cluster, name, namespace, node, FENCE)
    await cluster.delete(Pod, name, namespace=namespace)
    await keep_finalizers(cluster, name, namespace)
    between = await exists(cluster, Pod, name, namespace)
    await cluster.delete(Pod, name, namespace=namespace, grace_seconds=0)

    assert between
    assert not await exists(cluster, Pod, name, namespace)


async def test_finalizer_cannot_be_added_while_deleting(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_pod(name, namespace=namespace, finalizers=[FENCE]))
    await cluster.delete(Pod, name, namespace=namespace)

    with pytest.raises(Invalid, match="finalizers"):
        await keep_finalizers(cluster, name, namespace, FENCE, OTHER)


async def test_deletion_cannot_be_taken_back(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_pod(name, namespace=namespace, finalizers=[FENCE]))
    await cluster.delete(Pod, name, namespace=namespace)
    patched = await cluster.patch(Pod, name, {"metadata": {"deletionTimestamp": None}}, namespace=namespace)

    assert patched.metadata.deletion_timestamp is not None


async def test_object_being_deleted_can_still_report(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace)
    patch = {"status": {"phase": "Failed"}}

    patched = await cluster.patch(Pod, name, patch, namespace=namespace, subresource="status")

    assert patched.status.phase == "Failed"
    assert patched.metadata.deletion_timestamp is not None


async def test_name_stays_taken_while_deleting(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    await bound_pod(cluster, name, namespace, node)
    await cluster.delete(Pod, name, namespace=namespace)

    with pytest.raises(AlreadyExists):
        await cluster.create(a_pod(name, namespace=namespace))


async def test_a_dry_run_deletes_nothing(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace))
    await cluster.delete(Lease, name, namespace=namespace, dry_run=True)

    assert await cluster.get(Lease, name, namespace) == made


async def test_a_dry_run_keeps_to_the_preconditions(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_lease(name, namespace=namespace))

    with pytest.raises(Conflict):
        await cluster.delete(Lease, name, namespace=namespace, uid="another", dry_run=True)
