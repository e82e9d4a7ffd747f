"""
A gang that healthd made smaller grows back: how many members it has left out, and whether there are nodes for them.

What was left out is recorded with the recovery that made the gang smaller, and each later recovery gets that record.
Every plan of a restart tries the gang's own size first. A gang without a fault is restarted for that alone, as a
planned restart (`core.recovery.planned.restarts`) whose cause is `capacity`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from healthd.core.api import Cause, Recovery, Shrunk
from healthd.core.api.model import CauseKind
from healthd.core.api.names import LABEL_PROBATION
from healthd.core.api.recoveries import KEPT_LEFT_NODES
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.members import members
from healthd.core.recovery.nodes.spares import choose, is_doubtful, is_fit, is_spare, read_claim


def grows_back(recovery: Recovery) -> bool:
    """Whether the gang is restarted for its size alone: no fault has joined."""
    return all(cause.kind is CauseKind.CAPACITY for cause in recovery.status.causes or [recovery.spec.cause])


def recorded(recoveries: Iterable[Recovery], root: Root) -> Shrunk | None:
    """
    What *root* has left out, by the one of its *recoveries* that started its present attempt.

    That one may have been forgotten since. Then one that began later and started nothing has a copy.
    """
    known = list(recoveries)
    starts = [attempt.shrunk for each in known for attempt in each.status.attempts if attempt.number == root.attempt]
    copies = [each.spec.shrunk for each in known if each.spec.first_attempt == root.attempt + 1]
    return _standing(next(iter([*starts, *copies]), None), root)


def left_out_of(recovery: Recovery, root: Root) -> Shrunk | None:
    """What *root* has left out, while *recovery* restarts it: by its last start, or by the record from before it."""
    start = next((each for each in recovery.status.attempts if each.number == root.attempt), None)
    return _standing(start.shrunk if start else recovery.spec.shrunk, root)


def _standing(shrunk: Shrunk | None, root: Root) -> Shrunk | None:
    """*shrunk*; None where somebody else has changed the size of *root* since: what they want is not known."""
    present = root.elastic.members if root.elastic else None
    return shrunk if shrunk and shrunk.members == present and present < shrunk.size else None


def added_members(recovery: Recovery, root: Root) -> tuple[str, ...]:
    """The indexes of the members that *recovery* has brought back to *root*; empty before its start, and mostly."""
    before = recovery.spec.shrunk
    return root.elastic_numbers[before.members :] if before else ()


def may_grow(root: Root) -> bool:
    """Whether its owner lets it grow back, and its kind and its queue still let it have another size."""
    return root.options.restart and root.options.grow_back and root.fewest is not None


def at_own_size(root: Root, shrunk: Shrunk | None) -> Root:
    """*root* with the members that it has left out, where its owner lets it grow back: as many as it allows now."""
    if shrunk is None or root.elastic is None or not may_grow(root):
        return root
    return root.resized(max(root.elastic.members, min(shrunk.size, root.elastic.most)))


def record_of(placement: Collection[str], left: Sequence[str], root: Root, shrunk: Shrunk | None) -> Shrunk | None:
    """
    The record for a start of *root* by *placement*, which leaves the nodes *left*; None where nothing is left out.

    *shrunk* is what was left out so far.
    """
    members = root.elastic_members(placement)
    if root.elastic is None or members is None:
        return shrunk  # the scheduler places the members: there are as many as before
    size = shrunk.size if shrunk else root.elastic.members
    return Shrunk(size=size, members=members, nodes=list(left)[:KEPT_LEFT_NODES]) if members < size else None


def room(view: GangView, shrunk: Shrunk | None, policy: RecoveryPolicy) -> list[str]:
    """
    The nodes for members that the gang has left out: those that it left, when they are good again, then free spares.

    A node about which there is any doubt is none: the gang runs, and may lose more than it wins.
    """
    root = view.root
    if root is None or shrunk is None or not may_grow(root):
        return []
    missing = at_own_size(root, shrunk).world - root.world
    used = {pod.spec.node_name for pod in members(view)}
    back = returned(shrunk, view, used)[:missing]
    wanted = [f"{number}" for number in range(missing - len(back))]
    spares = choose(wanted, view, kept={}, recovery="", policy=policy, used=used)
    return [*back, *(spare for spare in spares.values() if not is_doubtful(spare, view))]


def returned(shrunk: Shrunk, view: GangView, used: Collection[str]) -> list[str]:
    """The nodes that the gang left and that it may have again."""
    return [name for name in shrunk.nodes if name not in used and _is_back(name, view)]


def _is_back(name: str, view: GangView) -> bool:
    node = view.nodes.get(name)
    if node is None or is_spare(node) or read_claim(node) is not None or LABEL_PROBATION in node.metadata.labels:
        return False
    return is_fit(node, view.health.get(name), view.sign_on(name)) and not is_doubtful(name, view)


def cause_to_grow(nodes: Sequence[str], shrunk: Shrunk, root: Root, now: datetime) -> Cause:
    """The cause of the restart that brings back members on *nodes*."""
    before, most = root.world, root.world + shrunk.size - shrunk.members
    size = before + len(nodes)
    of = f" of {most}" if size < most else ""
    names = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    message = f"{names} can be used: grows back from {before} to {size}{of} {root.terms.member}s, after a save"
    return Cause(kind=CauseKind.CAPACITY, message=message, at=now)
