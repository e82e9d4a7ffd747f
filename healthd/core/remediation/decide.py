"""
The life of one node after a fault.

    InService → Quarantined → Drained → Remediating (a rung) → Checking → Probation → InService
    or AwaitingPerson, Retired; a rung that did not help leads back to Drained, where the next one is chosen.

`decide` only computes; a controller acts. A decision has *either* a status to record *or* an action to do, never both.
So every rung is recorded before its hand writes anything, and when a controller dies at any point, the next one
continues: each phase reads the present state, does what is missing, and ends when its goal is observed.

healthd kills nothing that runs: a rung begins on a node without pods. Its own quarantine is set and ended by the agent
of the node; here a node is only declared repaired, from the time of its check on.
"""

from __future__ import annotations

from collections.abc import Callable

from healthd.core.api.names import LABEL_PROBATION
from healthd.core.api.remediations import NodePhase
from healthd.core.phrases import some
from healthd.core.remediation.actions import EndProbation
from healthd.core.remediation.checking import checking, probation
from healthd.core.remediation.remediating import drained, remediating
from healthd.core.remediation.situation import Decision, NodeSituation
from healthd.core.remediation.taking_over import begin, fault_of, taken_over

__all__ = ["Decision", "NodeSituation", "decide"]


def decide(s: NodeSituation) -> Decision:
    """The next decision for the node of *s*."""
    return taken_over(s) or _PHASES[s.status.phase](s)


def in_service(s: NodeSituation) -> Decision:
    """A node that is taken out of service begins a new life."""
    if s.quarantine is not None:
        return begin(s, relapses=0)
    if s.policy.at_once and s.node is not None and LABEL_PROBATION in s.node.metadata.labels:
        return Decision(action=EndProbation(), reason="it is in service, and not on probation")
    return Decision(reason="it is in service")


def quarantined(s: NodeSituation) -> Decision:
    """Wait until nothing runs on the node."""
    if s.other_remediator:
        return s.wait(f"{s.other_remediator} repairs this node; healthd waits until it is done")
    if s.occupants:
        return s.wait(f"waits for the end of {some(s.occupants)}: healthd kills nothing that runs")
    return s.enter(NodePhase.DRAINED, "nothing runs on it")


def awaiting_person(s: NodeSituation) -> Decision:
    """Wait until a person asks for a further try, or brings the node back."""
    since = s.status.phase_since
    if s.retry_at is None or (since is not None and s.retry_at <= since):
        return Decision(reason=s.status.message)
    message, fault = "a person asked for a further try", fault_of(s.quarantine)
    return s.enter(NodePhase.QUARANTINED, message, forgiven_at=s.forgiven_now, fault=fault)


_PHASES: dict[NodePhase, Callable[[NodeSituation], Decision]] = {
    NodePhase.IN_SERVICE: in_service,
    NodePhase.QUARANTINED: quarantined,
    NodePhase.DRAINED: drained,
    NodePhase.REMEDIATING: remediating,
    NodePhase.CHECKING: checking,
    NodePhase.PROBATION: probation,
    NodePhase.AWAITING_PERSON: awaiting_person,
    NodePhase.RETIRED: awaiting_person,
}
