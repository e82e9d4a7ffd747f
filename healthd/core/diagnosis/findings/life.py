"""
The life of one finding: new, repeated, overruled by the driver, back after a remedy, faded. Pure.

How findings of a node act on each other is in `healthd.core.diagnosis.findings.ledger`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from healthd.core.api.model import Blame, Evidence, Finding, RepairAction, Severity
from healthd.core.diagnosis.causes import stands_for
from healthd.core.diagnosis.judgement import Judgement, without_advice
from healthd.core.diagnosis.tiers import ADVICE
from healthd.core.diagnosis.xid import LOST_RULE, RECOVERY_RULE, fades_after_hours, rules, xid_codes

KEPT_EVIDENCE = 5

BADNESS = list(Severity)
"""From harmless to fatal."""


def new_finding(judgement: Judgement, seen: Evidence, boot_id: str) -> Finding:
    """A finding seen for the first time."""
    return Finding(
        id=f"{judgement.device}/{judgement.rule}",
        device=judgement.device,
        rule=judgement.rule,
        severity=judgement.severity,
        action=judgement.action,
        blame=judgement.blame,
        message=judgement.message,
        raised_at=seen.at,
        last_at=seen.at,
        boot_id=boot_id,
        quarantines=judgement.quarantines,
        evidence=[seen],
        cause=judgement.cause,
        parts=sorted(judgement.parts),
        watched=judgement.watched,
        shadow=judgement.shadow,
    )


def repeated(old: Finding, judgement: Judgement, seen: Evidence, boot_id: str) -> Finding:
    """Count a repeat. Take over its judgement where that is worse, or is newer advice of the driver."""
    if judgement.watched:
        return _more_parts(with_evidence(old, seen, boot_id), judgement)
    parts = sorted({*old.parts, *judgement.parts})
    again = msgspec.structs.replace(with_evidence(old, seen, boot_id), count=old.count + 1, parts=parts)
    return _taken_over(again, judgement) if _is_worse(judgement, old) or judgement.rule == RECOVERY_RULE else again


def joined(finding: Finding, judgement: Judgement, seen: Evidence, boot_id: str) -> Finding:
    """The finding with one more witness of the same fault. It ends by itself only if every witness lets it end."""
    merged = msgspec.structs.replace(
        with_evidence(finding, seen, boot_id),
        also=sorted({*finding.also, judgement.rule} - {finding.rule}),
        parts=sorted({*finding.parts, *judgement.parts}),
        watched=_may_end(finding, judgement),
    )
    return _taken_over(merged, judgement) if _is_worse(judgement, finding) else merged


def believed(finding: Finding, other: Finding) -> Finding:
    """The finding, joined with *other*, which is stored elsewhere under the rule of another witness."""
    return msgspec.structs.replace(
        finding,
        also=sorted({*finding.also, other.rule, *other.also} - {finding.rule}),
        quarantines=finding.quarantines or other.quarantines,
        watched=finding.watched and other.watched,
    )


def _may_end(finding: Finding, judgement: Judgement) -> bool:
    """A witness sees the end, and the reports of the others do not count for ever."""
    if not finding.watched and not judgement.watched:
        return False
    merged = [] if finding.watched else [(rule, finding.quarantines) for rule in (finding.rule, *finding.also)]
    if not judgement.watched:
        merged.append((judgement.rule, judgement.quarantines))
    return all(stands_for(rule) is not None and not quarantines for rule, quarantines in merged)


def flapped(finding: Finding, old: Finding) -> Finding:
    """The same state, bad again soon after it had become good."""
    times = "once" if old.count == 1 else f"{old.count} times"
    return msgspec.structs.replace(
        finding, count=old.count + 1, message=f"{finding.message} It has come back {times} soon after it was good."
    )


def _more_parts(finding: Finding, judgement: Judgement) -> Finding:
    """More of the device is in the same state."""
    parts = sorted({*finding.parts, *judgement.parts})
    return msgspec.structs.replace(finding, parts=parts, message=judgement.message)


def _taken_over(finding: Finding, judgement: Judgement) -> Finding:
    return msgspec.structs.replace(
        finding,
        severity=judgement.severity,
        action=judgement.action,
        blame=judgement.blame,
        quarantines=judgement.quarantines,
        message=judgement.message,
    )


def with_evidence(finding: Finding, seen: Evidence, boot_id: str) -> Finding:
    """The finding with one more piece of evidence, not counted as another fault."""
    if is_counted(finding, seen, boot_id):
        return finding
    before = finding.evidence if finding.boot_id == boot_id else map(_of_an_earlier_boot, finding.evidence)
    return msgspec.structs.replace(
        finding, last_at=max(finding.last_at, seen.at), boot_id=boot_id, evidence=_newest([*before, seen])
    )


def _of_an_earlier_boot(seen: Evidence) -> Evidence:
    """Without the number of its record: the number of another record in this boot may be lower."""
    return seen if seen.sequence < 0 else msgspec.structs.replace(seen, sequence=-1)


def is_counted(finding: Finding, seen: Evidence, boot_id: str) -> bool:
    """Whether this record was counted before: kernel sequence numbers only grow within one boot."""
    if seen.sequence < 0 or finding.boot_id != boot_id:
        return False
    return any(seen.source == known.source and seen.sequence <= known.sequence for known in finding.evidence)


def came_back(finding: Finding, remedy: str) -> Finding:
    """The same fault soon after *remedy*, which therefore does not help."""
    return msgspec.structs.replace(
        finding,
        severity=Severity.FATAL,
        action=RepairAction.CONTACT_SUPPORT,
        message=f"{without_advice(finding.message)} It came back after a {remedy}. "
        f"{ADVICE[RepairAction.CONTACT_SUPPORT]}",
    )


def overruled(finding: Finding, advice: Finding) -> Finding:
    """The finding with the action that the driver asks for by Xid 154, unless that takes nothing out of service."""
    if not advice.quarantines or finding.action is RepairAction.CONTACT_SUPPORT or finding.shadow:
        return finding
    return msgspec.structs.replace(
        finding,
        severity=advice.severity,
        action=advice.action,
        blame=Blame.UNKNOWN if finding.blame is Blame.APPLICATION else finding.blame,
        quarantines=True,
        watched=False,  # the driver reports what ends it
        message=f"{without_advice(finding.message)} {ADVICE[advice.action]}",
    )


def suspected(finding: Finding, jobs: set[str]) -> Finding:
    """A fault of applications that follows the device, not the job."""
    who = f"{len(jobs)} different jobs ({', '.join(sorted(jobs))})"
    return msgspec.structs.replace(
        finding,
        severity=Severity.ERROR,
        action=RepairAction.INSPECT,
        blame=Blame.DEVICE,
        quarantines=True,
        message=f"{finding.rule} on {finding.device} in {who}: suspect the device. {ADVICE[RepairAction.INSPECT]}",
    )


def jobs_since(finding: Finding, since: datetime) -> set[str]:
    """The jobs that met *finding* after *since*. An unknown job does not count."""
    return {seen.job for seen in finding.evidence if seen.job and seen.at > since}


def is_linked(rule: str) -> bool:
    """Whether the driver pairs *rule* with Xid 154."""
    number = rule.removeprefix("xid-")
    code = xid_codes().get(int(number)) if number.isdigit() else None
    return rule == LOST_RULE or (code is not None and bool(code.recovery_since))


def has_faded(finding: Finding, now: datetime) -> bool:
    """Whether *finding* was not seen for so long that it is no evidence any more."""
    if finding.quarantines or finding.watched:
        return False
    hours = [fades_after_hours(rule) for rule in (finding.rule, *finding.also)]
    return min(hours) > 0 and now - finding.last_at >= timedelta(hours=max(hours))


def is_forgotten(finding: Finding, now: datetime) -> bool:
    """Whether *finding* was cleared so long ago that no late record can raise it again."""
    return finding.cleared_at is not None and now - finding.cleared_at >= rules().remembers


def _is_worse(judgement: Judgement, old: Finding) -> bool:
    return (judgement.quarantines, BADNESS.index(judgement.severity)) > (old.quarantines, BADNESS.index(old.severity))


def _newest(evidence: list[Evidence]) -> list[Evidence]:
    """Drop the oldest, first one whose job a newer one has too: a burst of one job must not hide the others."""
    while len(evidence) > KEPT_EVIDENCE:
        repeated = [at for at, one in enumerate(evidence) if one.job in {later.job for later in evidence[at + 1 :]}]
        dropped = repeated[0] if repeated else 0
        evidence = [one for at, one in enumerate(evidence) if at != dropped]
    return evidence
