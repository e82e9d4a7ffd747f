"""
Patching: what changes, what cannot, and which preconditions hold.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from healthd.cluster.port import Cluster, ClusterError, Conflict, Invalid, NotFound
from healthd.core.api import Job, Lease, Node, Recovery, Taint
from healthd.core.api.model import Phase
from tests.builders import a_job, a_lease, a_node, a_recovery


async def test_only_named_keys_change(cluster: Cluster, name: str) -> None:
    await cluster.create(a_node(name, labels={"keep": "1", "change": "1", "drop": "1"}))

    patched = await cluster.patch(Node, name, {"metadata": {"labels": {"change": "2", "drop": None, "add": "1"}}})

    assert patched.metadata.labels == {"keep": "1", "change": "2", "add": "1"}
    assert await cluster.get(Node, name) == patched


async def test_list_is_replaced_whole(cluster: Cluster, name: str) -> None:
    await cluster.create(a_node(name, taints=[Taint(key="a"), Taint(key="b")]))

    patched = await cluster.patch(Node, name, {"spec": {"taints": [{"key": "c", "effect": "NoSchedule"}]}})

    assert patched.spec.taints == [Taint(key="c")]


async def test_each_change_has_a_new_version(cluster: Cluster, name: str, namespace: str) -> None:
    made = await cluster.create(a_lease(name, namespace=namespace))
    patched = await cluster.patch(Lease, name, {"spec": {"holderIdentity": "a"}}, namespace=namespace)

    assert patched.metadata.resource_version != made.metadata.resource_version


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"metadata": {"annotations": {"example.com/a": "1"}}},
        {"metadata": {"annotations": {"example.com/absent": None}}},
        {"metadata": {"labels": {"absent": None}}},
        {"metadata": {"finalizers": []}},
        {"status": {"conditions": []}},
    ],
    ids=str,
)
async def test_patch_without_effect_keeps_the_version(cluster: Cluster, name: str, patch: dict[str, Any]) -> None:
    made = await cluster.create(a_node(name, annotations={"example.com/a": "1"}))
    patched = await cluster.patch(Node, name, patch)

    assert patched == made


async def test_main_patch_leaves_status_alone(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_recovery(name, namespace=namespace))
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Stopping"}}

    patched = await cluster.patch(Recovery, name, patch, namespace=namespace)

    assert patched.metadata.labels == {"a": "b"}
    assert patched.status.phase is Phase.DETECTED


async def test_status_patch_leaves_spec_alone(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_recovery(name, namespace=namespace, first_attempt=1))
    patch = {"spec": {"firstAttempt": 9}, "status": {"phase": "Stopping"}}

    patched = await cluster.patch(Recovery, name, patch, namespace=namespace, subresource="status")

    assert patched.spec.first_attempt == 1
    assert patched.status.phase is Phase.STOPPING


async def test_generation_counts_changes_of_the_spec_only(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_job(name, namespace=namespace, suspend=True, ranks=2))

    async def patched(patch: dict[str, Any], subresource: str = "") -> int:
        obj = await cluster.patch(Job, name, patch, namespace=namespace, subresource=subresource)
        return obj.metadata.generation

    assert await patched({"metadata": {"labels": {"a": "b"}}}) == 1
    assert await patched({"status": {"active": 1}}, "status") == 1
    assert await patched({"spec": {"parallelism": 1}}) == 2
    assert await patched({"spec": {"parallelism": 1}}) == 2


async def test_patch_of_an_absent_object_is_not_found(cluster: Cluster, name: str) -> None:
    with pytest.raises(NotFound, match=name):
        await cluster.patch(Node, name, {"spec": {"unschedulable": True}})


async def test_kind_without_status_has_no_status_subresource(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_lease(name, namespace=namespace))

    with pytest.raises(NotFound):
        await cluster.patch(Lease, name, {"status": {}}, namespace=namespace, subresource="status")


async def test_stale_version_is_a_conflict(cluster: Cluster, name: str) -> None:
    old = (await cluster.create(a_node(name))).metadata.resource_version
    await cluster.patch(Node, name, {"metadata": {"labels": {"a": "1"}}})

    with pytest.raises(Conflict, match=name):
        await cluster.patch(Node, name, {"metadata": {"labels": {"a": "2"}}}, resource_version=old)

    assert (await cluster.get(Node, name)).metadata.labels == {"a": "1"}


async def test_version_inside_the_patch_is_a_precondition(cluster: Cluster, name: str) -> None:
    old = (await cluster.create(a_node(name))).metadata.resource_version
    await cluster.patch(Node, name, {"metadata": {"labels": {"a": "1"}}})

    with pytest.raises(Conflict):
        await cluster.patch(Node, name, {"metadata": {"resourceVersion": old, "labels": {"a": "2"}}})


async def test_stale_version_is_a_conflict_even_when_nothing_would_change(cluster: Cluster, name: str) -> None:
    old = (await cluster.create(a_node(name))).metadata.resource_version
    await cluster.patch(Node, name, {"metadata": {"labels": {"a": "1"}}})

    with pytest.raises(Conflict):
        await cluster.patch(Node, name, {"metadata": {"labels": {"a": "1"}}}, resource_version=old)


async def test_status_patch_honours_preconditions(cluster: Cluster, name: str, namespace: str) -> None:
    old = (await cluster.create(a_recovery(name, namespace=namespace))).metadata.resource_version
    patch = {"status": {"phase": "Stopping"}}
    await cluster.patch(Recovery, name, {"metadata": {"labels": {"a": "1"}}}, namespace=namespace)

    with pytest.raises(Conflict):
        await cluster.patch(Recovery, name, patch, namespace=namespace, subresource="status", resource_version=old)


async def test_current_version_and_uid_are_accepted(cluster: Cluster, name: str) -> None:
    seen = (await cluster.create(a_node(name))).metadata
    patched = await cluster.patch(
        Node, name, {"spec": {"unschedulable": True}}, resource_version=seen.resource_version, uid=seen.uid
    )

    assert patched.spec.unschedulable


async def test_uid_of_a_former_object_is_a_conflict(cluster: Cluster, name: str, namespace: str) -> None:
    former = await cluster.create(a_lease(name, namespace=namespace))
    await cluster.delete(Lease, name, namespace=namespace)
    await cluster.create(a_lease(name, namespace=namespace, holder="new"))
    patch = {"spec": {"holderIdentity": "late"}}

    with pytest.raises(Conflict):
        await cluster.patch(Lease, name, patch, namespace=namespace, uid=former.metadata.uid)

    assert (await cluster.get(Lease, name, namespace)).spec.holder_identity == "new"


async def test_of_many_writers_with_one_version_one_wins(cluster: Cluster, name: str, namespace: str) -> None:
    seen = (await cluster.create(a_lease(name, namespace=namespace))).metadata.resource_version

    async def take(holder: str) -> str:
        patch = {"spec": {"holderIdentity": holder}}
        try:
            await cluster.patch(Lease, name, patch, namespace=namespace, resource_version=seen)
        except Conflict:
            return ""
        return holder

    winners = [holder for holder in await asyncio.gather(*(take(f"holder-{n}") for n in range(8))) if holder]

    assert winners == [(await cluster.get(Lease, name, namespace)).spec.holder_identity]


@pytest.mark.parametrize("field", ["name", "uid", "deletionTimestamp"])
async def test_identity_cannot_be_patched(cluster: Cluster, name: str, field: str) -> None:
    made = await cluster.create(a_node(name))

    with pytest.raises(Invalid, match=field):
        await cluster.patch(Node, name, {"metadata": {field: "2020-01-01T00:00:00Z"}})

    assert await cluster.get(Node, name) == made


@pytest.mark.parametrize("field", ["uid", "creationTimestamp"])
async def test_identity_survives_a_patch_that_deletes_it(cluster: Cluster, name: str, field: str) -> None:
    made = await cluster.create(a_node(name))

    assert await cluster.patch(Node, name, {"metadata": {field: None}}) == made


async def test_another_time_of_creation_is_dropped(cluster: Cluster, name: str) -> None:
    made = await cluster.create(a_node(name))

    assert await cluster.patch(Node, name, {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}}) == made


async def test_generation_is_the_servers(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_recovery(name, namespace=namespace))
    patched = await cluster.patch(Recovery, name, {"metadata": {"generation": 7}}, namespace=namespace)

    assert patched.metadata.generation == 1


@pytest.mark.parametrize(
    "patch",
    [{"spec": {"parallelism": "many"}}, {"spec": {"suspend": "yes"}}, {"metadata": {"labels": {"a": "b c"}}}],
    ids=str,
)
async def test_patch_that_does_not_fit_changes_nothing(
    cluster: Cluster, name: str, namespace: str, patch: dict[str, Any]
) -> None:
    made = await cluster.create(a_job(name, namespace=namespace, suspend=True))

    with pytest.raises(ClusterError) as caught:
        await cluster.patch(Job, name, patch, namespace=namespace)

    assert caught.type is Invalid
    assert (await cluster.get(Job, name, namespace)).spec == made.spec
