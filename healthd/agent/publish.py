"""
Write what the agent knows to its `NodeHealth`, and the verdict to the node's conditions; both only when they change.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.cluster.nodes import owned_by
from healthd.cluster.port import AlreadyExists, Cluster, NotFound
from healthd.core.model import Verdict
from healthd.core.objects import (
    ANNOTATION_REPAIRED,
    Condition,
    Node,
    NodeHealth,
    NodeHealthStatus,
    ObjectMeta,
)
from healthd.core.patches import diff

ACCELERATOR_HEALTHY = "AcceleratorHealthy"
_STATUS = {Verdict.HEALTHY: "True", Verdict.DEGRADED: "True", Verdict.UNHEALTHY: "False", Verdict.UNKNOWN: "Unknown"}
_REASON = {
    Verdict.HEALTHY: "NoFindings",
    Verdict.DEGRADED: "Degraded",
    Verdict.UNHEALTHY: "Unhealthy",
    Verdict.UNKNOWN: "Unknown",
}


async def read_health(cluster: Cluster, node_name: str) -> NodeHealth | None:
    """The node's health object; None when it was never published."""
    try:
        return await cluster.get(NodeHealth, node_name)
    except NotFound:
        return None


async def publish_health(
    cluster: Cluster, node: Node, before: NodeHealthStatus | None, status: NodeHealthStatus
) -> NodeHealthStatus:
    """
    Make the stored status *status*. *before* is what this agent last knew to be stored; None: look.

    Only this agent writes the object, so no precondition is needed: the last word is always the newest.
    """
    if before is None:
        stored = await read_health(cluster, node.metadata.name)
        before = stored.status if stored else await _create(cluster, node)
    patch = diff(before, status)
    if patch:
        await cluster.patch(NodeHealth, node.metadata.name, {"status": patch}, subresource="status")
    return status


async def publish_condition(cluster: Cluster, node: Node, verdict: Verdict, message: str, now: datetime) -> None:
    """Set the node's condition; `lastTransitionTime` moves only when its status does."""
    wanted = Condition(
        type=ACCELERATOR_HEALTHY,
        status=_STATUS[verdict],
        reason=_REASON[verdict],
        message=message,
        last_transition_time=now,
        last_heartbeat_time=now,
    )
    current = next((c for c in node.status.conditions if c.type == ACCELERATOR_HEALTHY), None)
    if current is not None:
        if (current.status, current.reason, current.message) == (wanted.status, wanted.reason, wanted.message):
            return
        if current.status == wanted.status:
            wanted = replace(wanted, last_transition_time=current.last_transition_time)
    others = [c for c in node.status.conditions if c.type != ACCELERATOR_HEALTHY]
    patch: dict[str, Any] = {"status": {"conditions": msgspec.to_builtins([*others, wanted])}}
    # A merge patch replaces the whole list, so nobody else may have written a condition since it was read.
    await cluster.patch(
        Node, node.metadata.name, patch, subresource="status", resource_version=node.metadata.resource_version
    )


def repaired_at(node: Node) -> datetime | None:
    """When somebody said that *node* was repaired; None when nobody did or the time is not readable."""
    try:
        return msgspec.convert(node.metadata.annotations.get(ANNOTATION_REPAIRED), datetime | None)
    except msgspec.ValidationError:
        return None


async def _create(cluster: Cluster, node: Node) -> NodeHealthStatus:
    meta = ObjectMeta(name=node.metadata.name, owner_references=[owned_by(node)])
    try:
        created = await cluster.create(NodeHealth(metadata=meta))
    except AlreadyExists:
        created = await cluster.get(NodeHealth, node.metadata.name)
    return created.status
