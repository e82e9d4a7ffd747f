"""
Which rung is tried next on a node, and why. Pure.

The ladder begins where the finding says. The driver's own advice comes first (Xid 154, and NVML's recovery action),
then the action of the rule, then what ended the same fault on this machine before. It goes up only: a rung is tried
once for one fault, one for which the site has no hand is skipped, and above the last there is a person.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from healthd.core.api import MachineHistory
from healthd.core.api.model import Finding, RepairAction
from healthd.core.api.remediations import Rung, RungAttempt, RungOutcome
from healthd.core.remediation.limits import is_forgiven
from healthd.core.remediation.situation import Hand, NodeSituation

LADDER = tuple(Rung)
_ADVICE = {
    "nvml-wants-reset": Rung.RESET_GPU,
    "nvml-wants-drain": Rung.RESET_GPU,
    "nvml-wants-reboot": Rung.REBOOT,
}
_OF_ACTION = {
    RepairAction.NONE: Rung.NONE,
    RepairAction.CHECK_APP: Rung.NONE,
    RepairAction.RESTART_APP: Rung.NONE,
    RepairAction.RESET_GPU: Rung.RESET_GPU,
    RepairAction.REBOOT_NODE: Rung.REBOOT,
    RepairAction.INSPECT: Rung.PERSON,
    RepairAction.CONTACT_SUPPORT: Rung.REPLACE,
}
_DRIVER = "xid-154"
_HELPED = {"reset": Rung.RESET_GPU, "reboot": Rung.REBOOT}


class Step(NamedTuple):
    """A rung, the hand that does it (None for a check alone, and for a person), and why."""

    rung: Rung
    hand: Hand | None
    why: str


def height(rung: Rung) -> int:
    """The place of *rung* on the ladder, from 0."""
    return LADDER.index(rung)


def above(rung: Rung) -> Rung:
    """The rung above *rung*; a person above the last."""
    return LADDER[min(height(rung) + 1, len(LADDER) - 1)]


def next_step(s: NodeSituation) -> Step:
    """The next rung for the fault of *s*."""
    start, why = _start(s)
    if height(s.status.least) > height(start):
        start, why = s.status.least, f"less than {s.status.least} did not last"
    tried = {each.rung: each for each in s.status.attempts if _counts(s, each)}
    if tried and not _is_only_checked(s, start, tried):
        highest = max(tried, key=height)
        if height(highest) >= height(start):
            start, why = above(highest), f"{highest} did not help: {tried[highest].message}"
    return _available(start, why, s.hands)


def _is_only_checked(s: NodeSituation, start: Rung, tried: Collection[Rung]) -> bool:
    """Nothing stands after a rung that helped: another remediator took the node before it was given back."""
    return start is Rung.NONE and Rung.NONE not in tried and s.status.attempts[-1].outcome is RungOutcome.HELPED


def first_rung(findings: Iterable[Finding], history: MachineHistory | None) -> tuple[Rung, str]:
    """Where the ladder begins for *findings* that stand, and why. The highest of all counts."""
    found = list(findings)
    starts = [_of_finding(each, found, history) for each in found]
    return max(starts, key=lambda one: height(one[0]), default=(Rung.NONE, "no finding stands any more"))


def _start(s: NodeSituation) -> tuple[Rung, str]:
    return first_rung(s.standing, s.history)


def _counts(s: NodeSituation, attempt: RungAttempt) -> bool:
    """
    Whether *attempt* was for this fault. One that was withdrawn counts as well: its hand may have begun. After a person
    asks for a further try, the ladder begins anew.
    """
    return attempt.fault == s.status.fault and not is_forgiven(s.status, attempt)


def _of_finding(finding: Finding, all_findings: list[Finding], history: MachineHistory | None) -> tuple[Rung, str]:
    if finding.action is RepairAction.CONTACT_SUPPORT:
        return Rung.REPLACE, f"{finding.id} asks for a new part"
    for rule in (finding.rule, *finding.also):
        if rule in _ADVICE:
            return _ADVICE[rule], f"the driver asks for it ({rule} on {finding.device})"
    for other in all_findings:
        if other.device == finding.device and other.rule in _ADVICE:
            return _ADVICE[other.rule], f"the driver asks for it ({other.rule} on {other.device})"
    rung = _OF_ACTION[finding.action]
    if _DRIVER in (finding.rule, *finding.also):
        return rung, f"the driver asks for it (Xid 154 on {finding.device})"
    helped = _what_helped(finding, history)
    if helped is not None and height(helped) > height(rung):
        return helped, f"{helped} ended {finding.rule} on this machine before"
    return rung, f"{finding.id} asks for it"


def _what_helped(finding: Finding, history: MachineHistory | None) -> Rung | None:
    """What ended the last outage of this machine by the same rule on the same device."""
    outages = history.outages if history is not None else []
    same = [each for each in outages if (each.slot, each.rule) == (finding.device, finding.rule) and each.helped]
    return _HELPED.get(same[-1].helped) if same else None


def _available(start: Rung, why: str, hands: tuple[Hand, ...]) -> Step:
    """The lowest rung from *start* on for which there is a hand."""
    if start is Rung.NONE:
        return Step(start, None, why)
    skipped = []
    for rung in LADDER[height(start) :]:
        hand = next((each for each in hands if each.rung is rung), None)
        if hand is not None:
            break
        if rung is not Rung.PERSON:
            skipped.append(rung)
    else:
        rung = Rung.PERSON
    note = f"; there is no hand for {', '.join(skipped)}" if skipped else ""
    return Step(rung, hand, f"{why}{note}")
