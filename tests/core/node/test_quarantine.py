"""Whether a node is taken out of service or given back."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from healthd.core.api import ANNOTATION_QUARANTINE, ANNOTATION_REPAIRED, Node, Taint
from healthd.core.api.model import Finding
from healthd.core.config import GiveBack
from healthd.core.node.quarantine import (
    Await,
    Decision,
    Keep,
    Quarantine,
    Record,
    Release,
    RestoreSlots,
    cordon_patch,
    decide,
    finding_of,
    read_record,
    uncordon_patch,
)
from tests.builders import a_finding, a_node
from tests.fakes import START

NOW = START + timedelta(hours=1)
RECORD = Record(finding="gpu/xid-79", message="it fell off the bus", since=START)


def quarantined(record: Record = RECORD) -> Node:
    """A node that healthd took out of service."""
    return a_node(unschedulable=True, annotations={ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()})


def test_a_standing_finding_that_quarantines_asks_for_a_quarantine_and_says_why() -> None:
    finding = a_finding(message="it fell off the bus")

    decision = decide(a_node(), [finding], holds_slots=False, now=NOW)

    record = Record(finding=finding.id, message="it fell off the bus", since=NOW, seen_at=finding.last_at)
    assert decision == Quarantine(record)


@pytest.mark.parametrize(
    "finding",
    [
        pytest.param(a_finding(quarantines=False), id="does not quarantine"),
        pytest.param(a_finding(cleared_at=START, cleared_by="repair"), id="was cleared"),
    ],
)
def test_any_other_finding_leaves_the_node_alone(finding: object) -> None:
    assert decide(a_node(), [finding], holds_slots=False, now=NOW) == Keep()  # type: ignore[list-item]


def test_a_cordon_of_a_person_is_remembered() -> None:
    decision = decide(a_node(unschedulable=True), [a_finding()], holds_slots=False, now=NOW)

    assert isinstance(decision, Quarantine)
    assert decision.record.prior_unschedulable


def test_a_quarantine_stays_while_its_finding_stands() -> None:
    assert decide(quarantined(), [a_finding()], holds_slots=True, now=NOW) == Keep()


def test_a_quarantine_whose_slot_somebody_deleted_takes_one_again() -> None:
    assert decide(quarantined(), [a_finding()], holds_slots=False, now=NOW) == RestoreSlots()


def test_a_quarantine_that_one_of_two_limits_does_not_count_takes_the_slot_that_it_lacks() -> None:
    assert decide(quarantined(), [a_finding()], holds_slots=True, lacks_slots=True, now=NOW) == RestoreSlots()


def test_a_quarantine_ends_when_its_finding_was_cleared_and_says_by_what() -> None:
    cleared = a_finding(device="gpu", cleared_at=START, cleared_by="repair")

    assert decide(quarantined(), [cleared], holds_slots=True, now=NOW) == Release("gpu/xid-79 was cleared by repair")


def waiting_for_repair(*findings: Finding, repaired: datetime | None = None) -> Decision:
    """What becomes of a quarantined node whose operator wants every return confirmed."""
    return decide(quarantined(), findings, holds_slots=True, now=NOW, give_back=GiveBack.REPAIRED, repaired=repaired)


def test_a_node_that_mended_by_itself_waits_for_the_repair_annotation_where_configured() -> None:
    reset = a_finding(device="gpu", cleared_at=NOW, cleared_by="reset")

    decision = waiting_for_repair(reset)

    assert isinstance(decision, Await)
    assert "gpu/xid-79 was cleared by reset" in decision.reason
    assert "`healthd repair node-a`" in decision.reason
    assert waiting_for_repair(reset, repaired=reset.last_at) == Release("gpu/xid-79 was cleared by reset")


def test_an_earlier_repair_annotation_does_not_count_for_a_later_fault() -> None:
    first = a_finding(device="gpu", at=START, cleared_at=NOW, cleared_by="reset")
    later = a_finding(device="gpu-b", at=START + timedelta(minutes=9), cleared_at=NOW, cleared_by="reset")
    between = START + timedelta(minutes=5)

    assert isinstance(waiting_for_repair(first, repaired=between), Release)
    assert isinstance(waiting_for_repair(first, later, repaired=between), Await)


def test_a_repair_that_was_declared_before_the_quarantine_does_not_end_it_whatever_the_clocks_say() -> None:
    stamp = START + timedelta(hours=4)
    node = a_node(annotations={ANNOTATION_REPAIRED: stamp.isoformat()})
    by_a_slow_clock = a_finding(at=START + timedelta(minutes=1))
    begun = decide(node, [by_a_slow_clock], holds_slots=True, now=NOW)
    assert isinstance(begun, Quarantine)
    quarantine = {ANNOTATION_QUARANTINE: msgspec.json.encode(begun.record).decode()}

    def after(declared: datetime) -> Decision:
        notes = {ANNOTATION_REPAIRED: declared.isoformat(), **quarantine}
        node = a_node(unschedulable=True, annotations=notes)
        return decide(node, [], holds_slots=True, now=NOW, give_back=GiveBack.REPAIRED, repaired=declared)

    assert isinstance(after(stamp), Await)
    assert isinstance(after(stamp + timedelta(minutes=1)), Release)


def test_a_finding_that_was_forgotten_meanwhile_does_not_give_the_node_back_either() -> None:
    assert isinstance(waiting_for_repair(), Await)
    assert isinstance(waiting_for_repair(repaired=START), Release)


def test_a_slot_without_a_quarantine_is_given_back_or_used() -> None:
    assert isinstance(decide(a_node(), [], holds_slots=True, now=NOW), Release)
    assert isinstance(decide(a_node(), [a_finding()], holds_slots=True, now=NOW), Quarantine)


def test_a_quarantine_keeps_who_else_saw_its_fault_and_whether_it_ends_by_itself() -> None:
    finding = a_finding(also=["nvml-wants-reboot"], watched=True)

    decision = decide(a_node(), [finding], holds_slots=False, now=NOW)

    assert isinstance(decision, Quarantine)
    reported = finding_of(decision.record)
    assert (reported.id, reported.also, reported.watched) == (finding.id, ["nvml-wants-reboot"], True)


@pytest.mark.parametrize(
    "annotation", ["{", "[]", '{"owner": "somebody", "finding": "f", "message": "m", "since": "2026-01-01T00:00:00Z"}']
)
def test_a_record_that_is_not_ours_or_not_readable_is_not_removed(annotation: str) -> None:
    node = a_node(unschedulable=True, annotations={ANNOTATION_QUARANTINE: annotation})

    assert read_record(node) is None
    assert decide(node, [], holds_slots=False, now=NOW) == Keep()


def test_cordoning_keeps_foreign_taints_and_names_the_rule() -> None:
    patch = cordon_patch(a_node(taints=[Taint(key="nvidia.com/gpu")]), RECORD)

    taints = [(taint["key"], taint.get("value")) for taint in patch["spec"]["taints"]]
    assert taints == [("nvidia.com/gpu", None), ("healthd.dev/quarantined", "xid-79")]
    assert patch["spec"]["unschedulable"] is True


def test_uncordoning_undoes_that_and_nothing_else() -> None:
    node = a_node(taints=[Taint(key="nvidia.com/gpu"), Taint(key="healthd.dev/quarantined", value="xid-79")])

    patch = uncordon_patch(node, RECORD)

    assert [taint["key"] for taint in patch["spec"]["taints"]] == ["nvidia.com/gpu"]
    assert patch["spec"]["unschedulable"] is None
    assert patch["metadata"]["annotations"] == {ANNOTATION_QUARANTINE: None}


def test_uncordoning_leaves_a_cordon_that_was_there_before() -> None:
    record = msgspec.structs.replace(RECORD, prior_unschedulable=True)

    assert "unschedulable" not in uncordon_patch(a_node(unschedulable=True), record)["spec"]
