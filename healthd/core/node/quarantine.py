"""
Decide whether a node is taken out of service or given back.

Computes only; `healthd.agent.agent` performs it. What healthd did not set, it never takes away, with one exception that
it cannot see: who cordons a node that is quarantined already changes nothing, so the release undoes that too. To keep a
node out beyond the repair, taint it, or cordon it again afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    TAINT_QUARANTINED,
    Node,
    Taint,
)
from healthd.core.api.model import Action, Blame, Finding, Severity
from healthd.core.config import GiveBack
from healthd.core.untrusted import Moment, Unreadable, read_json

OWNER = "healthd"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The annotation that makes a quarantine ours, and tells a person why."""

    owner: str = OWNER
    finding: str
    also: list[str] = []
    """Further rules that saw the fault. One of them may be what took the node out."""
    watched: bool = False
    """The finding ends by itself, once all these rules have seen the fault gone for long enough."""
    message: str
    since: Moment
    seen_at: Moment | None = None
    """When the fault was last seen, which may be long before: a repair in between has put it right."""
    prior_unschedulable: bool = False
    """A person had cordoned the node before: it stays so when the quarantine ends."""


class Quarantine(msgspec.Struct, frozen=True):
    """Take the node out of service, once slots of the budget are held."""

    record: Record


class Hold(msgspec.Struct, frozen=True):
    """Take the slots that a quarantine lacks: somebody deleted them. Without them it is not counted any more."""


class Release(msgspec.Struct, frozen=True):
    """Give the node back, then the slots."""

    reason: str


class Await(msgspec.Struct, frozen=True):
    """Leave the node in quarantine until somebody says that it was repaired, though its findings have ended."""

    reason: str


class Keep(msgspec.Struct, frozen=True):
    """Nothing to do."""


Decision = Quarantine | Hold | Release | Await | Keep


def read_record(node: Node) -> Record | None:
    """Our quarantine of *node*, or None. An annotation that is not ours or not readable is nobody's to remove."""
    raw = node.metadata.annotations.get(ANNOTATION_QUARANTINE)
    if raw is None:
        return None
    try:
        record = read_json(raw, Record)
    except Unreadable:
        return None
    return record if record.owner == OWNER else None


def decide(
    node: Node,
    findings: Sequence[Finding],
    *,
    holds_slots: bool,
    lacks_slots: bool | None = None,
    now: datetime,
    give_back: GiveBack = GiveBack.MENDED,
    repaired: datetime | None = None,
) -> Decision:
    """
    What to do about *node*, given all its findings, and when it was last said to be *repaired*.

    *holds_slots* without a quarantine is what a crash between taking a slot and cordoning leaves behind: either the
    finding still stands and the quarantine is finished, or the slot is given back. *lacks_slots* says whether one of
    the limits does not count the node; None: it needs one slot, and so lacks it where it holds none.
    """
    ours = read_record(node)
    worst = next((f for f in findings if f.quarantines and f.cleared_at is None), None)
    if worst is not None and ours is None:
        return Quarantine(_record_for(node, worst, now))
    awaits = ours is not None and give_back is GiveBack.REPAIRED and not _was_repaired(findings, ours, repaired)
    is_uncounted = not holds_slots if lacks_slots is None else lacks_slots
    if ours is not None and is_uncounted and (worst is not None or awaits):
        return Hold()
    if worst is not None or (ours is None and not holds_slots):
        return Keep()
    why = _why_released(findings, ours)
    if awaits:
        name = node.metadata.name
        return Await(f"{why}, but quarantine.give_back waits for the word: check it, then `healthd repair {name}`")
    return Release(why)


def finding_of(record: Record) -> Finding:
    """
    What *record* tells of a finding that was never published: a crash came between the quarantine and the report.

    The kernel log, when it still has the record, knows more and takes its place.
    """
    device, _, rule = record.finding.rpartition("/")
    return Finding(
        id=record.finding,
        device=device,
        rule=rule,
        also=record.also,
        watched=record.watched,
        severity=Severity.ERROR,
        action=Action.INSPECT,
        blame=Blame.UNKNOWN,
        message=record.message,
        raised_at=record.seen_at or record.since,
        last_at=record.seen_at or record.since,
        quarantines=True,
    )


def cordon_patch(node: Node, record: Record) -> dict[str, Any]:
    """One merge patch: unschedulable, taint and annotation together. Needs *node*'s resourceVersion as precondition."""
    taint = Taint(key=TAINT_QUARANTINED, value=_taint_value(record.finding), time_added=record.since)
    taints = [*(t for t in node.spec.taints if t.key != TAINT_QUARANTINED), taint]
    return {
        "metadata": {"annotations": {ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()}},
        "spec": {"unschedulable": True, "taints": msgspec.to_builtins(taints)},
    }


def uncordon_patch(node: Node, record: Record) -> dict[str, Any]:
    """Undo exactly what `cordon_patch` did: a cordon that a person had set before stays."""
    taints = [t for t in node.spec.taints if t.key != TAINT_QUARANTINED]
    spec: dict[str, Any] = {"taints": msgspec.to_builtins(taints) or None}
    if not record.prior_unschedulable:
        spec["unschedulable"] = None
    return {"metadata": {"annotations": {ANNOTATION_QUARANTINE: None}}, "spec": spec}


def _record_for(node: Node, finding: Finding, now: datetime) -> Record:
    return Record(
        finding=finding.id,
        also=finding.also,
        watched=finding.watched,
        message=finding.message,
        since=now,
        seen_at=finding.last_at,
        prior_unschedulable=node.spec.unschedulable,
    )


def _why_released(findings: Sequence[Finding], ours: Record | None) -> str:
    if ours is None:
        return "the finding that asked for a slot no longer stands"
    cleared = next((f for f in findings if f.id == ours.finding and f.cleared_by), None)
    return f"{ours.finding} was cleared by {cleared.cleared_by}" if cleared else f"{ours.finding} no longer stands"


def _was_repaired(findings: Sequence[Finding], ours: Record, repaired: datetime | None) -> bool:
    """A word that came before the last fault was about another one."""
    faults = [finding.last_at for finding in findings if finding.quarantines]
    return repaired is not None and repaired >= max([ours.seen_at or ours.since, *faults])


def _taint_value(finding_id: str) -> str:
    """The rule, in the characters that a taint value may hold."""
    return finding_id.rsplit("/", 1)[-1][:63]
