"""
Replacement nodes: spares for members that find no node after the gang was started.

Nothing reserves the nodes of a gang while it is stopped, so a pod of another owner may take one. The members prefer
their nodes but may run on any of them: it does not matter which node is taken, only how many. A node that is only not
in use yet is no reason for a spare: when the scheduler refuses a member for another cause (a quota, a volume), a spare
does not help, and all spares would be used for nothing.

A node can also be unusable as a spare: a label and a taint do not evict running pods. A pod that ran on the node before
it became a spare stays, and so does a pod that tolerates every taint. When such a pod holds the GPUs, the gang that
claimed the spare would wait for them without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from healthd.core.api import ANNOTATION_PLACEMENT, Node, Pod, RecoveryStatus
from healthd.core.config import RecoveryPolicy
from healthd.core.node.check_pods import is_check
from healthd.core.node.pod_devices import devices_of
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.hangs.suspicion import suspected_nodes
from healthd.core.recovery.members import members, will_not_run
from healthd.core.recovery.nodes.spares import choose, is_fit, is_held, origin, read_claim

MOST_LEFT = 50
"""Planned nodes without a member. With more, the scheduler is not done yet, or it refuses all members for one cause."""
OF_THE_NODE = frozenset({"DaemonSet", "Node"})
"""Kinds of owners whose pods run on every node, also on a spare. A Node owns its static pods."""


SPARE_AFTER = timedelta(seconds=20)
"""
How long a member is refused before it gets a spare. Most pods of other owners that are on their way out have gone by
then. A spare that was claimed in vain is given back, so another value would gain little.
"""


def refused(view: GangView) -> list[Pod]:
    """Members of the present attempt that the scheduler finds no node for. A member with a fixed node has to wait."""
    return [p for p in members(view) if _refused_since(p) and ANNOTATION_PLACEMENT not in p.metadata.annotations]


def stranded(view: GangView, now: datetime, after: timedelta = SPARE_AFTER) -> tuple[int, timedelta | None]:
    """How many members were refused for at least *after*, and the time until there is one more."""
    waited = [now - (_refused_since(pod) or now) for pod in refused(view)]
    coming = [after - each for each in waited if each < after]
    return len(waited) - len(coming), min(coming, default=None)


def deserted(status: RecoveryStatus, view: GangView, recovery: str) -> list[str]:
    """Planned nodes without a member and without a claimed replacement; empty while they are too many."""
    left = set(status.placement.values()) - _in_use(view) - _claimed(status, view, recovery).keys()
    return sorted(left) if len(left) <= MOST_LEFT else []


def stand_ins(
    late: int, status: RecoveryStatus, view: GangView, recovery: str, policy: RecoveryPolicy
) -> tuple[dict[str, str], list[str]]:
    """
    Two results. First: taken node -> the spare that replaces it; these are the spares that are claimed for this attempt
    already, and enough more for *late* members. Second: the taken nodes for which there is no spare.

    While the pods on the nodes were not checked (`GangView.taken` is None), every deserted node counts as taken.
    """
    in_use, claimed = _in_use(view), _claimed(status, view, recovery)
    on_their_way = set(claimed.values()) - in_use
    lost = [node for node in deserted(status, view, recovery) if _is_lost(node, view)]
    lost = lost[: max(0, late - len(on_their_way))]
    used = in_use | set(claimed.values()) | set(status.placement.values())
    last = suspected_nodes(status)
    chosen = choose(lost, view, kept=status.stand_ins, recovery=recovery, policy=policy, used=used, last=last)
    return claimed | chosen, [node for node in lost if node not in chosen]


def is_claimed(spare: str, bad: str, view: GangView, recovery: str) -> bool:
    """
    Whether *recovery*, of the gang of *view*, holds the spare as the replacement of the node *bad*.

    The plan may change after a spare was claimed. If the claim named the node of the earlier plan, the node that the
    spare really replaces would stay out of the pool for ever.
    """
    claim = read_claim(view.nodes[spare]) if is_held(spare, view, recovery) else None
    if claim is None:
        return False
    return bad not in view.nodes or claim.instead_of == origin(bad, view.nodes, claim.gang_uid)


def occupant(node: Node, pods: Iterable[Pod]) -> str:
    """
    A pod of *pods* that makes *node* unusable as a spare, as `namespace/name`; empty: there is none.

    Such a pod holds devices of a kind that the node has. Small cluster services that tolerate every taint hold no
    device and do not conflict. On a node without devices every pod counts, except the pods that belong to the node. A
    check of healthd holds all GPUs, and conflicts with nothing: the claim of the spare ends it.
    """
    devices = {resource for resource in node.status.capacity if "/" in resource}
    there = (pod for pod in pods if not (will_not_run(pod) or _is_of_the_node(pod) or is_check(pod)))
    holding = (pod for pod in there if not devices or devices & devices_of(pod))
    return min((f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in holding), default="")


def _refused_since(pod: Pod) -> datetime | None:
    scheduled = next((each for each in pod.status.conditions if each.type == "PodScheduled"), None)
    if scheduled is None or pod.spec.node_name or (scheduled.status, scheduled.reason) != ("False", "Unschedulable"):
        return None
    return scheduled.last_transition_time


def _in_use(view: GangView) -> set[str]:
    return {pod.spec.node_name for pod in members(view) if pod.spec.node_name}


def _claimed(status: RecoveryStatus, view: GangView, recovery: str) -> dict[str, str]:
    return {node: spare for node, spare in status.stand_ins.items() if is_claimed(spare, node, view, recovery)}


def _is_lost(name: str, view: GangView) -> bool:
    fit = is_fit(view.nodes.get(name), view.health.get(name), view.sign_on(name))
    return not fit or view.taken is None or name in view.taken


def _is_of_the_node(pod: Pod) -> bool:
    return any(owner.controller and owner.kind in OF_THE_NODE for owner in pod.metadata.owner_references)
