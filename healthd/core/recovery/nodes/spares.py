"""
Spares: healthy nodes that are held free for recoveries. Which one to take, how to claim it, when to return it.

A claim is one conditional write to the spare itself, so two recoveries can never hold the same node. When the bad node
is repaired, it becomes the spare in place of the node that replaced it: the gang is not restarted a second time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from healthd.core.api import (
    ANNOTATION_CLAIM,
    LABEL_SPARE,
    TAINT_RESERVED,
    Node,
    NodeHealth,
    Taint,
)
from healthd.core.api.model import Verdict
from healthd.core.config import RecoveryPolicy
from healthd.core.node.failed_check import read_failed_check
from healthd.core.node.quarantine import read_record
from healthd.core.recovery.gang import GangView, LastCheck, no_sign
from healthd.core.recovery.nodes.foreign_signs import Effect, Sign
from healthd.core.untrusted import InvalidText, number_or, read_json

NO_NODE = "member "
"""Prefix of the placeholder for the node of a member that never had one. No node can have such a name."""


class Claim(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The annotation on a claimed spare."""

    recovery: str
    namespace: str
    gang: str
    gang_uid: str
    instead_of: str
    """The bad node that it replaces. Empty: no node joins the pool for it, and it is claimed until its gang is over."""


def reservation(gang: str, uid: str) -> str:
    """
    The value of the taint on the spares of one gang. The gang's pods tolerate it.

    It has the root's name, for people, and the root's uid: gangs in several namespaces may have the same name, and a
    node is in no namespace. At most 63 characters, as a label value.
    """
    return f"{gang[:54]}-{uid[:8]}".rstrip("-._")


def read_claim(node: Node) -> Claim | None:
    """The claim on *node*, or None."""
    raw = node.metadata.annotations.get(ANNOTATION_CLAIM)
    if raw is None:
        return None
    try:
        return read_json(raw, Claim)
    except InvalidText:
        return None


def is_spare(node: Node) -> bool:
    """Whether the node is held free for recoveries and not claimed."""
    return node.metadata.labels.get(LABEL_SPARE) == "true" and ANNOTATION_CLAIM not in node.metadata.annotations


def is_ready(node: Node) -> bool:
    """Whether its kubelet reports Ready; a node that does not report yet is not ready."""
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def is_fit(node: Node | None, health: NodeHealth | None, sign: Sign | None = None) -> bool:
    """
    Whether a gang may be started on *node*. *sign* is the strongest sign of another detector on it.

    Unknown is not unhealthy: a node whose agent reports nothing is fit, a node that is out of service is not.
    """
    return not unfitness(node, health, sign)


def unfitness(node: Node | None, health: NodeHealth | None, sign: Sign | None) -> str:
    """Why no gang may be started on *node*, in a few words; empty when one may."""
    if node is None:
        return "deleted"
    if (record := read_record(node)) is not None:
        return f"in quarantine for {record.finding}"
    if node.spec.unschedulable:
        return "cordoned"
    if not is_ready(node):
        return "not ready"
    if (failed := read_failed_check(node)) is not None:
        return f"it failed its check as an idle spare: {failed.why}"
    if sign is not None and sign.effect is Effect.RESTART:
        return f"called bad by another detector, {sign.row}"
    return "its agent calls it unhealthy" if health is not None and health.status.verdict is Verdict.UNHEALTHY else ""


def choose(
    bad: Sequence[str],
    view: GangView,
    *,
    kept: Mapping[str, str],
    recovery: str,
    policy: RecoveryPolicy,
    used: Collection[str] = (),
    last: Collection[str] = (),
) -> dict[str, str]:
    """
    A spare for each node of *bad*, while there are any: bad node -> spare.

    The spare has the same hardware as the node that it replaces, and is the nearest one to it. *used* are nodes that
    the gang is on already, such as a spare of an earlier attempt. Those in *last* are taken only without another.
    Choices in *kept* stay while their spare is fit, and free or already ours: so a repeated decision gives the same
    result.
    """
    in_use = set(used)
    pool = {n: node for n, node in view.nodes.items() if n not in in_use and _is_free(n, node, view, recovery)}
    usual = next((view.nodes[n] for n in sorted(in_use) if n in view.nodes), None)
    chosen: dict[str, str] = {}
    taken: set[str] = set()
    alike: dict[str, list[str]] = {}
    for name in sorted(bad, key=lambda name: name not in kept):  # kept spares are not available for the others
        model = view.nodes.get(name) or usual
        kind = model.metadata.name if model else ""
        if kind not in alike:
            alike[kind] = [n for n, node in pool.items() if _is_like(node, model, policy)]
        fitting = alike[kind] = [n for n in alike[kind] if n not in taken]
        stands = kept.get(name)
        if fitting:
            best = min(fitting, key=lambda n: (n in last, *_preference(n, pool[n], model, view, policy), n))
            chosen[name] = stands if stands in fitting else best
            taken.add(chosen[name])
    return {name: chosen[name] for name in bad if name in chosen}


def obstacles(bad: str, view: GangView, policy: RecoveryPolicy) -> dict[str, str]:
    """Why no spare replaces *bad*: spare -> the reason, in a few words."""
    model = view.nodes.get(bad)
    held = {n: node for n, node in sorted(view.nodes.items()) if is_spare(node) or _is_claimed_by_hand(node)}
    return {n: _obstacle(n, node, model, view, policy) for n, node in held.items()}


def _is_claimed_by_hand(node: Node) -> bool:
    """Whether a spare carries a claim that healthd did not write: while that stands, it is out of the pool."""
    is_labelled = node.metadata.labels.get(LABEL_SPARE) == "true"
    return is_labelled and ANNOTATION_CLAIM in node.metadata.annotations and read_claim(node) is None


def _obstacle(name: str, node: Node, model: Node | None, view: GangView, policy: RecoveryPolicy) -> str:
    if unfit := unfitness(node, view.health.get(name), view.sign_on(name)):
        return unfit
    if _is_claimed_by_hand(node):
        return f"its annotation {ANNOTATION_CLAIM} is none of healthd's"
    if name in view.occupied:
        return f"occupied by {view.occupied[name]}"
    if name in view.unclaimable:
        return f"the API server refuses its claim: {view.unclaimable[name]}"
    return "needed for another member" if _is_like(node, model, policy) else "its hardware differs"


def _preference(
    name: str, node: Node, model: Node | None, view: GangView, policy: RecoveryPolicy
) -> tuple[tuple[bool, ...], bool, int, list[bool], bool]:
    """
    The sort key of a spare: without doubts, then not left by a gang because a rank was slow there, then not in a check,
    then near, then one that passed its check lately. One that failed its check as an idle spare, and is in service all
    the same, comes last of these: no other has confirmed that.
    """
    said = view.last_checks.get(name, LastCheck.NONE)
    check = {LastCheck.RUNNING: 1, LastCheck.FAILED: 2}.get(said, 0)
    is_slow = name in view.left_slow
    return _doubts(name, view), is_slow, check, _distance(node, model, policy), said is not LastCheck.PASSED


def _doubts(name: str, view: GangView) -> tuple[bool, bool, bool]:
    """
    The sort key of the doubts about a node: nodes with doubts are used only when there is no other.

    Unknown is not unhealthy: so a node that no agent reports as healthy can be used. A node with pods of another gang
    can be used, too: the pods may hold no device, and if they do, that is found before the claim.
    """
    return is_avoided(name, view), name in view.busy, is_unknown(name, view)


def is_unknown(name: str, view: GangView) -> bool:
    """Whether its agent is silent, or cannot see enough to report whether the node is healthy."""
    health = view.health.get(name)
    return view.is_silent(name) or (health is not None and health.status.verdict is Verdict.UNKNOWN)


def is_doubtful(name: str, view: GangView) -> bool:
    """Whether there is any doubt about the node: a gang that runs, and would be restarted for it, may lose by that."""
    return name in view.occupied or any(_doubts(name, view))


def _is_free(name: str, node: Node, view: GangView, recovery: str) -> bool:
    """Whether the node is fit, and held free or claimed by this *recovery*."""
    if not is_spare(node) and ANNOTATION_CLAIM not in node.metadata.annotations:
        return False
    if not is_fit(node, view.health.get(name), view.sign_on(name)):
        return False
    if read_claim(node) is None:
        return is_spare(node) and name not in view.occupied and name not in view.unclaimable
    return is_held(name, view, recovery)


def is_held(name: str, view: GangView, recovery: str) -> bool:
    """
    Whether *recovery*, of the gang of *view*, has claimed the node.

    Recoveries in different namespaces may have the same name.
    """
    node = view.nodes.get(name)
    claim = read_claim(node) if node else None
    return claim is not None and claim.recovery == recovery and (not view.root or claim.gang_uid == view.root.ref.uid)


def _is_like(spare: Node, model: Node | None, policy: RecoveryPolicy) -> bool:
    """Whether *spare* has the hardware of *model*: the same product, and at least as many devices of each kind."""
    if model is None:
        return True
    mark = next((label for label in policy.spare_like if label in model.metadata.labels), None)
    if mark is not None and spare.metadata.labels.get(mark) != model.metadata.labels[mark]:
        return False
    # A lost GPU is no longer in `allocatable`, but may still be in `capacity`.
    need, offer = Counter(_devices(model.status.capacity)), _devices(spare.status.allocatable)
    need |= Counter(_devices(model.status.allocatable))
    return all(offer.get(resource, 0) >= count for resource, count in need.items())


def _devices(amounts: Mapping[str, str]) -> dict[str, int]:
    """Extended resources, such as `nvidia.com/gpu`: they have a domain in their name and are whole numbers."""
    return {name: number_or(amount, 0) for name, amount in amounts.items() if "/" in name}


def _distance(spare: Node, model: Node | None, policy: RecoveryPolicy) -> list[bool]:
    here = model.metadata.labels if model else {}
    return [label in here and spare.metadata.labels.get(label) != here[label] for label in policy.spare_near]


def is_avoided(name: str, view: GangView) -> bool:
    """Whether another detector advises against the node."""
    sign = view.sign_on(name)
    return sign is not None and sign.effect in (Effect.AVOID, Effect.MOVE)


def claim_patch(node: Node, claim: Claim) -> dict[str, Any]:
    """Take *node* out of the pool for one gang. The write needs the node's resourceVersion as precondition."""
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
    """Put *node* into the pool. The write needs the node's resourceVersion as precondition."""
    taints = [*_without(node.spec.taints, LABEL_SPARE, TAINT_RESERVED), Taint(key=LABEL_SPARE)]
    return {
        "metadata": {"labels": {LABEL_SPARE: "true"}, "annotations": {ANNOTATION_CLAIM: None}},
        "spec": {"taints": msgspec.to_builtins(taints)},
    }


def keep_patch(claim: Claim) -> dict[str, Any]:
    """Let *claim* wait for no repaired node any more. The write needs its node's resourceVersion as precondition."""
    kept = msgspec.structs.replace(claim, instead_of="")
    return {"metadata": {"annotations": {ANNOTATION_CLAIM: msgspec.json.encode(kept).decode()}}}


def settle_patch(node: Node) -> dict[str, Any]:
    """Make a claimed spare an ordinary node: the repaired node is in the pool now. Needs the node's resourceVersion."""
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
    """Make this claimed spare an ordinary node of its gang."""

    node: str
    reason: str


class KeepSpare(msgspec.Struct, frozen=True):
    """Keep this spare claimed as long as its gang needs it: another claim waits for the node that it replaced."""

    node: str
    claim: Claim
    reason: str


SpareStep = ReturnSpare | SettleSpare | KeepSpare


def origin(bad: str, nodes: Mapping[str, Node], gang_uid: str) -> str:
    """The node that a replacement of *bad* stands in for: if *bad* is itself a spare, the node that *bad* replaced."""
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
    sign_on: Callable[[str], Sign | None] = no_sign,
) -> list[SpareStep]:
    """
    What to do about claims that are no longer needed.

    *placements* are the planned nodes of each living gang, by the uid of its root; a gang that ended or was given up is
    not in it. *recovering* are the gangs whose recovery goes on: it may still change its plan. *busy* names the nodes
    with live pods, and the planned nodes of gangs.

    The swap of a repaired node is two writes: first the repaired node joins the pool, then its replacement becomes an
    ordinary node. After a crash between the two, only the second write is decided.

    A repaired node joins the pool for one claim alone. Two claims name the same node where a gang came to use the node
    again that a spare had replaced, and it failed once more.
    """
    steps: list[SpareStep] = []
    claims = {name: claim for name, node in sorted(nodes.items()) if (claim := read_claim(node))}
    awaited = {claim.instead_of for claim in claims.values() if claim.gang_uid in recovering}
    for name, claim in claims.items():
        if claim.gang_uid in recovering:
            continue
        if name not in placements.get(claim.gang_uid, ()):
            if name not in busy:
                steps.append(ReturnSpare(name, f"{claim.gang} does not need it any more"))
        elif claim.instead_of and claim.instead_of in awaited:
            steps.append(KeepSpare(name, claim, f"another spare stands in for {claim.instead_of}, too"))
        else:
            awaited.add(claim.instead_of)
            if step := _swap(name, claim, nodes, health, busy, sign_on):
                steps.append(step)
    return steps


def unheld(nodes: Iterable[Node]) -> list[ReturnSpare]:
    """Spares that a person has labelled but not tainted: without the taint other pods would be placed there."""
    why = f"labelled {LABEL_SPARE}: the taint of that name keeps other pods off"
    labelled = [node for node in nodes if is_spare(node)]
    return [ReturnSpare(n.metadata.name, why) for n in labelled if all(t.key != LABEL_SPARE for t in n.spec.taints)]


def unclaimed(nodes: Iterable[Node]) -> list[SettleSpare]:
    """Spares whose claim a person took away: the taint that went with it would keep every pod off for ever."""
    why = f"its annotation {ANNOTATION_CLAIM} was taken away: the taint {TAINT_RESERVED} goes, too"
    return [SettleSpare(node.metadata.name, why) for node in nodes if is_reserved_for_none(node)]


def is_reserved_for_none(node: Node) -> bool:
    """Whether the node has the taint of a claim, and neither a claim nor a place in the pool."""
    is_reserved = any(taint.key == TAINT_RESERVED for taint in node.spec.taints)
    return is_reserved and ANNOTATION_CLAIM not in node.metadata.annotations and not is_spare(node)


def _swap(
    name: str,
    claim: Claim,
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    busy: Collection[str],
    sign_on: Callable[[str], Sign | None],
) -> ReturnSpare | SettleSpare | None:
    bad = claim.instead_of
    repaired = nodes.get(bad)
    sign = sign_on(bad)
    if repaired is None or not is_fit(repaired, health.get(bad), sign) or bad in busy:
        return None
    if sign is not None and sign.effect is Effect.MOVE:
        return None  # its maintenance is not over
    if is_spare(repaired) or read_claim(repaired) is not None:
        return SettleSpare(name, f"{claim.instead_of} is in the pool again")
    return ReturnSpare(claim.instead_of, f"it is fit; {name} keeps its place in {claim.gang}")


def _without(taints: Sequence[Taint], *keys: str) -> list[Taint]:
    return [taint for taint in taints if taint.key not in keys]
