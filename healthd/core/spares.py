"""
Spares: healthy nodes held free for recoveries. Which to take, how to claim one, and when it goes back.

A claim is one conditional write to the spare itself, so two recoveries can never hold the same node. The node that a
spare stands in for becomes the spare when it is repaired: the gang is not disturbed a second time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from healthd.core.model import Verdict
from healthd.core.objects import (
    ANNOTATION_CLAIM,
    LABEL_SPARE,
    TAINT_RESERVED,
    Node,
    NodeHealth,
    Taint,
)
from healthd.core.quarantine import read_record


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The annotation on a claimed spare."""

    recovery: str
    namespace: str
    gang: str
    gang_uid: str
    instead_of: str
    """The bad node whose place it takes."""


def reservation(gang: str, uid: str) -> str:
    """
    The value of the taint on the spares of one gang, which its pods tolerate: the root's name, for people, and its uid.

    Gangs of the same name live in several namespaces, and a node is in none. At most 63 characters, as a label value.
    """
    return f"{gang[:54]}-{uid[:8]}".rstrip("-._")


def read_claim(node: Node) -> Claim | None:
    """The claim on *node*, or None."""
    raw = node.metadata.annotations.get(ANNOTATION_CLAIM)
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=Claim)
    except msgspec.MsgspecError:
        return None


def is_spare(node: Node) -> bool:
    """Held free for recoveries and not claimed."""
    return node.metadata.labels.get(LABEL_SPARE) == "true" and ANNOTATION_CLAIM not in node.metadata.annotations


def is_ready(node: Node) -> bool:
    """Its kubelet says so; a node that does not report yet is not ready."""
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def is_fit(node: Node | None, health: NodeHealth | None) -> bool:
    """
    May a gang be started on *node*?

    Unknown is not unhealthy: a node whose agent says nothing is fit, one that is out of service is not.
    """
    if node is None or node.spec.unschedulable or read_record(node) is not None or not is_ready(node):
        return False
    return health is None or health.status.verdict is not Verdict.UNHEALTHY


def choose(
    bad: Sequence[str],
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    *,
    kept: Mapping[str, str],
    recovery: str,
    used: Collection[str] = (),
) -> dict[str, str]:
    """
    A spare for each node of *bad*, as far as there are any: bad node -> spare.

    *used* are nodes that the gang is on already, a spare of an earlier attempt among them.
    Choices in *kept* stand while their spare is fit and free or already ours, so that a repeated decision is the same.
    """
    chosen: dict[str, str] = {}
    for node_name in bad:
        candidates = [kept[node_name]] if node_name in kept else []
        candidates += sorted(nodes)
        taken = {*chosen.values(), *used}
        spare = next((n for n in candidates if n not in taken and _usable(n, nodes, health, recovery)), None)
        if spare is not None:
            chosen[node_name] = spare
    return chosen


def _usable(name: str, nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], recovery: str) -> bool:
    node = nodes.get(name)
    if node is None or not is_fit(node, health.get(name)):
        return False
    claim = read_claim(node)
    return is_spare(node) if claim is None else claim.recovery == recovery


def claim_patch(node: Node, claim: Claim) -> dict[str, Any]:
    """Take *node* out of the pool for one gang. Needs its resourceVersion as precondition."""
    taints = _without(node.spec.taints, LABEL_SPARE, TAINT_RESERVED)
    taints.append(Taint(key=TAINT_RESERVED, value=reservation(claim.gang, claim.gang_uid)))
    return {
        "metadata": {
            "labels": {LABEL_SPARE: None},
            "annotations": {ANNOTATION_CLAIM: msgspec.json.encode(claim).decode()},
        },
        "spec": {"taints": msgspec.to_builtins(taints)},
    }


def return_patch(node: Node) -> dict[str, Any]:
    """Put *node* into the pool. Needs its resourceVersion as precondition."""
    taints = [*_without(node.spec.taints, LABEL_SPARE, TAINT_RESERVED), Taint(key=LABEL_SPARE)]
    return {
        "metadata": {"labels": {LABEL_SPARE: "true"}, "annotations": {ANNOTATION_CLAIM: None}},
        "spec": {"taints": msgspec.to_builtins(taints)},
    }


def settle_patch(node: Node) -> dict[str, Any]:
    """Make a claimed spare an ordinary node: its stand-in is in the pool now. Needs its resourceVersion."""
    taints = _without(node.spec.taints, LABEL_SPARE, TAINT_RESERVED)
    return {
        "metadata": {"annotations": {ANNOTATION_CLAIM: None}},
        "spec": {"taints": msgspec.to_builtins(taints) or None},
    }


class ReturnSpare(msgspec.Struct, frozen=True):
    """Put this node into the pool."""

    node: str
    reason: str


class SettleSpare(msgspec.Struct, frozen=True):
    """This claimed spare is an ordinary node of its gang from now on."""

    node: str
    reason: str


def origin(bad: str, nodes: Mapping[str, Node], gang_uid: str) -> str:
    """Whose place a spare takes that replaces *bad*; if *bad* stands in for another node itself, that one's."""
    node = nodes.get(bad)
    claim = read_claim(node) if node else None
    return claim.instead_of if claim is not None and claim.gang_uid == gang_uid else bad


def settle(
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    *,
    placements: Mapping[str, Collection[str]],
    recovering: Collection[str],
    busy: Collection[str],
) -> list[ReturnSpare | SettleSpare]:
    """
    What to do about claims whose time is over.

    *placements* are the nodes that each living gang, by the uid of its root, was told to run on; a gang that ended or
    was given up is not in it. *recovering* are the gangs whose recovery goes on: it may still change its plan.
    *busy* names the nodes with live pods, and those that a gang is to run on.

    The swap of a repaired node is two writes: first it joins the pool, then its stand-in becomes ordinary; a crash
    between them leaves a state in which the second alone is decided.
    """
    steps: list[ReturnSpare | SettleSpare] = []
    for name, node in sorted(nodes.items()):
        claim = read_claim(node)
        if claim is None or claim.gang_uid in recovering:
            continue
        if name not in placements.get(claim.gang_uid, ()):
            if name not in busy:
                steps.append(ReturnSpare(name, f"{claim.gang} does not need it any more"))
        elif step := _swap(name, claim, nodes, health, busy):
            steps.append(step)
    return steps


def _swap(
    name: str, claim: Claim, nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], busy: Collection[str]
) -> ReturnSpare | SettleSpare | None:
    repaired = nodes.get(claim.instead_of)
    if repaired is None or not is_fit(repaired, health.get(claim.instead_of)) or claim.instead_of in busy:
        return None
    if is_spare(repaired) or read_claim(repaired) is not None:
        return SettleSpare(name, f"{claim.instead_of} is in the pool again")
    return ReturnSpare(claim.instead_of, f"repaired; {name} keeps its place in {claim.gang}")


def _without(taints: Sequence[Taint], *keys: str) -> list[Taint]:
    return [taint for taint in taints if taint.key not in keys]
