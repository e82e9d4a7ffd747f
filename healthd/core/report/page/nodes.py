"""One cell of the fleet grid for each node: its failure domain, its state, and why."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from healthd.core.api import ANNOTATION_CLAIM, Node, NodeHealth
from healthd.core.api.model import Verdict
from healthd.core.node.quarantine import Record, read_record
from healthd.core.node.reporting import is_silent
from healthd.core.printable import printable
from healthd.core.recovery.nodes.spares import is_ready, is_spare, read_claim

LONGEST_NAME = 317
"""Characters of a failure domain that are shown: the longest label."""
LONGEST_REASON = 160
"""Characters of a reason in the grid. The page of the node has the whole text."""


class NodeState(StrEnum):
    """The state of a node, in the order of a list: first those that need a person."""

    UNHEALTHY = "unhealthy"
    """It has a finding that should take it out of service, and it is in service."""
    QUARANTINED = "in quarantine"
    NOT_READY = "not ready"
    UNKNOWN = "unknown"
    """Its agent does not report, or is blind."""
    CORDONED = "cordoned"
    """By another than healthd."""
    DEGRADED = "degraded"
    HEALTHY = "healthy"


class SpareState(StrEnum):
    """Whether the node is a spare."""

    NO = ""
    FREE = "spare free"
    IN_USE = "spare in use"


class NodeCell(msgspec.Struct, frozen=True, array_like=True):
    """One node of the grid. An array on the wire: there may be thousands."""

    domain: str
    """The value of the label of failure domains; empty: it has none."""
    state: NodeState
    spare: SpareState
    reason: str
    """Why it is in this state, for a person; empty for a healthy one."""


def node_cell(node: Node, health: NodeHealth | None, domain_label: str, now: datetime) -> NodeCell:
    """The cell of *node*, with the last report of its agent."""
    state, reason = state_of(node, health, now)
    return NodeCell(
        domain=printable(node.metadata.labels.get(domain_label, ""))[:LONGEST_NAME],
        state=state,
        spare=spare_state(node),
        reason=printable(reason)[:LONGEST_REASON],
    )


def state_of(node: Node, health: NodeHealth | None, now: datetime) -> tuple[NodeState, str]:
    """The state of *node*, and why."""
    if (record := read_record(node)) is not None:
        return NodeState.QUARANTINED, quarantine_reason(record)
    verdict = health.status.verdict if health is not None else Verdict.UNKNOWN
    message = health.status.message if health is not None else ""
    if verdict is Verdict.UNHEALTHY:
        return NodeState.UNHEALTHY, f"in service, although: {message}"
    if not is_ready(node):
        return NodeState.NOT_READY, "its kubelet does not report Ready"
    if node.spec.unschedulable:
        return NodeState.CORDONED, "cordoned, but not by healthd"
    if health is None:
        return NodeState.UNKNOWN, "no agent has reported about it"
    if verdict is Verdict.HEALTHY and health.status.seen_at is not None and is_silent(health.status, now):
        return NodeState.UNKNOWN, f"its agent has not reported since {health.status.seen_at:%Y-%m-%d %H:%M:%S} UTC"
    return NodeState(verdict.value), message if verdict is not Verdict.HEALTHY else ""


def quarantine_reason(record: Record) -> str:
    """Why and since when a node is in quarantine."""
    return f"{record.finding}: {record.message}" if record.message else record.finding


def spare_state(node: Node) -> SpareState:
    """Whether *node* is a spare, free or claimed."""
    if ANNOTATION_CLAIM in node.metadata.annotations:
        return SpareState.IN_USE
    return SpareState.FREE if is_spare(node) else SpareState.NO


def claimed_for(node: Node) -> str:
    """What a spare in use does, in words; empty where it is none."""
    claim = read_claim(node)
    if claim is None:
        return ""
    place = f"in place of {claim.instead_of} " if claim.instead_of else ""
    return printable(f"{place}for {claim.gang} in {claim.namespace}, by {claim.recovery}")
