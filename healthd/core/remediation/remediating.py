"""Phases Drained, in which the next rung is chosen, and Remediating, in which its hand is at work. Pure."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api.remediations import MOST_ATTEMPTS, NodePhase, Rung, RungAttempt, RungOutcome
from healthd.core.remediation.actions import Request, TakeSlots
from healthd.core.remediation.ladder import Step, next_step
from healthd.core.remediation.limits import attempts_this_week
from healthd.core.remediation.proof import proof_of
from healthd.core.remediation.situation import Decision, NodeSituation, RequestSeen, bounded

SLOT_RECHECK = timedelta(seconds=30)
REPORTED_WITHIN = timedelta(minutes=1)
"""An agent takes its node out at once, and reports the finding some seconds later. One that is silent may be dead."""


def drained(s: NodeSituation) -> Decision:
    """Choose the next rung, and record it before anything is done."""
    if s.node is None:
        return s.wait("the cluster has no such Node")
    if s.occupants:
        return s.enter(NodePhase.QUARANTINED, f"{s.occupants[0]} runs on it")
    left = REPORTED_WITHIN - (s.now - (s.status.phase_since or s.now))
    if not s.is_reported and left > timedelta(0):
        return s.wait("waits for the report of its agent, which says what to do", left)
    step = next_step(s)
    if step.rung is Rung.PERSON:
        return s.enter(NodePhase.AWAITING_PERSON, step.why)
    if (count := attempts_this_week(s)) >= s.policy.attempts_per_week:
        return s.enter(NodePhase.AWAITING_PERSON, f"{count} rungs in seven days, which is the most for one node")
    if not s.holds_slots:
        return take_slots(s)
    attempt = _attempt(s, step)
    phase = NodePhase.REMEDIATING if step.hand else NodePhase.CHECKING
    attempts = [*s.status.attempts, attempt][-MOST_ATTEMPTS:]
    by = f" by {step.hand.name}" if step.hand else ""
    return s.enter(phase, f"{step.rung}{by}: {step.why}", attempts=attempts, checked_at=None)


def take_slots(s: NodeSituation) -> Decision:
    """Take a slot of each limit. While all are taken, the node waits."""
    names = tuple(tuple(limit.by_preference(s.name)) for limit in s.slot_sets)
    return Decision(action=TakeSlots(names), reason="it needs a slot of the budget", recheck=SLOT_RECHECK)


def remediating(s: NodeSituation) -> Decision:
    """Ask the hand, and wait for proof."""
    attempt = s.attempt
    if attempt is None:
        return s.enter(NodePhase.DRAINED, "no attempt is on record")
    request = next((each for each in s.requests if each.attempt == attempt.number), None)
    if proof := proof_of(s, attempt, request):
        return _replaced(s, proof) if attempt.rung is Rung.REPLACE else _proven(s, proof)
    if request is not None and request.failed:
        return _failed(s, RungOutcome.FAILED, f"{attempt.hand} failed: {request.failed}")
    left = timedelta(seconds=attempt.timeout_s) - (s.now - (attempt.written_at or attempt.at))
    if left <= timedelta(0):
        if attempt.written_at is None and not _is_written(request):
            return _never_asked(s, attempt)
        return _failed(s, RungOutcome.TIMED_OUT, _why_late(attempt, request))
    if attempt.written_at is None:
        return _requested(s, attempt, request)
    return s.wait(f"waits for {attempt.hand} to do {attempt.rung}", left)


def _proven(s: NodeSituation, proof: str) -> Decision:
    return s.enter(NodePhase.CHECKING, proof, attempts=s.amended(proven_at=s.now, proof=proof))


def _replaced(s: NodeSituation, proof: str) -> Decision:
    """
    What was tried on the machine before says nothing of this one. A new Node that comes without a quarantine begins in
    service, as every new node of the site does; one that was quarantined since is dealt with as a new fault.
    """
    attempts = s.amended(proven_at=s.now, proof=proof, outcome=RungOutcome.HELPED, ended_at=s.now, message=proof)
    fresh = {"machine": s.machine, "fault": "", "forgiven_at": s.forgiven_now, "relapses": 0, "least": Rung.NONE}
    return s.enter(NodePhase.IN_SERVICE, proof, attempts=attempts, **fresh)


def _requested(s: NodeSituation, attempt: RungAttempt, request: RequestSeen | None) -> Decision:
    if _is_written(request):
        status = s.amended(written_at=s.now)
        return s.enter(NodePhase.REMEDIATING, f"{attempt.hand} was asked for {attempt.rung}", attempts=status)
    if s.node is None:
        return s.wait("the cluster has no such Node")
    if s.quarantine is None:
        message = "it is in service"
        return s.enter(NodePhase.IN_SERVICE, message, attempts=s.ended(RungOutcome.WITHDRAWN, message), fault="")
    if s.occupants:
        message = f"{s.occupants[0]} runs on it"
        return s.enter(NodePhase.QUARANTINED, message, attempts=s.ended(RungOutcome.WITHDRAWN, message))
    if not s.holds_slots:
        return take_slots(s)
    return Decision(action=Request(attempt), reason=f"{attempt.rung} by {attempt.hand}: {attempt.why}")


def _is_written(request: RequestSeen | None) -> bool:
    return request is not None and not request.is_prepared


def _failed(s: NodeSituation, outcome: RungOutcome, message: str) -> Decision:
    return s.enter(NodePhase.DRAINED, message, attempts=s.ended(outcome, message))


def _never_asked(s: NodeSituation, attempt: RungAttempt) -> Decision:
    """healthd lacks a right, or the other side is gone. That the rung did not help is not known: no higher one."""
    message = f"{attempt.hand} could not be asked for {attempt.rung}: {s.status.message}"
    return s.enter(NodePhase.AWAITING_PERSON, message, attempts=s.ended(RungOutcome.WITHDRAWN, message))


def _why_late(attempt: RungAttempt, request: RequestSeen | None) -> str:
    span = timedelta(seconds=attempt.timeout_s)
    if request is not None and request.claims_done:
        return f"{attempt.hand} says that it is done, and nothing shows it after {span}"
    return f"{attempt.hand} has not done it after {span}"


def _attempt(s: NodeSituation, step: Step) -> RungAttempt:
    last = s.status.attempts[-1].number if s.status.attempts else 0
    return RungAttempt(
        number=max(last + 1, int(s.now.timestamp())),
        fault=s.status.fault,
        rung=step.rung,
        hand=step.hand.name if step.hand else "",
        why=bounded(step.why),
        at=s.next_at,
        timeout_s=step.hand.timeout.total_seconds() if step.hand else 0,
        boot_ids=list(s.boot_ids),
        machine=s.machine,
        node_uid=s.node.metadata.uid if s.node is not None else "",
    )
