"""
Evicting: a graceful deletion that says why.
"""

from __future__ import annotations

import pytest

from healthd.cluster.port import Cluster, EventType, NotFound
from healthd.core.api import Node, Pod
from tests.builders import a_pod
from tests.contract.following import exists, next_object


async def test_evicted_pod_is_marked_as_target_of_a_disruption(
    cluster: Cluster, name: str, namespace: str, node: Node
) -> None:
    await cluster.create(a_pod(name, namespace=namespace, node=node.metadata.name))
    await cluster.evict(name, namespace)

    conditions = (await cluster.get(Pod, name, namespace)).status.conditions

    assert [(each.type, each.status) for each in conditions] == [("DisruptionTarget", "True")]


async def test_evicted_pod_is_deleted_gracefully(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    await cluster.create(a_pod(name, namespace=namespace, node=node.metadata.name))
    await cluster.evict(name, namespace, grace_seconds=7)

    assert (await cluster.get(Pod, name, namespace)).metadata.deletion_grace_period_seconds == 7


async def test_eviction_keeps_the_other_conditions(cluster: Cluster, name: str, namespace: str, node: Node) -> None:
    await cluster.create(a_pod(name, namespace=namespace, node=node.metadata.name))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    await cluster.patch(Pod, name, ready, namespace=namespace, subresource="status")
    await cluster.evict(name, namespace)

    conditions = (await cluster.get(Pod, name, namespace)).status.conditions

    assert {each.type for each in conditions} == {"Ready", "DisruptionTarget"}


async def test_eviction_without_grace_marks_before_it_removes(
    cluster: Cluster, name: str, namespace: str, node: Node
) -> None:
    made = await cluster.create(a_pod(name, namespace=namespace, node=node.metadata.name))
    await cluster.evict(name, namespace, grace_seconds=0)

    events = cluster.watch(Pod, since=made.metadata.resource_version, namespace=namespace)
    marked = await next_object(events, EventType.MODIFIED)

    assert [each.type for each in marked.status.conditions] == ["DisruptionTarget"]
    assert not await exists(cluster, Pod, name, namespace)


async def test_pod_that_was_never_bound_is_evicted_at_once(cluster: Cluster, name: str, namespace: str) -> None:
    await cluster.create(a_pod(name, namespace=namespace))
    await cluster.evict(name, namespace)

    assert not await exists(cluster, Pod, name, namespace)


async def test_absent_pod_is_not_found(cluster: Cluster, name: str, namespace: str) -> None:
    with pytest.raises(NotFound, match=name):
        await cluster.evict(name, namespace)
