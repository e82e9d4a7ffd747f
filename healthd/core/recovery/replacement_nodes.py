"""
Stand-ins: spares for members that find no node when the gang has been started.

Nobody holds the nodes of a gang while it is stopped, and a pod of somebody else may take one: it fits there. The
members prefer their nodes and may be put on any, so whose node is taken does not matter, only how many are. A node that
is merely not in use yet is no reason: what the scheduler refuses for another cause (a quota, a volume) a spare does not
mend, and all spares would be gone for nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.core.api import ANNOTATION_PLACEMENT, Pod, RecoveryStatus
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import GangView, members
from healthd.core.recovery.spares import choose, is_fit, origin, read_claim

MOST_LEFT = 50
"""Nodes of a plan without a member. With more the scheduler is not done yet, or refuses them all for one cause."""


def refused(view: GangView) -> list[Pod]:
    """Members of the present attempt that the scheduler finds no node for. One that was told its node has to wait."""
    return [p for p in members(view) if _refused_since(p) and ANNOTATION_PLACEMENT not in p.metadata.annotations]


def stranded(view: GangView, after: timedelta, now: datetime) -> tuple[int, timedelta | None]:
    """How many were refused for at least *after*, and how long until there is one more."""
    waited = [now - (_refused_since(pod) or now) for pod in refused(view)]
    coming = [after - each for each in waited if each < after]
    return len(waited) - len(coming), min(coming, default=None)


def deserted(status: RecoveryStatus, view: GangView, recovery: str) -> list[str]:
    """The nodes of the plan that no member is on, and no stand-in was claimed for; none while they are too many."""
    left = set(status.placement.values()) - _in_use(view) - _claimed(status, view, recovery).keys()
    return sorted(left) if len(left) <= MOST_LEFT else []


def stand_ins(
    late: int, status: RecoveryStatus, view: GangView, recovery: str, policy: RecoveryPolicy
) -> tuple[dict[str, str], list[str]]:
    """
    Node that is taken -> the spare in its stead: what was claimed for this attempt, and enough for *late* members. And
    the taken nodes for which there is no spare.

    While nobody has looked who is on the nodes (`GangView.taken` is None), every deserted one counts as taken.
    """
    in_use, claimed = _in_use(view), _claimed(status, view, recovery)
    on_their_way = set(claimed.values()) - in_use
    lost = [node for node in deserted(status, view, recovery) if _is_lost(node, view)]
    lost = lost[: max(0, late - len(on_their_way))]
    used = in_use | set(claimed.values()) | set(status.placement.values())
    chosen = choose(lost, view, kept=status.stand_ins, recovery=recovery, policy=policy, used=used)
    return claimed | chosen, [node for node in lost if node not in chosen]


def is_claimed(spare: str, bad: str, view: GangView, recovery: str) -> bool:
    """
    *recovery*, of the gang of *view*, holds the spare, and instead of the node *bad*.

    A plan may change after a spare was claimed. A claim that names the node of the plan before would keep the node that
    the spare really stands in for out of the pool, for ever.
    """
    node, gone = view.nodes.get(spare), bad not in view.nodes
    claim = read_claim(node) if node else None
    if claim is None or view.root is None:
        return False
    uid = view.root.ref.uid
    return (claim.recovery, claim.gang_uid) == (recovery, uid) and (
        gone or claim.instead_of == origin(bad, view.nodes, uid)
    )


def _refused_since(pod: Pod) -> datetime | None:
    said = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
    if said is None or pod.spec.node_name or (said.status, said.reason) != ("False", "Unschedulable"):
        return None
    return said.last_transition_time


def _in_use(view: GangView) -> set[str]:
    return {pod.spec.node_name for pod in members(view) if pod.spec.node_name}


def _claimed(status: RecoveryStatus, view: GangView, recovery: str) -> dict[str, str]:
    return {node: spare for node, spare in status.stand_ins.items() if is_claimed(spare, node, view, recovery)}


def _is_lost(name: str, view: GangView) -> bool:
    fit = is_fit(view.nodes.get(name), view.health.get(name), view.sign_on(name))
    return not fit or view.taken is None or name in view.taken
