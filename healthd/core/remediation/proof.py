"""Proof that a rung was done. What a hand says of itself is proof only where nothing else can be seen. Pure."""

from __future__ import annotations

from healthd.core.api.remediations import Rung, RungAttempt
from healthd.core.remediation.situation import NodeSituation, RequestSeen


def proof_of(s: NodeSituation, attempt: RungAttempt, request: RequestSeen | None) -> str:
    """The proof that *attempt* was done, in words; empty where there is none."""
    if attempt.rung is Rung.REPLACE:
        return _replaced(s, attempt)
    if _is_another_machine(s, attempt):
        return ""  # its boot is no boot of the machine that the rung was for
    if boot := _new_boot(s, attempt):
        return f"it booted since ({boot})"
    if attempt.rung in (Rung.REBOOT, Rung.POWER_CYCLE):
        return ""
    return _reset(s, attempt) or _claimed(s, attempt, request)


def _replaced(s: NodeSituation, attempt: RungAttempt) -> str:
    if _is_another_machine(s, attempt):
        return f"another machine has its name ({s.machine})"
    is_known = bool(attempt.machine and s.machine)
    if s.node is not None and not is_known and s.node.metadata.uid != attempt.node_uid:
        return "it is another Node, and no UUID says that the machine is the same"
    return ""


def _is_another_machine(s: NodeSituation, attempt: RungAttempt) -> bool:
    return bool(attempt.machine and s.machine) and s.machine != attempt.machine


def _new_boot(s: NodeSituation, attempt: RungAttempt) -> str:
    if not attempt.boot_ids:
        return ""
    return next((boot for boot in s.boot_ids if boot not in attempt.boot_ids), "")


def _reset(s: NodeSituation, attempt: RungAttempt) -> str:
    """The agent saw the reset in the kernel log."""
    findings = s.health.status.findings if s.health is not None else []
    ended = (
        each for each in findings if each.cleared_by == "reset" and each.cleared_at and each.cleared_at > attempt.at
    )
    return next((f"the agent saw the reset that ended {each.id}" for each in ended), "")


def _claimed(s: NodeSituation, attempt: RungAttempt, request: RequestSeen | None) -> str:
    hand = next((each for each in s.hands if each.name == attempt.hand), None)
    if request is None or not request.claims_done or hand is None or not hand.claim_is_proof:
        return ""
    return f"{attempt.hand} says so"
