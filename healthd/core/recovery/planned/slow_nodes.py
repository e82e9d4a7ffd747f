"""
When a gang leaves a node because a rank on it makes the gang slow. A straggler is reported in any case; a gang is moved
for it only where its owner, or the configuration, says `swap`.

Such a restart stops a gang that runs, and a straggler is a hint: so far more is asked for than for a report, and a rank
is swapped once. One that is slow on another node as well has more to do, and takes that along to every node. What
remembers it are the recoveries, which are kept as long as the gang lives, and the record on its root.

The node is not bad. It stays in service, and goes to the spares in place of the one that was taken.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api import Node, Pod, Recovery
from healthd.core.api.model import CauseKind
from healthd.core.api.recoveries import MOST_SUSPECTS
from healthd.core.config.gangs import HangPolicy, RecoveryPolicy, StragglerMode
from healthd.core.hang.straggler import LONGEST_REASON, Straggler
from healthd.core.node.quarantine import repaired_at
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.hangs.gang_silence import is_whole, ranks
from healthd.core.recovery.hangs.gang_stragglers import open_stragglers, straggler_mode_of
from healthd.core.recovery.hangs.pod_reports import began
from healthd.core.recovery.members import index_of

STANDING = timedelta(minutes=10)
"""How long a rank has been seen to be slow, at least. What comes and goes within minutes is not worth a restart."""
EFFECT = 0.1
"""By how much it makes its gang slower, at least. A restart of five minutes is won back within an hour then."""
SURE = 0.8
"""How sure the comparison is, at least. It is less sure of two or three ranks, where one may have become faster."""
MOST = 8
"""Such restarts in the life of a gang. Their recoveries are kept."""


def to_swap_for(view: GangView, seen: Sequence[Straggler], policy: HangPolicy, now: datetime) -> tuple[Straggler, ...]:
    """
    *seen*, the ranks that agents show to be slow now, where all of them are on one node that the gang is to leave; else
    none. A gang in a queue leaves none: it would give its quota back, and may not get it again for hours.
    """
    root = view.root
    if root is None or not 0 < len(seen) <= MOST_SUSPECTS or root.queue or not is_whole(view, root):
        return ()
    if straggler_mode_of(root, policy) is not StragglerMode.SWAP or len({each.node for each in seen}) > 1:
        return ()
    recorded = {each.identity for each in open_stragglers(root, now)}
    pods = {index_of(pod, root): pod for pod in ranks(view)}
    pods.pop("", None)  # what has no index cannot be known again on its next node
    good = all(
        each.identity in recorded
        and _is_certain(each)
        and _is_of(each, pods.get(each.rank))
        and _other_node(each, root) is None
        for each in seen
    )
    return tuple(seen) if good else ()


def _is_certain(straggler: Straggler) -> bool:
    is_large = straggler.slower >= EFFECT and straggler.confidence >= SURE
    return is_large and not straggler.from_start and straggler.seen_at - straggler.since >= STANDING


def _is_of(straggler: Straggler, pod: Pod | None) -> bool:
    """Whether it is about this very pod, on the node that it is on."""
    if pod is None or not straggler.node:
        return False
    is_there = (pod.metadata.name, pod.spec.node_name) == (straggler.pod, straggler.node)
    return is_there and began(pod) <= straggler.since


def _other_node(straggler: Straggler, root: Root) -> str | None:
    """Another node, maybe an unknown one, on which the same rank was slow by the record of the gang. None: none."""
    # Of a rank within a pod the number is another one, and a host that comes late is only reported.
    same = (each for each in root.stragglers if each.rank == straggler.rank and not each.is_only_reported)
    return next((each.node for each in same if each.node != straggler.node), None)


def swaps(recoveries: Iterable[Recovery]) -> list[Recovery]:
    """Those by which a gang was restarted because of a slow rank."""
    return [each for each in recoveries if each.status.attempts and each.spec.cause.kind is CauseKind.STRAGGLER]


def may_swap(slow: Collection[str], recoveries: Iterable[Recovery], policy: RecoveryPolicy, now: datetime) -> bool:
    """Whether the ranks *slow* may be swapped, by all *recoveries* of their gang: each once, and seldom."""
    before = swaps(recoveries)
    times = [each.metadata.creation_timestamp for each in before]
    is_calm = all(at is not None and now - at >= policy.swap_every for at in times)
    return is_calm and len(before) < MOST and not any(_node_left(rank, before) is not None for rank in slow)


def _node_left(rank: str, swapped: Iterable[Recovery]) -> str | None:
    """The node that the gang was to leave because of *rank*. None: it was never swapped."""
    suspects = (suspect for each in swapped for suspect in each.spec.cause.suspects)
    return next((suspect.node for suspect in suspects if suspect.member == rank), None)


def left_slow(recoveries: Iterable[Recovery], nodes: Mapping[str, Node]) -> set[str]:
    """The nodes that gangs left because a rank was slow there, and that no person has called repaired since."""
    left = {(suspect.node, each.spec.cause.at) for each in swaps(recoveries) for suspect in each.spec.cause.suspects}
    return {name for name, at in left if name in nodes and not _is_repaired_since(nodes[name], at)}


def _is_repaired_since(node: Node, at: datetime) -> bool:
    repaired = repaired_at(node)
    return repaired is not None and repaired > at


def with_history(straggler: Straggler, root: Root, recoveries: Iterable[Recovery], policy: HangPolicy) -> Straggler:
    """*straggler* with the reason why the gang is not moved for it, where the same rank was slow before."""
    if straggler_mode_of(root, policy) is not StragglerMode.SWAP:
        return straggler
    why = _history(straggler, root, swaps(recoveries))
    if not why:
        return straggler
    reason = straggler.reason[: LONGEST_REASON - len(why) - 2]
    return replace(straggler, reason=f"{reason}; {why}" if reason else why)


def _history(straggler: Straggler, root: Root, swapped: Iterable[Recovery]) -> str:
    left = _node_left(straggler.rank, swapped)
    other = left if left not in (None, straggler.node) else _other_node(straggler, root)
    if other is not None:
        where = f"on {other}, too" if other else "on another node, too"
        return f"it was slow {where}, so it is most likely the job that gives it more to do: it is not swapped"
    return "it was swapped for that before: it is not swapped again" if left is not None else ""
