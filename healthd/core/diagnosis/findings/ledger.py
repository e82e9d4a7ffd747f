"""
The ledger of a node: findings are raised, repeated, overruled by the driver, and cleared. Pure and immutable.

The agent holds one ledger and replaces it at each change. `now` is the time of the agent's own clock:

    ledger = Ledger.of(status.findings)
    ledger = ledger.ingest_record(record, now=now, job=job, repaired_at=last_repair)
    ledger = ledger.lost(count, first=..., last=..., boot_id=...)
    ledger = ledger.clear_by_repair(at)    # or .clear_by_reboot(boot_id, at)
    ledger = ledger.decay(now)
    verdict, message = ledger.verdict(blind)
    status.findings = ledger.findings

What must hold: one kernel record counts once. A record older than the last repair or reset of its device never acts. A
fault of an application takes no node out of service unless different jobs meet it on one GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from healthd.core.api.model import Blame, Evidence, Finding, KernelRecord, RepairAction, Severity, Verdict
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.blindness import NOT_BLIND, blindness_text
from healthd.core.diagnosis.causes import is_the_kernels, with_cause
from healthd.core.diagnosis.findings import life
from healthd.core.diagnosis.findings.tally import Tally, counted
from healthd.core.diagnosis.judgement import Judgement, in_shadow, in_tier
from healthd.core.diagnosis.klog import KERNEL_LOGS, TAGGED, Load, Partial, is_of_its_device, parse_message, stitch
from healthd.core.diagnosis.readings import NODE
from healthd.core.diagnosis.site_rules import judge_line, tier_chosen
from healthd.core.diagnosis.tiers import tier
from healthd.core.diagnosis.xid import RECOVERY_RULE, is_the_drivers, judge, rules

KMSG_LOST = "kmsg-lost"
BY_DEFAULT = JudgePolicy()
APP_WINDOW = timedelta(hours=24)
"""Older faults of applications do not count against a GPU: in a day it sees several jobs. No job tells how many."""
LONGEST_EVIDENCE = 400
"""Characters of a kernel message that are kept."""
CLOCK_DRIFTS = timedelta(minutes=1)
"""A timestamp further ahead comes from a clock that was set back since."""

RESET_CLEARS = frozenset({RepairAction.NONE, RepairAction.CHECK_APP, RepairAction.RESTART_APP, RepairAction.RESET_GPU})
REBOOT_CLEARS = RESET_CLEARS | {RepairAction.REBOOT_NODE}
"""A fault that a person must check, or that needs a new part, survives a reboot."""

LONGEST_LOAD = timedelta(minutes=10)
"""Of a load of the driver: eight GPUs that do not answer keep it busy for minutes."""
USUAL_LOAD = timedelta(minutes=1)

_NOTHING_WAITS = Partial()


class Reload(NamedTuple):
    """When a load of NVIDIA's driver began, and when it was done. None: not yet, or never."""

    began: datetime | None
    done: datetime | None


NO_RELOAD = Reload(None, None)

Entries = Mapping[str, Finding]


class Ledger(msgspec.Struct, frozen=True):
    """All findings of one node by id, including cleared ones until they are forgotten."""

    entries: Entries = msgspec.field(default_factory=dict)
    partial: Partial = _NOTHING_WAITS
    """The beginning of a message that the driver spreads over several records."""
    policy: JudgePolicy = BY_DEFAULT
    tally: Tally = msgspec.field(default_factory=dict)
    """Counted events that are not a finding yet."""
    reload: Reload = NO_RELOAD
    """The last load of NVIDIA's driver that the kernel log reported."""

    @classmethod
    def of(cls, findings: Iterable[Finding], policy: JudgePolicy = BY_DEFAULT) -> Ledger:
        """The ledger that was published as *findings*."""
        return cls({finding.id: finding for finding in findings}, policy=policy)

    @property
    def findings(self) -> list[Finding]:
        """The findings to publish, oldest first."""
        return sorted(self.entries.values(), key=lambda finding: (finding.raised_at, finding.id))

    @property
    def standing(self) -> list[Finding]:
        """Findings that nothing has cleared, oldest first."""
        return _standing(self.entries)

    def ingest_record(
        self,
        record: KernelRecord,
        *,
        now: datetime,
        job: str = "",
        repaired_at: datetime | None = None,
        trust_user_space: bool = False,
    ) -> Ledger:
        """
        Judge one kernel record and add what it reports.

        *job* is the gang that used the device then; its name must be the same across its restarts. A record at or
        before *repaired_at* (the node's last repair) changes nothing. A record of user space counts only with
        *trust_user_space*, the option of drills and the demo. A record of the kernel counts only if its tags agree with
        it.
        """
        if not _is_believed(record, trust_user_space=trust_user_space):
            return self
        partial, text = stitch(self.partial, record.text)
        ledger = self if partial is self.partial else replace(self, partial=partial)
        same = [one for one in self._judged(text) if not self._is_settled(one.device, record, repaired_at, now)]
        if not same:
            return ledger
        seen = Evidence(
            source=record.source, at=record.at, text=text[:LONGEST_EVIDENCE], sequence=record.sequence, job=job
        )
        ledger = ledger.decay(now)
        for judgement in same:
            ledger = ledger.ingest_judgement(judgement, seen, record.boot_id)
        return ledger

    def _is_settled(self, device: str, record: KernelRecord, repaired_at: datetime | None, now: datetime) -> bool:
        """Whether *record* is from before the last repair, reset or reboot."""
        if repaired_at is not None and record.at <= repaired_at:
            return True
        return any(_settles(finding, device, record, now) for finding in self.entries.values())

    def _judged(self, text: str) -> Iterator[Judgement]:
        """The judgements of healthd's own rules about a kernel message, and those of the site's rules."""
        message = parse_message(text)
        judgement = with_cause(judge(message)) if message else None
        if judgement and (judgement.raises or judgement.clears or judgement.ends or judgement.load):
            chosen = tier_chosen(self.policy.tiers, judgement.rule) if judgement.raises else None
            yield in_tier(judgement, tier(chosen)) if chosen else judgement
        yield from judge_line(self.policy.rules, text)

    def ingest_judgement(self, judgement: Judgement, seen: Evidence, boot_id: str = "") -> Ledger:
        """Add a judgement of any source: a new finding, a repeat, or one more witness of a fault that is active."""
        if judgement.load is not None:
            return self._loaded(judgement.load, seen.at)
        if judgement.clears:
            return replace(self, entries=_taken_back(self.entries, judgement.device, seen.at))
        if judgement.ends:
            return replace(self, entries=_ended(self.entries, judgement, seen.at))
        tally = self.tally
        if judgement.needs and not _stands(self.entries, judgement):
            tally, are_enough = counted(tally, f"{judgement.device}/{judgement.rule}", judgement.needs, seen.at)
            if not are_enough:
                return replace(self, tally=tally)
        if self.tries(judgement.rule):
            judgement = in_shadow(judgement)
        return replace(self, entries=_ingested(self.entries, judgement, seen, boot_id, self.policy), tally=tally)

    def clear_by_reload(self, answered: Mapping[str, datetime]) -> Ledger:
        """
        Clear faults from before the last load of the driver that otherwise only a reboot clears: the GPU is back.

        *answered*: when the driver last listed a GPU, by its address. A new load alone is no proof, because it shows
        nothing about a GPU that is not on the bus. An answer from before the load is no proof either.
        """
        began, done = self.reload
        if done is None or began is None:
            return self

        def is_put_right(finding: Finding) -> bool:
            at = answered.get(finding.device)
            return at is not None and at > done and _is_from_before(finding, began, REBOOT_CLEARS)

        return replace(self, entries=_cleared(self.entries, "reset", began, is_put_right))

    def _loaded(self, load: Load, at: datetime) -> Ledger:
        """
        The driver is being loaded, or was loaded. Every GPU that it found was set up from scratch.

        What it reports during the load is current, so only faults from before the beginning of the load count as
        cleared. A kernel log that does not show the beginning is given a minute.
        """
        if load is Load.BEGINS:
            return replace(self, reload=Reload(at, None))
        is_reported = (
            self.reload.began is not None and self.reload.done is None and at - self.reload.began <= LONGEST_LOAD
        )
        began = self.reload.began if is_reported and self.reload.began is not None else at - USUAL_LOAD
        entries = _cleared(self.entries, "reset", began, lambda one: _is_from_before(one, began, RESET_CLEARS))
        return replace(self, entries=entries, reload=Reload(began, at))

    def tries(self, rule: str) -> bool:
        """Whether *rule* is in shadow."""
        return any(fnmatchcase(rule, pattern) for pattern in self.policy.tried)

    def lost(self, count: int, *, first: datetime, last: datetime, boot_id: str = "") -> Ledger:
        """Record that *count* kernel records between *first* and *last* were overwritten before they were read."""
        old = next((finding for finding in self.standing if finding.rule == KMSG_LOST), None)
        total = count + (old.count if old else 0)
        lost = Finding(
            id=f"{NODE}/{KMSG_LOST}",
            device=NODE,
            rule=KMSG_LOST,
            severity=Severity.WARNING,
            action=RepairAction.NONE,
            blame=Blame.NODE,
            message=f"{total} kernel records were lost before they could be read; faults in them were not seen.",
            raised_at=old.raised_at if old else first,
            last_at=last,
            boot_id=boot_id,
            count=total,
        )
        return replace(self, entries=_put(self.entries, lost))

    def believe(self, finding: Finding) -> Ledger:
        """Add a finding that is stored elsewhere. It joins the active finding of the same fault by another witness."""
        for same in self.standing:
            if same.device == finding.device and _is_one_fault(same, finding):
                return replace(self, entries=_put(self.entries, life.believed(same, finding)))
        return replace(self, entries=_put(self.entries, finding))

    def clear_by_repair(self, at: datetime, noticed: datetime | None = None) -> Ledger:
        """
        Clear all that was last seen at or before *at*: the node was repaired or replaced.

        What probes read between the repair and *noticed*, when it became known, may come from before it: a counter grew
        since the sample before. It is cleared too, and the next sample that sees it raises it again. All that is here
        was read before *noticed*: a later timestamp only shows that the clock was set back since. So a finding stamped
        in the future is also cleared.
        """

        def is_put_right(finding: Finding) -> bool:
            late = [seen for seen in finding.evidence if seen.at > at]
            is_only_read = noticed is not None and all(seen.source not in KERNEL_LOGS for seen in late)
            is_ahead = noticed is not None and finding.last_at > noticed + CLOCK_DRIFTS
            return finding.last_at <= at or is_ahead or (bool(late) and is_only_read)

        return replace(self, entries=_cleared(self.entries, "repair", at, is_put_right))

    def clear_by_reboot(self, boot_id: str, at: datetime) -> Ledger:
        """Clear what a reboot clears, of every boot but *boot_id*, the present one. *at*: when it was noticed."""

        def is_put_right(finding: Finding) -> bool:
            return finding.boot_id not in {"", boot_id} and finding.action in REBOOT_CLEARS

        return replace(self, entries=_cleared(self.entries, "reboot", at, is_put_right))

    def clear_recovered(self, ids: Container[str], at: datetime) -> Ledger:
        """Clear the findings *ids*: their states are good again."""
        return replace(self, entries=_cleared(self.entries, "recovered", at, lambda finding: finding.id in ids))

    def clear_left_out(self, at: datetime) -> Ledger:
        """Clear findings that only rules left out by the policy report: no rule would ever see their end."""

        def is_left_out(finding: Finding) -> bool:
            return all(map(self.policy.leaves_out, (finding.rule, *finding.also)))

        return replace(self, entries=_cleared(self.entries, "configuration", at, is_left_out))

    def decay(self, now: datetime) -> Ledger:
        """Let findings fade that do not quarantine and were not seen again. Forget those cleared long ago."""
        if not self.entries:
            return self
        faded = _cleared(self.entries, "decay", now, lambda finding: life.has_faded(finding, now))
        kept = {key: finding for key, finding in faded.items() if not life.is_forgotten(finding, now)}
        return replace(self, entries=kept)

    def verdict(self, blind: Mapping[str, str] = NOT_BLIND) -> tuple[Verdict, str]:
        """The verdict of all active findings, with the worst as the reason. *blind*: why sources have no readings."""
        standing = [finding for finding in self.standing if not finding.shadow]
        if bad := [finding for finding in standing if finding.quarantines]:
            return Verdict.UNHEALTHY, _reason(bad)
        worth_knowing = [finding for finding in standing if _degrades(finding)]
        if blind:
            besides = f" Besides, {_reason(worth_knowing)}" if worth_knowing else ""
            return Verdict.UNKNOWN, f"{blindness_text(blind)}{besides}"
        if worth_knowing:
            return Verdict.DEGRADED, _reason(worth_knowing)
        if self.standing:
            return Verdict.HEALTHY, f"Nothing speaks against the node. {_reason(self.standing)}"
        return Verdict.HEALTHY, "No standing finding."


def _is_believed(record: KernelRecord, *, trust_user_space: bool) -> bool:
    """Whether the kernel wrote *record*, and about the device that it names. A drill fulfils neither."""
    if record.facility:
        return trust_user_space
    return record.source not in TAGGED or is_of_its_device(record.text, record.tags)


def _ingested(entries: Entries, judgement: Judgement, seen: Evidence, boot_id: str, policy: JudgePolicy) -> Entries:
    if root := _root_of(entries, judgement, seen.at):
        return _put(entries, life.with_evidence(root, seen, boot_id))
    if same := _same_fault(entries, judgement):
        return _put(entries, life.joined(same, judgement, seen, boot_id))
    old = entries.get(f"{judgement.device}/{judgement.rule}")
    if old is not None and life.is_counted(old, seen, boot_id):
        return entries
    finding = _advised(entries, _raised_or_repeated(old, judgement, seen, boot_id), seen.at)
    if finding.rule == RECOVERY_RULE:
        return _advise(_put(entries, finding), finding)
    return _put(entries, _suspicion(entries, finding, policy))


def _raised_or_repeated(old: Finding | None, judgement: Judgement, seen: Evidence, boot_id: str) -> Finding:
    if old is not None and old.cleared_at is None and (old.shadow == judgement.shadow or old.also):
        return life.repeated(old, judgement, seen, boot_id)
    finding = life.new_finding(judgement, seen, boot_id)
    if old is not None and finding.quarantines and old.cleared_by in {"reset", "reboot"}:
        return life.came_back(finding, old.cleared_by)
    if old is not None and old.cleared_by == "recovered":
        return life.flapped(finding, old)
    return finding


def _root_of(entries: Entries, judgement: Judgement, at: datetime) -> Finding | None:
    """The recent fault of the same device that *judgement* is only a symptom of."""
    causes = {cause for symptom in rules().symptoms if judgement.rule in symptom.rules for cause in symptom.after}
    return next((finding for finding in _fresh(entries, judgement.device, at) if finding.rule in causes), None)


def _same_fault(entries: Entries, judgement: Judgement) -> Finding | None:
    """
    The active finding of the same fault by another kind of witness. A rule in shadow joins no other.

    The kernel's own messages are not joined here: their times decide which of them belong together (`_root_of`).
    """
    for finding in _standing(entries):
        if finding.device == judgement.device and finding.rule != judgement.rule and not finding.shadow:
            same = judgement.cause and not judgement.shadow and judgement.cause == finding.cause
            both_the_kernels = is_the_kernels(judgement.rule) and is_the_kernels(finding.rule)
            if judgement.rule in finding.also or (same and not both_the_kernels):
                return finding
    return None


def _is_one_fault(same: Finding, other: Finding) -> bool:
    both_the_kernels = is_the_kernels(same.rule) and is_the_kernels(other.rule)
    return bool(other.cause) and same.cause == other.cause and not same.shadow and not both_the_kernels


def _advised(entries: Entries, finding: Finding, at: datetime) -> Finding:
    """The finding with the action that the driver asked for just before (Xid 154). It overrides the table."""
    if not life.is_linked(finding.rule):
        return finding
    advice = (other for other in _fresh(entries, finding.device, at) if other.rule == RECOVERY_RULE)
    return next((life.overruled(finding, one) for one in advice), finding)


def _advise(entries: Entries, advice: Finding) -> Entries:
    """The action that the driver asks for now overrides the table for the faults reported just before."""
    for finding in _fresh(entries, advice.device, advice.last_at):
        if life.is_linked(finding.rule):
            entries = _put(entries, life.overruled(finding, advice))
    return entries


def _taken_back(entries: Entries, device: str, at: datetime) -> Entries:
    """Xid 154 to 0: the driver withdraws its advice, and with it the faults that a reset clears."""

    def is_put_right(finding: Finding) -> bool:
        return (
            finding.device == device
            and finding.last_at <= at
            and (finding.rule == RECOVERY_RULE or (life.is_linked(finding.rule) and finding.action in RESET_CLEARS))
        )

    return _cleared(entries, "reset", at, is_put_right)


def _is_from_before(finding: Finding, began: datetime, actions: Container[RepairAction]) -> bool:
    """
    Whether a load of the driver that began at *began* cleared the fault of *finding* on a GPU. *actions*: the actions
    to which the load is equal.

    It does not where another witness has seen the fault too and goes on watching it. It does not clear faults of jobs
    either, which are counted.
    """
    asks = finding.quarantines or finding.action is RepairAction.RESET_GPU
    is_its = finding.device != NODE and is_the_drivers(finding.rule) and not finding.also
    return is_its and asks and finding.action in actions and finding.last_at < began


def _stands(entries: Entries, judgement: Judgement) -> bool:
    """Whether the finding of *judgement* was raised, by its own rule or by another witness of the same fault."""
    return any(
        finding.device == judgement.device and judgement.rule in {finding.rule, *finding.also}
        for finding in _standing(entries)
    )


def _ended(entries: Entries, judgement: Judgement, at: datetime) -> Entries:
    """The kernel reports the end. A fault that other witnesses report too ends when all of them see the end."""

    def is_over(finding: Finding) -> bool:
        is_reported = (finding.device, finding.rule) == (judgement.device, judgement.rule) and not finding.also
        return is_reported and finding.last_at <= at

    return _cleared(entries, "recovered", at, is_over)


def _suspicion(entries: Entries, finding: Finding, policy: JudgePolicy) -> Finding:
    """Turn a fault of applications into suspicion of the device, once different jobs met it there and not elsewhere."""
    never = rules().repeats.never
    if finding.blame is not Blame.APPLICATION or finding.rule in never or finding.device == NODE or finding.shadow:
        return finding
    since = finding.last_at - APP_WINDOW
    jobs = life.jobs_since(finding, since)
    for other in _standing(entries):
        if other.rule == finding.rule and other.device != finding.device:
            jobs -= life.jobs_since(other, since)
    if len(jobs) < policy.app_distinct_jobs:
        return finding
    return life.suspected(finding, jobs)


def _settles(finding: Finding, device: str, record: KernelRecord, now: datetime) -> bool:
    """False where the clock was set back beyond that: every new record would appear older."""
    if finding.cleared_at is None:
        return False
    if finding.cleared_by == "reboot":
        # Not by time: the reboot is noticed after the new boot has written its first records.
        return bool(record.boot_id) and record.boot_id == finding.boot_id
    covers = finding.cleared_by == "repair" or (finding.cleared_by == "reset" and finding.device == device)
    return covers and record.at <= finding.cleared_at <= now


def _standing(entries: Entries) -> list[Finding]:
    standing = (finding for finding in entries.values() if finding.cleared_at is None)
    return sorted(standing, key=lambda finding: (finding.raised_at, finding.id))


def _fresh(entries: Entries, device: str, at: datetime) -> list[Finding]:
    """Active findings of *device* that were seen so close to *at* that they belong together."""
    return [
        finding
        for finding in _standing(entries)
        if finding.device == device and abs(finding.last_at - at) <= rules().group
    ]


def _cleared(entries: Entries, by: str, at: datetime, matches: Callable[[Finding], bool]) -> Entries:
    return {
        key: replace(finding, cleared_at=at, cleared_by=by)
        if finding.cleared_at is None and matches(finding)
        else finding
        for key, finding in entries.items()
    }


def _put(entries: Entries, finding: Finding) -> Entries:
    return {**entries, finding.id: finding}


def _degrades(finding: Finding) -> bool:
    """False for a fault of the application: it is no evidence about the node."""
    return finding.severity is not Severity.INFO and finding.blame is not Blame.APPLICATION


def _reason(findings: list[Finding]) -> str:
    worst = max(findings, key=lambda finding: life.BADNESS.index(finding.severity))
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{worst.rule}: {worst.message}{more}"
