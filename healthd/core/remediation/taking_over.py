"""What comes before every phase: leftovers, people and other remediators who take over, and new faults. Pure."""

from __future__ import annotations

from datetime import UTC

from healthd.core.api.remediations import NodePhase, Rung, RungAttempt, RungOutcome
from healthd.core.node.quarantine import Record
from healthd.core.remediation.actions import DeleteCheck, FreeSlots, Withdraw
from healthd.core.remediation.ladder import above, height
from healthd.core.remediation.situation import Decision, NodeSituation, PersonsWord

COUNTED = frozenset({NodePhase.DRAINED, NodePhase.REMEDIATING, NodePhase.CHECKING})
"""Phases in which a node may hold slots."""
_WITH_A_PERSON = frozenset({NodePhase.AWAITING_PERSON, NodePhase.RETIRED})
_LEFT_ALONE = _WITH_A_PERSON | {NodePhase.IN_SERVICE}
_UNDER_WAY = frozenset({NodePhase.QUARANTINED, NodePhase.DRAINED, NodePhase.REMEDIATING, NodePhase.CHECKING})


def fault_of(quarantine: Record | None) -> str:
    """The identity of a fault: one quarantine is one fault, whatever is found during it."""
    if quarantine is None:
        return ""
    return f"{quarantine.since.astimezone(UTC).isoformat()} {quarantine.finding}"


def taken_over(s: NodeSituation) -> Decision | None:
    """What to do before the phase is looked at; None: the phase decides."""
    return (
        _cleaned(s) or _another_machine(s) or _word(s) or _turned_off(s) or _returned(s) or _new_fault(s) or _yielded(s)
    )


def begin(s: NodeSituation, *, relapses: int, least: Rung = Rung.NONE) -> Decision:
    """Record that the present quarantine is dealt with from now on."""
    if not s.policy.at_once:
        return Decision(reason="remediation is off: remediation.at_once is 0")
    quarantine = s.quarantine
    assert quarantine is not None
    return s.enter(
        NodePhase.QUARANTINED,
        quarantine.message,
        fault=fault_of(quarantine),
        machine=s.machine or s.status.machine,
        least=least,
        relapses=relapses,
        attempts=_attempts_withdrawn(s, "a new fault came"),
        checked_at=None,
        returned_at=None,
        probation_until=None,
    )


def _cleaned(s: NodeSituation) -> Decision | None:
    """Requests of attempts and pods of checks that are over, and slots that the node does not need any more."""
    standing = {request.attempt: request for request in s.requests}
    for attempt in s.status.attempts:
        request = standing.get(attempt.number)
        if request is not None and attempt.outcome is not None:
            return Decision(action=Withdraw(attempt), reason=f"attempt {attempt.number} is over: {attempt.message}")
        if request is not None and attempt.proven_at is not None and request.holds_node and request.has_ended:
            # The check needs what was kept off the node for the rung, such as the device plugin.
            return Decision(action=Withdraw(attempt), reason=f"attempt {attempt.number} was done: {attempt.proof}")
    for pod in s.check_leftovers:
        if not pod.is_going:
            return Decision(action=DeleteCheck(pod.name, pod.uid), reason=f"the check in pod {pod.name} is over")
    if s.slots_held and s.status.phase not in COUNTED:
        return Decision(action=FreeSlots(), reason=f"it needs no slot in {s.status.phase}")
    if s.slots_held and s.node is None and s.status.phase is not NodePhase.REMEDIATING:
        return Decision(action=FreeSlots(), reason="the cluster has no such Node")
    return None


def _another_machine(s: NodeSituation) -> Decision | None:
    """Another machine took the name. What was tried on the one before says nothing of it."""
    attempt = s.attempt
    if not s.status.machine or not s.machine or s.machine == s.status.machine:
        return None
    if attempt is not None and attempt.rung is Rung.REPLACE:
        return None
    phase = NodePhase.QUARANTINED if s.quarantine is not None else NodePhase.IN_SERVICE
    message = f"another machine has this name now ({s.machine})"
    attempts = _attempts_withdrawn(s, message)
    fresh = {"relapses": 0, "least": Rung.NONE, "checked_at": None, "returned_at": None, "probation_until": None}
    fault, forgiven_at = fault_of(s.quarantine), s.forgiven_now
    return s.enter(phase, message, machine=s.machine, fault=fault, attempts=attempts, forgiven_at=forgiven_at, **fresh)


def _word(s: NodeSituation) -> Decision | None:
    """A person's word."""
    phase = s.status.phase
    if s.word is PersonsWord.RETIRE:
        if phase is NodePhase.RETIRED:
            return Decision(reason=s.status.message)
        return _leave(s, NodePhase.RETIRED, "a person retired it")
    if s.quarantine is None or s.node is None:
        return None
    if s.word is PersonsWord.OFF:
        message = "a person keeps healthd off this node"
        return Decision(reason=message) if phase in _LEFT_ALONE else _leave(s, NodePhase.AWAITING_PERSON, message)
    if phase in _UNDER_WAY and not s.node.spec.unschedulable:
        return _leave(s, NodePhase.AWAITING_PERSON, "a person uncordoned it during its quarantine")
    return None


def _turned_off(s: NodeSituation) -> Decision | None:
    """Without a limit nothing new begins. What is under way goes on to its end."""
    if s.policy.at_once or s.status.phase not in (NodePhase.QUARANTINED, NodePhase.DRAINED):
        return None
    return s.wait("remediation is off: remediation.at_once is 0")


def _returned(s: NodeSituation) -> Decision | None:
    """The quarantine ended without healthd's check: a person, or the agent's own configuration, decided so."""
    if s.node is None or s.quarantine is not None or s.status.phase not in _UNDER_WAY | _WITH_A_PERSON:
        return None
    replacement = _replacement(s)
    if replacement is not None and s.node.metadata.uid != replacement.node_uid:
        return None  # the Node of the machine that replaces it begins without a quarantine
    return _leave(s, NodePhase.IN_SERVICE, "others brought it back into service", fault="")


def _replacement(s: NodeSituation) -> RungAttempt | None:
    """The attempt by which the machine is replaced; None: it is not."""
    is_replaced = s.status.phase is NodePhase.REMEDIATING and s.attempt is not None and s.attempt.rung is Rung.REPLACE
    return s.attempt if is_replaced else None


def _new_fault(s: NodeSituation) -> Decision | None:
    """A quarantine that is not the one that is dealt with. During the probation it is a relapse."""
    fault, phase = fault_of(s.quarantine), s.status.phase
    if not fault or fault == s.status.fault or phase in (NodePhase.IN_SERVICE, NodePhase.RETIRED):
        return None
    if phase is not NodePhase.PROBATION:
        return begin(s, relapses=s.status.relapses, least=s.status.least)
    helped = [each.rung for each in s.status.attempts if each.outcome is RungOutcome.HELPED]
    least = max(s.status.least, above(helped[-1]) if helped else Rung.NONE, key=height)
    return begin(s, relapses=s.status.relapses + 1, least=least)


def _yielded(s: NodeSituation) -> Decision | None:
    """Another remediator took the node while healthd was at work on it."""
    if not s.other_remediator or not _is_at_work(s):
        return None
    return _leave(s, NodePhase.QUARANTINED, f"{s.other_remediator} repairs this node; healthd waits until it is done")


def _is_at_work(s: NodeSituation) -> bool:
    """Also between a check that passed and the word to the agent. The agent may have acted on that word already."""
    if s.status.phase is NodePhase.PROBATION:
        return s.quarantine is not None and not s.is_declared
    return s.status.phase in _UNDER_WAY and s.status.phase is not NodePhase.QUARANTINED


def _leave(s: NodeSituation, phase: NodePhase, message: str, **changes: object) -> Decision:
    return s.enter(phase, message, attempts=_attempts_withdrawn(s, message), **changes)


def _attempts_withdrawn(s: NodeSituation, message: str) -> list[RungAttempt]:
    if s.attempt is None:
        return s.status.attempts
    return s.ended(RungOutcome.WITHDRAWN, message)
