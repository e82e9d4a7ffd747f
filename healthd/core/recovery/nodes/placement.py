"""
Where the next attempt runs: every member stays on its node, and only bad nodes are replaced.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from healthd.core.api import FencedPod, Pod, RecoveryStatus, Shrunk
from healthd.core.config import RecoveryPolicy
from healthd.core.phrases import some
from healthd.core.recovery.gang import BESIDE, GangView, Root
from healthd.core.recovery.hangs.suspicion import node_to_replace, suspected_nodes, suspicion_text
from healthd.core.recovery.members import attempt_of, is_terminal, with_seats
from healthd.core.recovery.nodes.spares import (
    NO_NODE,
    choose,
    is_avoided,
    is_fit,
    is_held,
    is_spare,
    is_unknown,
    obstacles,
)
from healthd.core.recovery.planned.growth import at_own_size, returned
from healthd.core.recovery.terms import Terms


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """A node for every member. *replacements* is bad node -> spare."""

    placement: dict[str, str]
    replacements: dict[str, str]
    message: str
    left_out: tuple[str, ...] = ()
    """Nodes of the gang that it leaves without a replacement."""


@dataclass(frozen=True, slots=True)
class Shortage:
    """There are too few nodes for the gang; *message* says what is missing."""

    message: str


def place(
    status: RecoveryStatus,
    view: GangView,
    root: Root,
    recovery: str,
    policy: RecoveryPolicy,
    shrunk: Shrunk | None = None,
    added: Collection[str] = (),
) -> PlacementPlan | Shortage:
    """
    Plan the next attempt of the gang whose last attempt had the pods of *status*.

    A gang that has left members out, by the record *shrunk*, has them again where there are nodes for them. Members
    that were *added* so, and found no node, are left out again: their node is not waited for a second time.
    """
    root = _without_plans(root, status.pods, added)
    plan = _place(status, view, root, recovery, policy)
    whole = at_own_size(root, shrunk)
    if shrunk is None:
        return plan
    back = returned(shrunk, view, {pod.node for pod in status.pods}) if whole is not root else []
    larger = _place(status, view, whole, recovery, policy, back) if whole is not root else plan
    chosen = larger if _size(larger) > _size(plan) else plan
    if isinstance(chosen, Shortage):
        return chosen
    kept = {*chosen.placement.values()}
    gone = [node for node in shrunk.nodes if node not in kept]
    message = chosen.message if chosen is plan else _growth_text(chosen, root)
    return dataclasses.replace(chosen, left_out=tuple(dict.fromkeys([*chosen.left_out, *gone])), message=message)


def _without_plans(root: Root, pods: Sequence[FencedPod], added: Collection[str]) -> Root:
    """*root* without the planned nodes of those *added* members that never had a node."""
    placed = {pod.index for pod in pods if pod.node}
    vain = {index for index in added if index not in placed}
    if not vain:
        return root
    return dataclasses.replace(root, placement={i: node for i, node in root.placement.items() if i not in vain})


def _size(plan: PlacementPlan | Shortage) -> int:
    return 0 if isinstance(plan, Shortage) else len(plan.placement)


def _growth_text(plan: PlacementPlan, root: Root) -> str:
    more = len(plan.placement) - root.world
    return f"grows back from {root.world} to {len(plan.placement)} {root.terms.member}s" if more > 0 else plan.message


def _place(
    status: RecoveryStatus,
    view: GangView,
    root: Root,
    recovery: str,
    policy: RecoveryPolicy,
    back: Sequence[str] = (),
) -> PlacementPlan | Shortage:
    """
    The plan for the members that *root* asks for. *back* are nodes that the gang left and may have again.

    A node that another detector advises against is replaced when a spare is available, and used when none is. So is a
    node that two independent witnesses of a hang suspect, or on which a rank is slow (`recovery.suspicion`): that one
    first.

    With too few spares the gang shrinks if its owner allowed that (`healthd.dev/min-nodes`), else nothing runs:
    a gang that waits for a missing member wastes every other node.
    """
    pool = {name for name, node in view.nodes.items() if is_spare(node)} | _spares_of_the_plan(status, view, recovery)
    before = _moved_to_empty_nodes(_last_places(status.pods, root, pool, back), root, status, view)
    unfit = {node for node in before.values() if not _is_fit(node, view)}
    bad = [node for node in dict.fromkeys(before.values()) if node in unfit]
    good = [node for node in before.values() if node not in unfit]
    suspect, last = node_to_replace(status), suspected_nodes(status)
    doubtful = [node for node in dict.fromkeys(good) if is_avoided(node, view) or node == suspect]
    doubtful.sort(key=lambda node: node != suspect)
    spares = choose(
        [*bad, *doubtful], view, kept=status.replacements, recovery=recovery, policy=policy, used=good, last=last
    )
    if any(node not in spares for node in bad):  # doubts give way to what is certain
        spares = choose(bad, view, kept=status.replacements, recovery=recovery, policy=policy, used=good, last=last)
    if suspect in good and spares.get(suspect) in last:  # one suspect instead of another is no gain
        del spares[suspect]
    placement = {index: spares.get(node, node) for index, node in before.items() if node not in unfit or node in spares}
    missing = [node for node in bad if node not in spares]
    if not missing:
        text = _plan_text(spares, view, root.terms)
        text += f"; {suspicion_text(suspect, spares, status)}" if suspect in good else ""
        return PlacementPlan(placement, spares, text)
    compact = _compact(placement, root, share=len({*before.values()}) < len(before))
    left = root.elastic_members(compact) or 0
    if root.fewest is None or left < root.fewest:
        numbered = sum(not index.startswith(BESIDE) for index in placement)
        return Shortage(_shortage(missing, root, numbered) + _in_vain(missing[0], view, policy))
    message = f"no spare for {some(missing)}: shrinks from {root.world} to {len(compact)} {root.terms.member}s"
    left_out = tuple(node for node in missing if not node.startswith(NO_NODE))
    return PlacementPlan(compact, spares, message, left_out)


def _moved_to_empty_nodes(
    places: Mapping[str, str], root: Root, status: RecoveryStatus, view: GangView
) -> dict[str, str]:
    """
    *places*, with the empty nodes of the last plan in place of bad ones: its scheduler did not follow the plan.

    A bad node that has a replacement already keeps that one, while no other member runs on it and it is fit.
    """
    held = {*places.values()}
    replaced = {bad for bad, spare in status.replacements.items() if spare not in held and _is_fit(spare, view)}
    planned = [node for node in dict.fromkeys(root.placement.values()) if node not in held]
    empty = [node for node in planned if _is_fit(node, view) and not is_spare(view.nodes[node])]
    bad = [n for n in dict.fromkeys(places.values()) if n not in replaced and not _is_fit(n, view)]
    moves = dict(zip(bad, empty, strict=False))
    return {index: moves.get(node, node) for index, node in places.items()}


def _is_fit(node: str, view: GangView) -> bool:
    return is_fit(view.nodes.get(node), view.health.get(node), view.sign_on(node))


def _compact(placement: Mapping[str, str], root: Root, *, share: bool) -> dict[str, str]:
    """
    *placement*, in which nodes are missing, for as many elastic members as have one, numbered anew.

    A member that is always there and has no node takes that of the last elastic member, or shares it where members
    *share* nodes anyway.
    """
    elastic = dict.fromkeys(root.elastic_numbers)
    nodes = [placement[index] for index in elastic if index in placement]
    others: dict[str, str] = {}
    for index in (each for each in root.numbers if each not in elastic):
        if index not in placement and not nodes:
            return {}
        others[index] = placement.get(index) or (nodes[-1] if share else nodes.pop())
    beside = {index: node for index, node in placement.items() if index.startswith(BESIDE)}
    smaller = root.resized(len(nodes)).elastic_numbers
    return {**others, **dict(zip(smaller, nodes, strict=True)), **beside}


def held_nodes(root: Root, pods: Iterable[Pod]) -> set[str]:
    """
    The nodes that a gang holds: the nodes of its members. While a member has no node, also the planned nodes.

    When every member has a node, a planned node without a member is not held: the scheduler may place members on other
    nodes, and a claimed spare that was not needed is free again. A pod that has ended is no member with a node: the one
    that is made in its place may wait for the planned node. A gang that its user made smaller gives up nodes.
    """
    placed = [pod for pod in pods if attempt_of(pod) == root.attempt and pod.spec.node_name]
    if len(placed) > root.world:
        placed = with_seats(placed, root)
    living = [pod for pod in with_seats(placed, root) if not is_terminal(pod)]
    if len(living) >= root.world:  # one that has ended may stay as an object until the next restart
        return {pod.spec.node_name for pod in living}
    return {*(pod.spec.node_name for pod in placed), *root.placement.values()}


def _spares_of_the_plan(status: RecoveryStatus, view: GangView, recovery: str) -> set[str]:
    """
    The spares that *recovery* has chosen and claimed, and not started the gang on yet.

    They are still spares to the plan. A spare may be a node that the gang had, which a person has put into the pool: if
    the claim made it the gang's own again, each claim would change the plan, and two claims name the same bad node.
    Where it is not on record on which nodes the gang was started, as for thousands of members, there are none.
    """
    earlier = [attempt for attempt in status.attempts if attempt.number != status.attempt]
    if any(not attempt.placement for attempt in earlier):
        return set()
    started = {node for attempt in earlier for node in (*attempt.placement.values(), *attempt.ran_on.values())}
    chosen = set(status.replacements.values()) - started
    return {spare for spare in chosen if is_held(spare, view, recovery)}


def _last_places(
    pods: Sequence[FencedPod], root: Root, pool: Collection[str], back: Sequence[str] = ()
) -> dict[str, str]:
    """
    The node that each member was on, by index. *pods* are in the order of creation.

    For a member that was created again on another node, that is its last node. A member without a node gets a node
    that the gang has left over, or one of *back*; when there is none, its node is the placeholder `member N`, as if
    that were a bad node. A node that went back into the pool of spares is not the gang's any more: it has to be claimed
    again.
    """
    if root.indexes == ():
        # The members have no indexes: any numbers are right, and the newest pods are the last members.
        pods = [replace(pod, index=str(number)) for number, pod in enumerate(pods[-root.world :])]
    extra = max(0, root.world - len(root.seats)) if root.seats else 0
    beside = {pod.uid: f"{BESIDE}{number}" for number, pod in enumerate(_without_index(pods, extra))}
    pods = [replace(pod, index=beside.get(pod.uid, pod.index)) for pod in pods]
    indexes = dict.fromkeys([*root.numbers, *beside.values()])
    if not any(pod.index in indexes for pod in pods):
        return {}  # members without numbers: only the scheduler can place them
    stays = [*root.placement.items(), *((pod.index, pod.node) for pod in pods if pod.node)]
    stays = [(index, node) for index, node in stays if node not in pool]
    alone = _have_nodes_of_their_own(pods)
    places: dict[str, str] = {}
    taken: set[str] = set()
    for index, node in reversed(stays):
        if index in indexes and index not in places and not (alone and node in taken):
            places[index] = node
            taken.add(node)
    left = iter(dict.fromkeys([*(node for _, node in reversed(stays) if node not in taken), *back]))
    return {index: places.get(index) or next(left, f"{NO_NODE}{index}") for index in indexes}


def _without_index(pods: Sequence[FencedPod], most: int) -> list[FencedPod]:
    """The newest members that have no index, at most *most* of them: a launcher."""
    found = [pod for pod in pods if not pod.index]
    return found[-most:] if most else []


def _have_nodes_of_their_own(pods: Sequence[FencedPod]) -> bool:
    """
    Whether no two members of the gang share a node.

    Members that failed and were created again may have used one node one after the other. So a shared node counts only
    when both the first pods of all members and the last pods share nodes.
    """
    firsts = [node for node in {pod.index: pod.node for pod in reversed(pods)}.values() if node]
    lasts = [node for node in {pod.index: pod.node for pod in pods}.values() if node]
    return len(set(firsts)) == len(firsts) or len(set(lasts)) == len(lasts)


def _plan_text(spares: dict[str, str], view: GangView, terms: Terms) -> str:
    if not spares:
        return f"every {terms.member} stays on its {terms.node}"
    text = ", ".join(f"{spare} in place of {bad}" for bad, spare in spares.items())
    unknown = [spare for spare in spares.values() if is_unknown(spare, view)]
    return f"{text}; no agent knows whether {some(unknown)} is good" if unknown else text


def _in_vain(missing: str, view: GangView, policy: RecoveryPolicy) -> str:
    """The spares that exist, and why none of them is used."""
    reasons = [f"{node} ({why})" for node, why in obstacles(missing, view, policy).items()]
    return f"; held free, but not used: {some(reasons)}" if reasons else ""


def _shortage(missing: list[str], root: Root, left: int) -> str:
    """*left*: how many members have a node, without those beside them."""
    message = f"no spare for {some(missing)}: needs {len(missing)} more healthy {root.terms.node}"
    message += "s" if len(missing) > 1 else ""
    if any(node.startswith(NO_NODE) for node in missing):
        message += " in the pool (healthd.dev/spare), or a user who suspends and resumes the gang: others are not taken"
    if root.elastic is None or root.fewest is None:
        return message
    others = len(root.numbers) - root.elastic.members
    least, asked = others + root.fewest, root.options.min_nodes or 0
    limit = f"min-nodes {asked}" if least <= asked else f"the {least} that {root.ref.kind} {root.ref.name} allows"
    return f"{message}, and {left} left are fewer than {limit}"
