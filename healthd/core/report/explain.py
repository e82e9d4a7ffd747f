"""
Explains one recovery: what happened, what was decided and why, what was done, and the evidence for it.

Reads facts only from recorded objects, so the result is the same for every caller at every time.
`core.report.explain_text` puts the facts into words. What the objects no longer show is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec

from healthd.core.api import (
    Attempt,
    Cause,
    ChosenCheckpoint,
    FencedPod,
    Node,
    NodeHealth,
    Recovery,
    RejectedCheckpoint,
    TimelineEntry,
)
from healthd.core.api.model import ENDED, CauseKind, Finding, Phase
from healthd.core.checkpoint.restart_cost import Stake, lost_before
from healthd.core.node.quarantine import read_record
from healthd.core.node.reporting import silence
from healthd.core.recovery.recovery_status import running_since


class EvidenceLine(msgspec.Struct, frozen=True, kw_only=True):
    """One observation. *record* is the number of the kernel record, or -1; *at* is the kernel's own time."""

    at: datetime
    source: str
    text: str
    record: int = -1


class CauseDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One cause, with the evidence of its finding if that is still on record."""

    kind: CauseKind
    message: str
    at: datetime
    node: str = ""
    finding: str = ""
    quarantined_at: datetime | None = None
    """When its node was taken out of service for it, if that is still on record."""
    evidence: list[EvidenceLine] = []


class PhaseSpan(msgspec.Struct, frozen=True, kw_only=True):
    """One period in a phase; *ms* is None while the phase has not ended."""

    phase: Phase
    at: datetime
    message: str
    ms: float | None


class BadNode(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of a node that is to blame. *quarantined_since* is None when it is not in quarantine."""

    node: str
    gone: bool = False
    """The node does not exist any more."""
    cordoned: bool = False
    """It accepts no new pods, by healthd or by another."""
    quarantined_since: datetime | None = None
    findings: list[str] = []
    """Ids of the standing findings that keep it out of service."""
    lesser_findings: list[str] = []
    """Ids of the other standing findings."""
    silent: bool = False
    """Its agent has been silent: its last report about the node does not count as known any more."""
    agent_seen: datetime | None = None
    """When its agent last reported."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything on record about one recovery. Times are UTC, durations are milliseconds."""

    recovery: str
    namespace: str
    gang: str
    stopped_attempt: int | None
    """The attempt that the first fault stopped; None while no stop is on record."""
    phase: Phase
    held_in: Phase | None
    message: str
    began: datetime | None
    ended: datetime | None
    ms: float | None
    """From the first entry of the timeline to the last; None until the recovery has ended."""
    running_since: datetime | None
    """The time since which every member runs again, confirmed or not."""
    running_ms: float | None
    """How long it took until then."""
    causes: list[CauseDetail]
    nodes: list[BadNode]
    timeline: list[PhaseSpan]
    phases: dict[str, float]
    """Milliseconds in each phase, over all periods in it."""
    pods: list[FencedPod]
    checkpoint: ChosenCheckpoint | None
    rejected: list[RejectedCheckpoint]
    lost_ms: float | None
    """Work to do again: from the save of the checkpoint, or from a later start, to the first fault. Until a checkpoint
    is chosen, the newest one that was known to be good before counts. None when that is unknown."""
    lost_steps: int | None
    """From the newest checkpoint, complete or not, back to the loaded one; None when a step is unknown."""
    replacements: dict[str, str]
    """Bad node -> spare."""
    stand_ins: dict[str, str]
    """Node that other pods took while the gang was stopped -> the spare that replaces it."""
    attempts: list[Attempt]
    no_advance: int
    not_before: datetime | None
    confirmed_step: int | None
    at_stake: Stake | None = None
    """What the next fault would cost, if the gang runs and this is its newest recovery."""


def explain(
    recovery: Recovery,
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    now: datetime | None = None,
    *,
    good_before: datetime | None = None,
    stake: Stake | None = None,
) -> Explanation:
    """
    The facts from *recovery* and from the objects of its nodes. Without *now* no agent counts as silent.

    *good_before* is when the newest good checkpoint was saved, as recorded on the root.
    """
    status, spec = recovery.status, recovery.spec
    timeline = laps(status.timeline)
    causes = status.causes or [spec.cause]
    ended = status.timeline[-1].at if status.timeline and status.phase in ENDED else None
    began = status.timeline[0].at if status.timeline else None
    return Explanation(
        recovery=recovery.metadata.name,
        namespace=recovery.metadata.namespace,
        gang=f"{spec.gang.kind} {spec.gang.name}",
        stopped_attempt=spec.first_attempt - 1 if any(lap.phase is Phase.STOPPING for lap in timeline) else None,
        phase=status.phase,
        held_in=status.held_in,
        message=status.message,
        began=began,
        ended=ended,
        ms=milliseconds(ended - began) if ended and began else None,
        running_since=(running := running_since(status)),
        running_ms=milliseconds(running - began) if running and began else None,
        causes=[_why(cause, nodes, health, ended) for cause in causes],
        nodes=[_bad_node(name, nodes, health, now) for name in _blamed(causes)],
        timeline=timeline,
        phases=phases(timeline),
        pods=list(status.pods),
        checkpoint=status.checkpoint,
        rejected=list(status.rejected),
        lost_ms=lost_before(recovery, _saved(status.checkpoint, good_before)),
        lost_steps=_lost_steps(recovery),
        replacements=dict(status.replacements),
        stand_ins=dict(status.stand_ins),
        attempts=list(status.attempts),
        no_advance=status.no_advance,
        not_before=status.not_before,
        confirmed_step=status.confirmed_step if status.confirmed_step >= 0 else None,
        at_stake=stake,
    )


def laps(timeline: Sequence[TimelineEntry]) -> list[PhaseSpan]:
    """The entries of a timeline, each with the time until the next entry."""
    lengths: list[float | None] = [milliseconds(after.at - entry.at) for entry, after in pairwise(timeline)]
    return [
        PhaseSpan(phase=entry.phase, at=entry.at, message=entry.message, ms=ms)
        for entry, ms in zip(timeline, [*lengths, None], strict=False)
    ]


def phases(timeline: Sequence[PhaseSpan]) -> dict[str, float]:
    """Milliseconds in each phase, in the order in which the phases first began."""
    total: dict[str, float] = {}
    for lap in timeline:
        if lap.ms is not None:
            total[lap.phase.value] = round(total.get(lap.phase.value, 0.0) + lap.ms, 3)
    return total


def milliseconds(duration: timedelta) -> float:
    """A duration in milliseconds, rounded to the microsecond."""
    return round(duration / timedelta(milliseconds=1), 3)


def _why(
    cause: Cause, nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], ended: datetime | None
) -> CauseDetail:
    finding = _finding(cause, health)
    record = read_record(nodes[cause.node]) if cause.node in nodes else None
    # A quarantine that began after the end of the recovery does not belong to it.
    since = record.since if record and (ended is None or record.since <= ended) else None
    return CauseDetail(
        kind=cause.kind,
        message=cause.message,
        at=cause.at,
        node=cause.node,
        finding=cause.finding,
        quarantined_at=since,
        evidence=_evidence_lines(finding) if finding else [],
    )


def _finding(cause: Cause, health: Mapping[str, NodeHealth]) -> Finding | None:
    known = health.get(cause.node)
    found = known.status.findings if known and cause.finding else []
    return next((finding for finding in found if finding.id == cause.finding), None)


def _evidence_lines(finding: Finding) -> list[EvidenceLine]:
    return [
        EvidenceLine(at=seen.at, source=seen.source, text=seen.text, record=seen.sequence) for seen in finding.evidence
    ]


def _blamed(causes: Sequence[Cause]) -> list[str]:
    return list(dict.fromkeys(cause.node for cause in causes if cause.node))


def _bad_node(name: str, nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], now: datetime | None) -> BadNode:
    node = nodes.get(name)
    record = read_record(node) if node else None
    standing = [f for f in health[name].status.findings if f.cleared_at is None] if name in health else []
    return BadNode(
        node=name,
        gone=node is None,
        cordoned=node is not None and node.spec.unschedulable,
        quarantined_since=record.since if record else None,
        findings=[f.id for f in standing if f.quarantines],
        lesser_findings=[f.id for f in standing if not f.quarantines],
        silent=now is not None and silence(health, now)(name),
        agent_seen=health[name].status.seen_at if name in health else None,
    )


def _saved(chosen: ChosenCheckpoint | None, good_before: datetime | None) -> datetime | None:
    """When the chosen checkpoint was saved; before one is chosen, the time of the newest good one."""
    if chosen is None:
        return good_before
    return datetime.fromtimestamp(chosen.saved_ns / 1e9, tz=UTC) if chosen.path and chosen.saved_ns > 0 else None


def _lost_steps(recovery: Recovery) -> int | None:
    status = recovery.status
    loaded = status.checkpoint
    if loaded is None or status.step_at_fault < 0 or (loaded.path and loaded.step < 0):
        return None
    return status.step_at_fault - max(loaded.step, 0)
