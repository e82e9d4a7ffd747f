"""
A gang that its scheduler put on a bad node again, after it was restarted for that node.

What keeps pods off a bad node is its cordon and, since Kubernetes 1.36, the affinity that an admission policy gives the
pods. healthd cordons a node for its own findings only. So on an older Kubernetes, nothing keeps pods off a node that
another detector calls bad; and nowhere does a cordon keep off pods that tolerate it. A further restart would end on the
same node within seconds, and so would the next: the recovery waits for a person instead, and the gang runs on.
"""

from __future__ import annotations

from collections import Counter

from healthd.core.phrases import some
from healthd.core.recovery.faults import blames_node
from healthd.core.recovery.gang import GangView
from healthd.core.recovery.holds import CAME_BACK, is_held_as
from healthd.core.recovery.situation import Decision, Situation

CORDONS_IN_VAIN = 2
"""A gang that comes back to a cordoned node more often tolerates the cordon. Once, it may have come too late."""


def held_after_return(s: Situation) -> Decision | None:
    """Hold where a restart would end on the same bad nodes. None: it would help, or there is no fault."""
    nodes = _returned_to(s)
    if nodes and not any(_helps_to_leave(node, s) for node in nodes):
        what = "its cordon does not keep" if _is_cordoned(nodes[0], s.view) else "nothing keeps"
        return s.hold(f"{CAME_BACK}: {some(nodes)}; {what} its pods off")
    if not s.faults and is_held_as(s.status, CAME_BACK):
        return s.enter(s.phase, f"the {s.terms.gang} runs on no bad {s.terms.node} any more")
    return None


def _returned_to(s: Situation) -> list[str]:
    """The bad nodes, if the gang was moved away from all of them before; their plan names none of them."""
    blamed = list(dict.fromkeys(fault.node for fault in s.faults if blames_node(fault)))
    left = {cause.node for cause in s.status.causes} - set(s.status.placement.values())
    return blamed if left.issuperset(blamed) else []


def _helps_to_leave(node: str, s: Situation) -> bool:
    """Whether the scheduler will probably choose another node now."""
    restarts = Counter(cause.node for cause in s.status.causes)
    return node not in s.view.nodes or (_is_cordoned(node, s.view) and restarts[node] <= CORDONS_IN_VAIN)


def _is_cordoned(name: str, view: GangView) -> bool:
    node = view.nodes.get(name)
    return node is not None and node.spec.unschedulable
