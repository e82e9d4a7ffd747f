"""Writes to a node, and the owner reference to a node: what agent and controller both need."""

from __future__ import annotations

from typing import Any

from healthd.cluster.port import Cluster, Conflict
from healthd.core.api import Node, NodeManifest, OwnerReference, Taint
from healthd.core.patches import with_unknown_fields

_OURS = "healthd.dev/"
"""The prefix of the keys of all taints of healthd."""


async def patch_node(cluster: Cluster, node: Node, patch: dict[str, Any]) -> Node:
    """
    One write to *node*. Raises Conflict when it changed since it was read.

    A patch replaces the whole list of taints. So those of others are read again as they are stored, with fields of a
    later Kubernetes. Where there are none, that read is left out.
    """
    taints = (patch.get("spec") or {}).get("taints") or []
    if any(not taint["key"].startswith(_OURS) for taint in taints):
        stored = await cluster.get(NodeManifest, node.metadata.name)
        if (stored.metadata.uid, stored.metadata.resource_version) != (
            node.metadata.uid,
            node.metadata.resource_version,
        ):
            raise Conflict(f"Node {node.metadata.name}: it changed since it was read")
        taints = with_unknown_fields(taints, stored.spec.get("taints") or [], Taint)
        patch = {**patch, "spec": {**patch["spec"], "taints": taints}}
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
