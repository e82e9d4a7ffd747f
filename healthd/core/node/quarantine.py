"""
Decides whether a node is taken out of service or returned to service.

Only computes; `healthd.agent.agent` acts. healthd never removes what it did not set, with one exception that it cannot
see: to cordon a node that is already quarantined changes nothing on the node, so the release also undoes that cordon.
To keep a node out of service after the repair, taint it, or cordon it again afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    TAINT_QUARANTINED,
    Node,
    Taint,
)
from healthd.core.api.model import Blame, Finding, RepairAction, Severity
from healthd.core.config import GiveBack
from healthd.core.untrusted import InvalidText, Moment, moment_or_none, read_json, read_moment

OWNER = "healthd"


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The annotation that marks a quarantine as healthd's, with the reason for people."""

    owner: str = OWNER
    finding: str
    also: list[str] = []
    """Further rules that found the fault. One of them may be the reason for the quarantine."""
    watched: bool = False
    """The finding ends by itself, when all these rules have observed no fault for long enough."""
    message: str
    since: Moment
    seen_at: Moment | None = None
    """When the fault was last observed, which may be long before *since*: a repair in between has fixed it."""
    repaired: Moment | None = None
    """The repair that was declared already when it began: it was for an earlier fault, whatever the clocks say."""
    prior_unschedulable: bool = False
    """The node was already cordoned by a person: it stays cordoned when the quarantine ends."""


class Quarantine(msgspec.Struct, frozen=True):
    """Take the node out of service, after the budget slots are taken."""

    record: Record


class RestoreSlots(msgspec.Struct, frozen=True):
    """Take the slots that a quarantine lacks, because they were deleted: without them the budget does not count it."""


class Release(msgspec.Struct, frozen=True):
    """Return the node to service, then free the slots."""

    reason: str


class Await(msgspec.Struct, frozen=True):
    """Leave the node in quarantine until a person confirms the repair, although its findings have ended."""

    reason: str


class Keep(msgspec.Struct, frozen=True):
    """Nothing to do."""


Decision = Quarantine | RestoreSlots | Release | Await | Keep


def read_record(node: Node) -> Record | None:
    """healthd's quarantine of *node*, or None. An annotation that is not ours or not readable is left alone."""
    raw = node.metadata.annotations.get(ANNOTATION_QUARANTINE)
    if raw is None:
        return None
    try:
        record = read_json(raw, Record)
    except InvalidText:
        return None
    return record if record.owner == OWNER else None


def worst_of(findings: Sequence[Finding]) -> Finding | None:
    """The finding that asks for a quarantine, or None."""
    return next((f for f in findings if f.quarantines and f.cleared_at is None), None)


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
    What to do about *node*, from all its findings and the time of the last report that it was *repaired*.

    *holds_slots* without a quarantine is the result of a crash between taking a slot and cordoning: either the finding
    still stands and the quarantine is completed, or the slot is freed. *lacks_slots*: whether one of the limits does
    not count the node; None: the node needs one slot, and lacks it when it holds none.
    """
    ours = read_record(node)
    worst = worst_of(findings)
    if worst is not None and ours is None:
        return Quarantine(_record_for(node, worst, now))
    awaits = ours is not None and give_back is GiveBack.REPAIRED and not _was_repaired(node, findings, ours, repaired)
    is_uncounted = not holds_slots if lacks_slots is None else lacks_slots
    if ours is not None and is_uncounted and (worst is not None or awaits):
        return RestoreSlots()
    if worst is not None or (ours is None and not holds_slots):
        return Keep()
    why = _why_released(findings, ours)
    if awaits:
        name = node.metadata.name
        return Await(f"{why}, but quarantine.give_back waits for the word: check it, then `healthd repair {name}`")
    return Release(why)


def finding_of(record: Record) -> Finding:
    """
    The finding that *record* describes, when it was never published: a crash came between the quarantine and the
    report.

    If the kernel log still has the record, the finding from the log has more detail and replaces this one.
    """
    device, _, rule = record.finding.rpartition("/")
    return Finding(
        id=record.finding,
        device=device,
        rule=rule,
        also=record.also,
        watched=record.watched,
        severity=Severity.ERROR,
        action=RepairAction.INSPECT,
        blame=Blame.UNKNOWN,
        message=record.message,
        raised_at=record.seen_at or record.since,
        last_at=record.seen_at or record.since,
        quarantines=True,
    )


def cordon_patch(node: Node, record: Record) -> dict[str, Any]:
    """
    One merge patch: unschedulable, taint and annotation together.

    The write needs *node*'s resourceVersion as precondition.
    """
    taint = Taint(key=TAINT_QUARANTINED, value=_taint_value(record.finding), time_added=record.since)
    taints = [*(t for t in node.spec.taints if t.key != TAINT_QUARANTINED), taint]
    return {
        "metadata": {"annotations": {ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()}},
        "spec": {"unschedulable": True, "taints": msgspec.to_builtins(taints)},
    }


def uncordon_patch(node: Node, record: Record) -> dict[str, Any]:
    """Undoes exactly what `cordon_patch` did: a cordon that a person had set before stays."""
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
        repaired=repaired_at(node),
        prior_unschedulable=node.spec.unschedulable,
    )


def _why_released(findings: Sequence[Finding], ours: Record | None) -> str:
    if ours is None:
        return "the finding that asked for a slot no longer stands"
    cleared = next((f for f in findings if f.id == ours.finding and f.cleared_by), None)
    return f"{ours.finding} was cleared by {cleared.cleared_by}" if cleared else f"{ours.finding} no longer stands"


def _was_repaired(node: Node, findings: Sequence[Finding], ours: Record, repaired: datetime | None) -> bool:
    """Whether the repair was reported after the last fault: an earlier report was about another fault."""
    if ours.repaired is not None and ours.repaired == repaired_at(node):
        return False
    faults = [finding.last_at for finding in findings if finding.quarantines]
    return repaired is not None and repaired >= max([ours.seen_at or ours.since, *faults])


def _taint_value(finding_id: str) -> str:
    """The rule, in the characters that a taint value may hold."""
    return finding_id.rsplit("/", 1)[-1][:63]


def why_not_repaired(node: Node, findings: Sequence[Finding], repair: str) -> str:
    """
    Why the report that *node* was repaired does not end its quarantine; empty: it did, or there is none since.

    *repair* is the command for people. It also counts where the clock of the node is ahead of theirs, by which what
    stands appears to be newer than the repair.
    """
    ours, said = read_record(node), node.metadata.annotations.get(ANNOTATION_REPAIRED)
    if ours is None or said is None:
        return ""
    try:
        at = read_moment(said)
    except InvalidText as error:
        return f"{ANNOTATION_REPAIRED} on it: {error}"
    worst = worst_of(findings)
    if worst is None or at == ours.repaired:
        return ""
    return (
        f"{ANNOTATION_REPAIRED} on it says {said}, and by the clock of this node {worst.id} was seen after that; "
        f"where it was repaired since, say `{repair}`"
    )


def repaired_at(node: Node) -> datetime | None:
    """When a person marked *node* as repaired. None when none did or the time cannot be parsed."""
    said = node.metadata.annotations.get(ANNOTATION_REPAIRED)
    return moment_or_none(said) if said is not None else None
