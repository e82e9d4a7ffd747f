"""
Owners: dependents go with the last of them, in the server's own time.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from healthd.cluster.port import Cluster, EventType, Invalid
from healthd.core.api import Job, Lease, Node, Pod, Recovery
from tests.builders import a_job, a_lease, a_node, a_pod, a_recovery, owned_by
from tests.contract.following import exists, next_object, until_deleted, until_gone


async def test_dependent_goes_with_its_owner(cluster: Cluster, name: str, namespace: str) -> None:
    owner = await cluster.create(a_recovery(name, namespace=namespace))
    await cluster.create(a_lease(name, namespace=namespace, owner_references=[owned_by(owner)]))
    await cluster.delete(Recovery, name, namespace=namespace)

    await until_gone(cluster, Lease, name, namespace)


async def test_dependents_of_dependents_go_too(cluster: Cluster, name: str, namespace: str) -> None:
    top = await cluster.create(a_recovery(name, namespace=namespace))
    middle = await cluster.create(a_lease(name, namespace=namespace, owner_references=[owned_by(top)]))
    await cluster.create(a_lease(f"{name}-2", namespace=namespace, owner_references=[owned_by(middle)]))
    await cluster.delete(Recovery, name, namespace=namespace)

    await until_gone(cluster, Lease, f"{name}-2", namespace)


async def test_object_of_cluster_scope_may_own(cluster: Cluster, name: str, namespace: str) -> None:
    owner = await cluster.create(a_node(name))
    await cluster.create(a_lease(name, namespace=namespace, owner_references=[owned_by(owner)]))
    await cluster.delete(Node, name)

    await until_gone(cluster, Lease, name, namespace)


async def test_dependent_outlives_one_of_two_owners(cluster: Cluster, name: str, namespace: str) -> None:
    first = await cluster.create(a_recovery(f"{name}-1", namespace=namespace))
    second = await cluster.create(a_recovery(f"{name}-2", namespace=namespace))
    for lease, owners in ((f"{name}-one", [first]), (f"{name}-two", [first, second])):
        references = [replace(owned_by(owner), controller=False) for owner in owners]
        await cluster.create(a_lease(lease, namespace=namespace, owner_references=references))
    await cluster.delete(Recovery, f"{name}-1", namespace=namespace)
    await until_gone(cluster, Lease, f"{name}-one", namespace)  # the collector has been here

    assert await exists(cluster, Lease, f"{name}-two", namespace)


async def test_two_controllers_are_refused(cluster: Cluster, name: str, namespace: str) -> None:
    owners = [await cluster.create(a_recovery(f"{name}-{n}", namespace=namespace)) for n in (1, 2)]

    with pytest.raises(Invalid, match="ownerReferences"):
        await cluster.create(a_lease(name, namespace=namespace, owner_references=[owned_by(each) for each in owners]))


async def test_dependent_of_an_owner_that_is_gone_is_collected(cluster: Cluster, name: str, namespace: str) -> None:
    owner = await cluster.create(a_recovery(name, namespace=namespace))
    await cluster.delete(Recovery, name, namespace=namespace)
    await cluster.create(a_lease(name, namespace=namespace, owner_references=[owned_by(owner)]))

    await until_gone(cluster, Lease, name, namespace)


async def test_new_object_of_the_owners_name_is_not_the_owner(cluster: Cluster, name: str, namespace: str) -> None:
    former = await cluster.create(a_recovery(name, namespace=namespace))
    await cluster.delete(Recovery, name, namespace=namespace)
    await cluster.create(a_recovery(name, namespace=namespace))
    await cluster.create(a_lease(name, namespace=namespace, owner_references=[owned_by(former)]))

    await until_gone(cluster, Lease, name, namespace)


async def test_dependent_waits_while_its_owner_is_held_by_a_finalizer(
    cluster: Cluster, name: str, namespace: str
) -> None:
    owner = await cluster.create(a_recovery(name, namespace=namespace, finalizers=["healthd.dev/fence"]))
    await cluster.create(a_lease(name, namespace=namespace, owner_references=[owned_by(owner)]))
    await cluster.delete(Recovery, name, namespace=namespace)
    kept = await exists(cluster, Lease, name, namespace)
    await cluster.patch(Recovery, name, {"metadata": {"finalizers": []}}, namespace=namespace)
    await until_gone(cluster, Lease, name, namespace)

    assert kept


async def test_adopted_object_goes_with_its_new_owner(cluster: Cluster, name: str, namespace: str) -> None:
    owner = await cluster.create(a_recovery(name, namespace=namespace))
    await cluster.create(a_lease(name, namespace=namespace))
    reference = {"apiVersion": "healthd.dev/v1alpha1", "kind": "Recovery", "name": name, "uid": owner.metadata.uid}
    await cluster.patch(Lease, name, {"metadata": {"ownerReferences": [reference]}}, namespace=namespace)
    await cluster.delete(Recovery, name, namespace=namespace)

    await until_gone(cluster, Lease, name, namespace)


async def test_released_object_outlives_its_former_owner(cluster: Cluster, name: str, namespace: str) -> None:
    owner = await cluster.create(a_recovery(name, namespace=namespace))
    for lease in (f"{name}-kept", f"{name}-released"):
        await cluster.create(a_lease(lease, namespace=namespace, owner_references=[owned_by(owner)]))
    await cluster.patch(Lease, f"{name}-released", {"metadata": {"ownerReferences": []}}, namespace=namespace)
    await cluster.delete(Recovery, name, namespace=namespace)
    await until_gone(cluster, Lease, f"{name}-kept", namespace)  # the collector has been here

    assert await exists(cluster, Lease, f"{name}-released", namespace)


async def test_bound_pod_of_a_deleted_job_is_deleted_gracefully(
    cluster: Cluster, name: str, namespace: str, node: Node
) -> None:
    job = await cluster.create(a_job(name, namespace=namespace, suspend=True))
    pod = await cluster.create(a_pod(name, namespace=namespace, node=node.metadata.name, owner=job))
    await cluster.delete(Job, name, namespace=namespace)

    events = cluster.watch(Pod, since=pod.metadata.resource_version, namespace=namespace)

    assert (await next_object(events, EventType.MODIFIED)).metadata.deletion_grace_period_seconds == 30


async def test_an_owner_that_is_deleted_last_stays_until_what_it_owns_is_gone(
    cluster: Cluster, name: str, namespace: str
) -> None:
    owner = await cluster.create(a_recovery(name, namespace=namespace))
    blocking = replace(owned_by(owner), block_owner_deletion=True)
    kept = a_pod(name, namespace=namespace, finalizers=["healthd.dev/fence"], owner_references=[blocking])
    await cluster.create(kept)
    await cluster.delete(Recovery, name, namespace=namespace, dependents_first=True)
    await until_deleted(cluster, Pod, name, namespace)

    assert (await cluster.get(Recovery, name, namespace)).metadata.deletion_timestamp is not None
    await cluster.patch(Pod, name, {"metadata": {"finalizers": None}}, namespace=namespace)
    await until_gone(cluster, Recovery, name, namespace)


async def test_an_owner_of_nothing_goes_at_once_also_when_it_is_deleted_last(
    cluster: Cluster, name: str, namespace: str
) -> None:
    await cluster.create(a_recovery(name, namespace=namespace))
    await cluster.delete(Recovery, name, namespace=namespace, dependents_first=True)

    await until_gone(cluster, Recovery, name, namespace)
