"""
One check of one idle spare, from its beginning on record to its end. Pure.

    begun on record → its pod runs → a result on record → its pod is deleted

Whatever takes the node ends the check: its pod is deleted first, then that is recorded. A result is recorded first, and
then the pod is deleted. So a controller that dies anywhere is followed by one that sees what is left to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.api.remediations import NodeRemediationStatus, SpareCheck, SpareCheckOutcome
from healthd.core.config.durations import format_duration
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.quarantine import read_record
from healthd.core.phrases import some
from healthd.core.remediation.actions import DeleteCheck, StartCheck
from healthd.core.remediation.node_check import OF_A_SPARE, running_spare_check
from healthd.core.remediation.situation import CheckLeftover, CheckPlan, CheckSeen, CheckState, Decision, bounded
from healthd.core.remediation.spare_fleet import Spare, comes_first


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareSituation:
    """One spare, its check, and the time."""

    name: str
    status: NodeRemediationStatus
    spare: Spare | None
    """None: the cluster has no such Node."""
    boot_ids: tuple[str, ...] = ()
    """The boots that kubelet and agent report."""
    plan: CheckPlan
    seen: CheckSeen
    pods: tuple[CheckLeftover, ...] = ()
    """All pods of checks on this node that are no checks after a rung."""
    users: tuple[str, ...] = ()
    """Pods of others that use GPUs of the node, as `namespace/name`."""
    policy: RemediationPolicy
    now: datetime

    @property
    def running(self) -> SpareCheck | None:
        """The check that goes on, of this very Node."""
        return running_spare_check(self.status, self.spare.node) if self.spare is not None else None

    def recorded(self, **changes: object) -> NodeRemediationStatus:
        """The record with *changes* to its check."""
        check = self.status.spare_check
        return replace(self.status, spare_check=replace(check, **changes) if check is not None else None)

    def ended(self, outcome: SpareCheckOutcome, message: str, **changes: object) -> Decision:
        """Record how the check ended."""
        message = bounded(message)
        record = self.recorded(outcome=outcome, ended_at=self.now, message=message, **changes)
        return Decision(record=record, reason=f"the check of the spare: {outcome}: {message}")


def begun(s: SpareSituation, number: int) -> Decision:
    """Record that check *number* begins, before its pod is made. *s* was read again; it may be no idle spare now."""
    assert s.spare is not None
    if why := _in_the_way(s):
        return Decision(reason=f"no check begins: {why}")
    meta, last = s.spare.node.metadata, s.spare.check
    check = SpareCheck(
        number=number,
        at=s.now,
        node_uid=meta.uid,
        machine=s.spare.node.status.node_info.system_uuid.lower(),
        passed_number=last.passed_number if last is not None else 0,
        passed_at=last.passed_at if last is not None else None,
        passed_boot=last.passed_boot if last is not None else "",
    )
    return Decision(record=replace(s.status, spare_check=check), reason=f"check {number} of the idle spare begins")


def followed(s: SpareSituation) -> Decision:
    """The next step of the check of the spare."""
    check = s.running
    if check is None:
        return _cleaned(s) or _closed(s)
    if why := _what_comes_first(s):
        return _cleaned(s) or _given_up(s, why)
    left = s.policy.check_timeout - (s.now - (s.seen.began or check.at))
    match s.seen.state:
        case CheckState.PASSED:
            return _passed(s)
        case CheckState.FAILED if s.seen.is_finding and s.seen.boot_id in s.boot_ids:
            return s.ended(SpareCheckOutcome.FAILED, s.seen.why)
        case CheckState.FAILED | CheckState.UNCHECKED | CheckState.BUSY:
            return s.ended(SpareCheckOutcome.UNCHECKED, s.seen.why)
    if left <= timedelta(0):
        within = format_duration(s.policy.check_timeout)
        why = s.seen.why or s.plan.waits_for
        return s.ended(SpareCheckOutcome.UNCHECKED, f"no result in {within}{f': {why}' if why else ''}")
    if s.seen.state is CheckState.ABSENT:
        return _start(s, check, left)
    return Decision(reason=s.seen.why or "the check of the spare runs", recheck=left)


def taken_out(s: SpareSituation) -> Decision:
    """Record that the node may not be used as a spare, before that is written on the Node."""
    return Decision(record=s.recorded(taken_out_at=s.now), reason="it failed its check, and another spare passed since")


def reported(s: SpareSituation) -> Decision:
    """Record that the agent has reported it: from now on it is a fault like any other."""
    return Decision(record=s.recorded(reported_at=s.now), reason="its agent has reported that it failed its check")


def _given_up(s: SpareSituation, why: str) -> Decision:
    """Where its agent took the node out during the check, the load may have shown the fault, or have made it."""
    quarantine = read_record(s.spare.node) if s.spare is not None else None
    if quarantine is not None:
        message = f"{quarantine.finding} came during the check: {quarantine.message}"
        return s.ended(SpareCheckOutcome.FAILED, message, taken_out_at=s.now, reported_at=s.now)
    return s.ended(SpareCheckOutcome.YIELDED, why)


def _passed(s: SpareSituation) -> Decision:
    if s.seen.boot_id not in s.boot_ids or any(boot != s.seen.boot_id for boot in s.boot_ids):
        return s.ended(SpareCheckOutcome.UNCHECKED, "it booted meanwhile")
    check = s.running
    passed = {"passed_number": check.number if check else 0, "passed_at": s.seen.began, "passed_boot": s.seen.boot_id}
    return s.ended(SpareCheckOutcome.PASSED, "the check passed", **passed)


def _start(s: SpareSituation, check: SpareCheck, left: timedelta) -> Decision:
    if s.plan.waits_for:
        return Decision(reason=f"the check waits for {s.plan.waits_for}", recheck=left)
    if earlier := [each for each in s.pods if not each.has_ended]:
        return _cleaned(s) or Decision(reason=f"the check waits for the end of {earlier[0].name}", recheck=left)
    return Decision(action=StartCheck(check.number, OF_A_SPARE), reason=f"check {check.number} of the idle spare")


def _what_comes_first(s: SpareSituation) -> str:
    """Why the check ends before it has a result; empty: it goes on."""
    if not s.policy.check_spares_every:
        return "spares are not checked any more: remediation.check_spares_every is 0"
    if s.spare is None:
        return "the cluster has no such Node"
    return comes_first(s.spare) or (f"{some(s.users)} uses its GPUs" if s.users else "") or s.plan.lacks


def _in_the_way(s: SpareSituation) -> str:
    return _what_comes_first(s) or s.plan.waits_for or ("" if s.plan.gpus else "healthd cannot check it")


def _cleaned(s: SpareSituation) -> Decision | None:
    """Delete the pods of checks that are over or are to end."""
    for pod in s.pods:
        if not pod.is_going:
            return Decision(action=DeleteCheck(pod.name, pod.uid), reason=f"the check in pod {pod.name} is over")
    return None


def _closed(s: SpareSituation) -> Decision:
    """The check of a Node that is gone, or that another one has replaced, is over."""
    check = s.status.spare_check
    if check is not None and check.outcome is None:
        return s.ended(SpareCheckOutcome.YIELDED, "its Node is gone")
    return Decision(reason="no check of it goes on")
