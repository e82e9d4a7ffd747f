"""Whether a root that failed for good did so because of a node, and what becomes of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.core.api import ANNOTATION_QUARANTINE, Cause, GangRef, Node, Pod, Rebuild, Recovery, RecoveryStatus
from healthd.core.api.model import Phase
from healthd.core.config import HangPolicy, RecoveryPolicy
from healthd.core.node.quarantine import Record
from healthd.core.recovery.actions import MakeRoot, RemoveRoot
from healthd.core.recovery.decide import Decision, decide
from healthd.core.recovery.faults import FAILED_LATELY, FAULT_AFTER, FAULT_BEFORE, find_faults
from healthd.core.recovery.gang import Failure, GangOptions, GangView, RebuildRead, Root, RootOutcome
from healthd.core.recovery.rebuilding import is_answered
from tests.builders import a_cause, a_node, a_pod
from tests.core.gangs import a_recovery_in, a_root
from tests.fakes import START

FAILED_AT = START + timedelta(hours=1)
ALLOWED = GangOptions(restart=True, rebuild=True)
SECOND = timedelta(seconds=1)
OTHER = GangRef(kind="Job", name="train", namespace="default", uid="uid-other")


def a_failed_root(*, options: GangOptions = ALLOWED, kept: str = "", **fields: Any) -> Root:
    failure = Failure(at=FAILED_AT, reason="BackoffLimitExceeded", kept=kept)
    return a_root(ending=RootOutcome.FAILED, failure=failure, options=options, **fields)


def a_bad_node(since: datetime) -> Node:
    record = Record(finding="gpu/xid-79", message="it fell off the bus", since=since)
    return a_node(
        "node-1", unschedulable=True, annotations={ANNOTATION_QUARANTINE: msgspec.json.encode(record).decode()}
    )


def faults_of(
    root: Root, *, since: datetime = FAILED_AT, now: datetime = FAILED_AT, deleted: Sequence[Pod] = ()
) -> list[Cause]:
    there = () if deleted else (a_pod("rank-1", node="node-1", index=1),)
    nodes = {"node-0": a_node("node-0"), "node-1": a_bad_node(since)}
    return find_faults(GangView(root=root, pods=there, deleted=tuple(deleted), nodes=nodes), HangPolicy(), now)


def test_a_node_that_broke_right_before_ended_the_gang_that_had_a_member_on_it() -> None:
    assert [cause.node for cause in faults_of(a_failed_root(), since=FAILED_AT - SECOND)] == ["node-1"]


def test_so_did_one_whose_member_was_deleted_since() -> None:
    gone = a_pod("rank-1", node="node-1", index=1)
    assert [cause.node for cause in faults_of(a_failed_root(), deleted=[gone])] == ["node-1"]


def test_a_member_of_an_earlier_attempt_does_not_count() -> None:
    gone = a_pod("rank-1", node="node-1", index=1, annotations={"healthd.dev/attempt": "0"})
    assert faults_of(a_failed_root(attempt=1), deleted=[gone]) == []


def test_a_member_that_was_replaced_before_the_fault_does_not_count() -> None:
    asked = FAILED_AT - timedelta(minutes=10)
    gone = a_pod("rank-1", node="node-1", index=1, deletion_timestamp=asked, deletion_grace_period_seconds=0)
    assert faults_of(a_failed_root(), deleted=[gone]) == []


@pytest.mark.parametrize(
    ("since", "counts"),
    [
        (FAILED_AT - FAULT_BEFORE, True),
        (FAILED_AT - FAULT_BEFORE - SECOND, False),
        (FAILED_AT + FAULT_AFTER, True),
        (FAILED_AT + FAULT_AFTER + SECOND, False),
    ],
)
def test_a_fault_from_long_before_or_after_is_not_to_blame(since: datetime, counts: bool) -> None:
    assert bool(faults_of(a_failed_root(), since=since, now=FAILED_AT + timedelta(minutes=5))) is counts


def test_what_failed_long_ago_is_left_alone() -> None:
    assert faults_of(a_failed_root(), now=FAILED_AT + FAILED_LATELY)
    assert not faults_of(a_failed_root(), now=FAILED_AT + FAILED_LATELY + SECOND)


@pytest.mark.parametrize("state", [{"deleting": True}, {"invalid": ("unreadable",)}, {"suspended": True}])
def test_what_its_user_deletes_or_had_suspended_and_what_cannot_be_read_is_left_alone(state: dict[str, Any]) -> None:
    assert faults_of(a_failed_root(**state)) == []


def test_a_root_that_does_not_say_when_it_failed_is_left_alone() -> None:
    assert faults_of(a_root(ending=RootOutcome.FAILED, failure=Failure())) == []


def a_blamed_recovery(phase: Phase, **status: Any) -> Recovery:
    return a_recovery_in(phase, causes=[a_cause(node="node-1", at=FAILED_AT - SECOND)], **status)


def decided(recovery: Recovery, root: Root, now: datetime = FAILED_AT, **view: Any) -> Decision:
    return decide(recovery, GangView(root=root, **view), (), RecoveryPolicy(), now)


def test_the_intent_is_on_record_before_anything_is_deleted() -> None:
    recovery = a_blamed_recovery(Phase.DETECTED)
    first = decided(recovery, a_failed_root(), rebuild=RebuildRead())
    assert first.record is not None
    assert first.record.rebuild == Rebuild(uid=recovery.spec.gang.uid)
    second = decided(replace(recovery, status=first.record), a_failed_root(), rebuild=RebuildRead())
    assert second.actions == (RemoveRoot(),)


def test_nothing_begins_that_the_api_server_would_refuse() -> None:
    refused = RebuildRead(refused="healthd-controller may not create jobs")
    decision = decided(a_blamed_recovery(Phase.DETECTED), a_failed_root(), rebuild=refused)

    assert decision.record is not None
    assert decision.record.phase is Phase.GAVE_UP
    assert "cannot be rebuilt: healthd-controller may not create jobs; to run it again" in decision.record.message


@pytest.mark.parametrize("options", [ALLOWED, GangOptions(restart=True)])
def test_nor_what_cannot_be_made_again_and_no_word_of_its_owner_would_help(options: GangOptions) -> None:
    root = a_failed_root(options=options, kept="it is in a queue of Kueue")
    decision = decided(a_blamed_recovery(Phase.DETECTED), root)

    assert decision.record is not None
    assert decision.record.message == (
        "the root is failed for good and may not be rebuilt: it is in a queue of Kueue; to run it again delete it and "
        "make it from its manifest: kubectl replace --force -n default -f FILE"
    )


def test_evidence_is_waited_for_and_then_the_program_is_to_blame() -> None:
    recovery = a_recovery_in(Phase.STOPPING)
    early = decided(recovery, a_failed_root(), FAILED_AT + SECOND)
    late = decided(recovery, a_failed_root(), FAILED_AT + FAULT_AFTER)

    assert early.waits
    assert early.recheck == FAULT_AFTER - SECOND
    assert late.record is not None
    assert "so its program ended it" in late.record.message


def test_a_fault_under_an_earlier_attempt_is_not_to_blame_for_the_next_one() -> None:
    recovery = a_blamed_recovery(Phase.CONFIRMING)
    decision = decided(recovery, a_failed_root(attempt=1), FAILED_AT + FAULT_AFTER)

    assert decision.record is not None
    assert decision.record.phase is Phase.GAVE_UP


def a_copied_root(recovery: Recovery) -> Root:
    return a_root(suspended=True, stopped=True, stopped_by=recovery.metadata.name, options=ALLOWED)


def test_it_is_made_again_once_the_old_one_is_gone() -> None:
    recovery = a_blamed_recovery(Phase.FENCING, rebuild=Rebuild(uid=a_root().ref.uid))
    root = a_copied_root(recovery)

    assert decided(recovery, root, START, rebuild=RebuildRead()).waits
    assert decided(recovery, root, START, rebuild=RebuildRead(is_gone=True)).actions == (MakeRoot(),)


def test_a_recovery_says_that_something_keeps_the_old_one() -> None:
    recovery = a_blamed_recovery(Phase.FENCING, rebuild=Rebuild(uid=a_root().ref.uid))
    decision = decided(recovery, a_copied_root(recovery), START + timedelta(minutes=1), rebuild=RebuildRead())

    assert decision.record is not None
    assert decision.record.message.endswith("is being deleted, and something that it made keeps it")


def test_a_copy_that_is_refused_after_the_deletion_holds_the_recovery_and_is_named() -> None:
    recovery = a_blamed_recovery(Phase.FENCING, rebuild=Rebuild(uid=a_root().ref.uid))
    read = RebuildRead(is_gone=True, refused="a policy denies it")
    decision = decided(recovery, a_copied_root(recovery), START, rebuild=read)

    assert decision.record is not None
    assert decision.record.phase is Phase.HELD
    assert decision.record.message == "the copy uid-train of Job train cannot be made: a policy denies it"


@pytest.mark.parametrize("marks", [{}, {"rebuilt_from": "uid-train"}, {"stopped_by": "train-1"}])
def test_only_the_root_that_this_recovery_made_takes_the_place(marks: dict[str, Any]) -> None:
    recovery = a_blamed_recovery(Phase.FENCING, rebuild=Rebuild(uid=a_root().ref.uid))
    another = a_root(ref=OTHER, stopped=True, **marks)
    decision = decided(recovery, a_copied_root(recovery), START, rebuild=RebuildRead(successor=another))

    assert decision.record is not None
    assert decision.record.phase is Phase.SUPERSEDED


def test_the_gang_is_the_new_root_from_then_on() -> None:
    recovery = a_blamed_recovery(Phase.FENCING, rebuild=Rebuild(uid=a_root().ref.uid))
    new = a_root(ref=OTHER, stopped=True, rebuilt_from="uid-train", stopped_by="train-1")
    decision = decided(recovery, a_copied_root(recovery), START, rebuild=RebuildRead(successor=new))

    assert decision.record is not None
    assert decision.record.phase is Phase.CHOOSING
    assert replace(recovery, status=decision.record).spec.gang.uid == "uid-other"


@pytest.mark.parametrize(
    ("phase", "ended_at", "attempt", "is_its_end"),
    [
        (Phase.GAVE_UP, FAILED_AT - SECOND, 1, True),
        (Phase.GAVE_UP, FAILED_AT - FAULT_AFTER - SECOND, 1, False),
        (Phase.SUPERSEDED, FAILED_AT - SECOND, 1, False),
        (Phase.SUPERSEDED, FAILED_AT, 1, True),
        (Phase.RECOVERED, FAILED_AT, 1, False),
        (Phase.GAVE_UP, FAILED_AT, 0, False),
    ],
)
def test_one_failure_gets_one_answer(phase: Phase, ended_at: datetime, attempt: int, is_its_end: bool) -> None:
    status = RecoveryStatus(phase=phase, ended_at=ended_at, attempt=attempt)
    assert is_answered(a_failed_root(attempt=1), status) is is_its_end
