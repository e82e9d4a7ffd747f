"""Phases Checking, in which a pod on the node tries it out, and Probation, in which it is back and watched. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.core.api.names import LABEL_PROBATION
from healthd.core.api.remediations import NodePhase, RungAttempt, RungOutcome
from healthd.core.config.durations import format_duration
from healthd.core.remediation.actions import EndProbation, GiveBack, StartCheck
from healthd.core.remediation.limits import probation_length
from healthd.core.remediation.remediating import take_slots
from healthd.core.remediation.situation import CheckSeen, CheckState, Decision, NodeSituation

MOST_CHECKS = 3
"""Checks after one rung that could not be done, because the node booted meanwhile or somebody computed on it."""


def checking(s: NodeSituation) -> Decision:
    """Start a check, and wait for its answer. Only a pass leads back to service."""
    attempt = s.attempt
    if attempt is None:
        return s.enter(NodePhase.DRAINED, "no attempt is on record")
    if not s.can_check:
        return _left_to_a_person(s, attempt)
    if not attempt.check or attempt.check_since is None:
        return _begun(s, attempt, "the check begins")
    seen = s.check if (s.check.attempt, s.check.check) == (attempt.number, attempt.check) else CheckSeen()
    left = s.policy.check_timeout - (s.now - (seen.began or attempt.check_since))
    if seen.state is CheckState.FAILED:
        return _no_help(s, f"the check did not pass: {seen.why or seen.state}")
    if seen.state is CheckState.UNCHECKED:
        return _for_a_person(s, f"nothing could be checked: {seen.why or seen.state}")
    if seen.state is CheckState.PASSED:
        return _passed(s, attempt, seen, left)
    if seen.state is CheckState.BUSY:
        return _again(s, attempt, f"somebody computes on it: {seen.why}", left)
    if left <= timedelta(0):
        return _too_late(s, attempt, seen)
    if seen.state is CheckState.ABSENT:
        return _start(s, attempt, left)
    return s.wait(f"waits for the check: {seen.why}" if seen.why else "waits for the check", left)


def _left_to_a_person(s: NodeSituation, attempt: RungAttempt) -> Decision:
    """Its agent's report of a fault after the rung shows that it did not help. Nothing here shows a pass."""
    if newer := _newer_fault(s, attempt.proven_at or attempt.at):
        return _no_help(s, f"{newer} came again after it")
    done = f"{attempt.rung} was done ({attempt.proof})" if attempt.proof else "nothing has to be done to it first"
    why = f" ({s.check_lacks})" if s.check_lacks else ""
    return s.wait(f"{done}; healthd does not check it by itself{why}: check it, then say `healthd repair {s.name}`")


def probation(s: NodeSituation) -> Decision:
    """Give the node back, watch it, and end the watch. A new quarantine is a relapse (`taking_over`)."""
    if s.node is None:
        return s.wait("the cluster has no such Node")
    if s.quarantine is not None:
        return _given_back(s)
    if s.status.returned_at is None:
        until = s.now + probation_length(s.policy, s.status.relapses)
        return s.enter(NodePhase.PROBATION, "it is back in service", returned_at=s.now, probation_until=until)
    left = (s.status.probation_until or s.now) - s.now
    if left > timedelta(0):
        return Decision(reason=s.status.message, recheck=left)
    if LABEL_PROBATION in s.node.metadata.labels:
        return Decision(action=EndProbation(), reason="the probation is over")
    message = "it stayed well for the whole probation"
    return s.enter(NodePhase.IN_SERVICE, message, fault="", relapses=0, probation_until=None)


def _begun(s: NodeSituation, attempt: RungAttempt, message: str) -> Decision:
    attempts = s.amended(check=attempt.check + 1, check_since=s.now, outcome=None, ended_at=None)
    return s.enter(NodePhase.CHECKING, message, attempts=attempts)


def _start(s: NodeSituation, attempt: RungAttempt, left: timedelta) -> Decision:
    if s.node is None:
        return s.wait("the cluster has no such Node")
    if in_the_way := _in_the_way(s):
        return s.wait(f"the check waits for the end of {in_the_way}", left)
    if s.check_waits_for:
        return s.wait(f"the check waits for {s.check_waits_for}", left)
    if not s.holds_slots:
        return take_slots(s)
    return Decision(action=StartCheck(attempt.number, attempt.check), reason=f"check {attempt.check} begins")


def _in_the_way(s: NodeSituation) -> str:
    """What else uses the GPUs of the node: pods, and the check before this one."""
    earlier = [each.name for each in s.check_leftovers if not each.has_ended]
    return next(iter([*s.occupants, *earlier]), "")


def _too_late(s: NodeSituation, attempt: RungAttempt, seen: CheckSeen) -> Decision:
    """A check that was never started says nothing of the node: healthd lacked a right, or was away."""
    within = f"in {format_duration(s.policy.check_timeout)}"
    if seen.state is not CheckState.ABSENT:
        return _no_help(s, f"the check did not answer {within}{f': {seen.why}' if seen.why else ''}")
    if s.node is None or s.check_waits_for:
        return _no_help(s, f"no check could start {within}: it waited for {s.check_waits_for or 'the Node'}")
    return _again(s, attempt, f"it was not started {within}: {s.status.message}", timedelta(0))


def _passed(s: NodeSituation, attempt: RungAttempt, seen: CheckSeen, left: timedelta) -> Decision:
    if seen.began is None or seen.boot_id not in s.boot_ids:
        return _again(s, attempt, "it booted after the check", timedelta(0))
    if any(boot != seen.boot_id for boot in s.boot_ids):
        return _again(s, attempt, "its agent and its kubelet do not both report the boot that was checked", left)
    if newer := _newer_fault(s, seen.began):
        return _no_help(s, f"{newer} came again during the check")
    message = "the check passed"
    attempts = s.ended(RungOutcome.HELPED, message)
    checked = {"checked_at": seen.began, "checked_boot": seen.boot_id}
    return s.enter(NodePhase.PROBATION, message, attempts=attempts, returned_at=None, **checked)


def _given_back(s: NodeSituation) -> Decision:
    """Declared repaired since the check began; its agent ends the quarantine."""
    checked_at = s.status.checked_at
    assert s.node is not None
    if checked_at is None:
        return s.enter(NodePhase.DRAINED, "no check is on record")
    if newer := _newer_fault(s, checked_at):
        message = f"{newer} came again after the check"
        attempts = s.amended(outcome=RungOutcome.NO_HELP, message=message)
        return s.enter(NodePhase.DRAINED, message, attempts=attempts, checked_at=None)
    if s.is_declared:
        return _awaits_its_agent(s)
    if s.status.checked_boot and any(boot != s.status.checked_boot for boot in s.boot_ids) and s.status.attempts:
        return _again(s, s.status.attempts[-1], "it booted after the check", timedelta(0))
    return Decision(action=GiveBack(checked_at), reason="the check passed")


def _awaits_its_agent(s: NodeSituation) -> Decision:
    """An agent that is dead, or that stamped the fault with a clock that is ahead, does not end the quarantine."""
    left = s.policy.check_timeout - (s.now - (s.status.phase_since or s.now))
    if left > timedelta(0):
        return s.wait("waits for its agent to end the quarantine", left)
    message = (
        f"the check passed, and its agent has not ended the quarantine in {format_duration(s.policy.check_timeout)}"
    )
    return s.enter(NodePhase.AWAITING_PERSON, f"{message}: is it alive, and is the clock of the node right?")


def _newer_fault(s: NodeSituation, checked_at: datetime) -> str:
    return next((each.id for each in s.standing if each.last_at > checked_at), "")


def _again(s: NodeSituation, attempt: RungAttempt, why: str, pause: timedelta) -> Decision:
    """A check that could not be done is done again, a few times."""
    if attempt.check >= MOST_CHECKS:
        message = f"{MOST_CHECKS} checks could not be done; the last because {why}"
        return _for_a_person(s, message)
    if pause > timedelta(0):
        return s.wait(why, pause)
    return _begun(s, attempt, why)


def _for_a_person(s: NodeSituation, message: str) -> Decision:
    """Whether the rung helped is not known, so no higher one follows."""
    return s.enter(NodePhase.AWAITING_PERSON, message, attempts=s.ended(RungOutcome.WITHDRAWN, message))


def _no_help(s: NodeSituation, message: str) -> Decision:
    return s.enter(NodePhase.DRAINED, message, attempts=s.ended(RungOutcome.NO_HELP, message))
