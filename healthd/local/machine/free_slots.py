"""
Slots for a run that starts outside a recovery: spares become plain slots when other slots are out of service.

A recovery claims a spare for its gang. A gang that its user starts again has no recovery, so nothing claims a spare:
its ranks would wait beside a free spare.
"""

from __future__ import annotations

from collections.abc import Sequence

from healthd.cluster.port import Cluster, Conflict
from healthd.core.api import ANNOTATION_CLAIM, LABEL_SPARE, TAINT_RESERVED, Node
from healthd.core.node.quarantine import read_record
from healthd.core.recovery.nodes.spares import is_fit

KEPT_FREE = frozenset({LABEL_SPARE, TAINT_RESERVED})
TRIES = 5


async def open_spares(cluster: Cluster, ranks: int) -> list[str]:
    """
    Turn spares into plain slots until each of *ranks* has a slot, or no spare is left. Returns their names.

    Call it only while no gang runs: the claims of a gang that ended or was stopped are no longer valid.
    """
    for _ in range(TRIES):
        nodes = (await cluster.list(Node)).items
        missing = ranks - sum(map(_is_plain, nodes))
        try:
            wanted = [node for node in nodes if _is_held_free(node)][: max(0, missing)]
            return [await _open(cluster, node) for node in wanted]
        except Conflict:  # the controller removes old claims at the same time
            continue
    return []


def shortage(nodes: Sequence[Node], ranks: int) -> str:
    """What is missing for *ranks* to run. Empty when nothing is missing."""
    fit = [node for node in nodes if is_fit(node, None)]
    if len(fit) >= ranks:
        return ""
    out = [node for node in nodes if node.spec.unschedulable]
    out_of_service = ", ".join(f"{node.metadata.name} is out of service ({_finding(node)})" for node in out)
    return f"{ranks} ranks need {ranks} slots, and {len(fit)} are in service: {out_of_service or 'there are no more'}"


def _finding(node: Node) -> str:
    record = read_record(node)
    return record.finding.rpartition("/")[2] if record else "not by healthd"


def _is_plain(node: Node) -> bool:
    return is_fit(node, None) and not node.spec.taints


def _is_held_free(node: Node) -> bool:
    return is_fit(node, None) and bool(node.spec.taints) and {taint.key for taint in node.spec.taints} <= KEPT_FREE


async def _open(cluster: Cluster, node: Node) -> str:
    meta = node.metadata
    notes = {"labels": {LABEL_SPARE: None}, "annotations": {ANNOTATION_CLAIM: None}}
    patch = {"metadata": notes, "spec": {"taints": None}}
    await cluster.patch(Node, meta.name, patch, resource_version=meta.resource_version)
    return meta.name
