"""Writes to a node: the taints of others stay as they are, with fields of a later Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.nodes import patch_node
from healthd.cluster.port import Conflict
from healthd.core.api import TAINT_QUARANTINED, Node, NodeManifest, ObjectMeta
from healthd.core.node.quarantine import Record, cordon_patch, uncordon_patch
from healthd.core.recovery.nodes.spares import Claim, claim_patch, return_patch, settle_patch
from tests.agent.request_log import CountingCluster
from tests.fakes import START, ManualClock, counting_uids

FUTURE = {"key": "nvidia.com/gpu", "effect": "NoSchedule", "graceful": {"seconds": 30}}
"""No version has such a field yet."""
ANOTHER = {
    "key": "maintenance",
    "value": "soon",
    "effect": "NoExecute",
    "timeAdded": "2026-03-01T00:00:00Z",
    "by": "me",
}
CLAIM = Claim(recovery="train-1", namespace="default", gang="train", gang_uid="uid-train", instead_of="bad")
RECORD = Record(finding="0000:3b:00.0/xid-79", message="off the bus", since=START)


@pytest.fixture
async def cluster() -> EmbeddedCluster:
    """With `node-a`, which has the taints of others."""
    cluster = EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids())
    await cluster.create(NodeManifest(metadata=ObjectMeta(name="node-a"), spec={"taints": [FUTURE, ANOTHER]}))
    return cluster


async def write(cluster: Any, make: Any) -> None:
    """One write to the node, as it is now."""
    node = await cluster.get(Node, "node-a")
    await patch_node(cluster, node, make(node))


async def taints(cluster: EmbeddedCluster) -> list[dict[str, Any]]:
    """As they are stored."""
    found: list[dict[str, Any]] = (await cluster.get(NodeManifest, "node-a")).spec.get("taints", [])
    return found


async def test_a_quarantine_keeps_the_taints_of_others_as_they_are(cluster: EmbeddedCluster) -> None:
    await write(cluster, lambda node: cordon_patch(node, RECORD))
    cordoned = await taints(cluster)
    await write(cluster, lambda node: uncordon_patch(node, RECORD))

    assert cordoned[:2] == [FUTURE, ANOTHER]
    assert cordoned[2]["key"] == TAINT_QUARANTINED
    assert await taints(cluster) == [FUTURE, ANOTHER]


async def test_a_claim_keeps_the_taints_of_others_as_they_are(cluster: EmbeddedCluster) -> None:
    for make in (return_patch, lambda node: claim_patch(node, CLAIM), return_patch, settle_patch):
        await write(cluster, make)

        assert (await taints(cluster))[:2] == [FUTURE, ANOTHER]
    assert await taints(cluster) == [FUTURE, ANOTHER]


async def test_a_write_to_a_node_that_changed_since_is_refused(cluster: EmbeddedCluster) -> None:
    node = await cluster.get(Node, "node-a")
    await cluster.patch(Node, "node-a", {"metadata": {"labels": {"pool": "b"}}})

    with pytest.raises(Conflict):
        await patch_node(cluster, node, cordon_patch(node, RECORD))

    assert await taints(cluster) == [FUTURE, ANOTHER]


async def test_a_write_to_a_node_without_taints_of_others_costs_one_request(cluster: EmbeddedCluster) -> None:
    await cluster.patch(Node, "node-a", {"spec": {"taints": None}})
    await write(cluster, return_patch)
    counting = CountingCluster(cluster)

    await write(counting, lambda node: cordon_patch(node, RECORD))

    assert [request for request in counting.requests if "patch" in request] == ["patch Node"]
    assert len(counting.requests) == 2


async def test_a_taint_that_a_patch_changes_is_written_as_it_is_to_be(cluster: EmbeddedCluster) -> None:
    changed = {"key": "nvidia.com/gpu", "value": "drain", "effect": "NoSchedule"}
    await write(cluster, lambda _: {"spec": {"taints": [changed, {"key": "maintenance", "effect": "NoExecute"}]}})

    assert await taints(cluster) == [changed, {"key": "maintenance", "effect": "NoExecute"}]
