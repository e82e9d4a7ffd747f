"""Writes to a node, and the owner reference to a node: what agent and controller both need."""

from __future__ import annotations

from typing import Any

from healthd.cluster.port import Cluster
from healthd.core.api import Node, OwnerReference


async def patch_node(cluster: Cluster, node: Node, patch: dict[str, Any]) -> Node:
    """One write to *node*. Raises Conflict when it changed since it was read."""
    return await cluster.patch(
        Node,
        node.metadata.name,
        patch,
        resource_version=node.metadata.resource_version,
        uid=node.metadata.uid,
    )


def owned_by(node: Node) -> OwnerReference:
    """The owner reference that deletes an object together with its *node*."""
    return OwnerReference(api_version="v1", kind="Node", name=node.metadata.name, uid=node.metadata.uid)
