"""The decisions about a node, one at a time; whole lives are in test_lives.py."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import Node, NodeHealth, NodeHealthStatus, NodeStatus, NodeSystemInfo, ObjectMeta
from healthd.core.api.model import Finding, RepairAction
from healthd.core.api.names import ANNOTATION_REPAIRED, LABEL_PROBATION
from healthd.core.api.remediations import NodePhase, NodeRemediationStatus, Rung, RungOutcome
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.remediation.actions import (
    DeleteCheck,
    EndProbation,
    FreeSlots,
    GiveBack,
    Request,
    StartCheck,
    TakeSlots,
    Withdraw,
)
from healthd.core.remediation.decide import Decision, decide
from healthd.core.remediation.person import persons_word, retry_at
from healthd.core.remediation.situation import CheckLeftover, CheckSeen, CheckState, PersonsWord, RequestSeen
from tests.builders import a_node
from tests.core.remediation.situations import (
    NOW,
    SLOT,
    a_finding,
    a_hand,
    a_quarantined_node,
    a_situation,
    an_attempt,
)
from tests.fakes import START

MINUTE = timedelta(minutes=1)


def recorded(decision: Decision) -> NodeRemediationStatus:
    """The status that a decision records."""
    assert decision.record is not None, decision.reason
    return decision.record


def decided(phase: NodePhase, *attempts: Any, **fields: Any) -> Decision:
    """The next decision."""
    return decide(a_situation(phase, *attempts, **fields))


def test_nothing_begins_by_default() -> None:
    assert decided(NodePhase.IN_SERVICE, policy=RemediationPolicy()).waits
    assert recorded(decided(NodePhase.IN_SERVICE)).phase is NodePhase.QUARANTINED


def test_a_node_that_a_person_brought_back_loses_the_mark_of_its_probation() -> None:
    marked = a_node("gpu-17", labels={LABEL_PROBATION: "true"})

    assert isinstance(decided(NodePhase.IN_SERVICE, node=marked).action, EndProbation)
    assert decided(NodePhase.IN_SERVICE, node=a_node("gpu-17")).waits


def test_the_requests_of_a_record_that_was_deleted_are_not_taken_for_new_ones() -> None:
    first = recorded(decided(NodePhase.DRAINED)).attempts[-1]
    again = recorded(decided(NodePhase.DRAINED, now=NOW + MINUTE)).attempts[-1]

    assert again.number > first.number
    assert recorded(decided(NodePhase.DRAINED, first)).attempts[-1].number == first.number + 1


def test_it_waits_while_something_runs_on_the_node() -> None:
    waiting = recorded(decided(NodePhase.QUARANTINED, occupants=("ml/train-0",)))

    assert (waiting.phase, waiting.message) == (
        NodePhase.QUARANTINED,
        "waits for the end of ml/train-0: healthd kills nothing that runs",
    )
    assert recorded(decided(NodePhase.QUARANTINED)).phase is NodePhase.DRAINED


def test_a_slot_comes_first_then_the_record_then_the_request() -> None:
    assert isinstance(decided(NodePhase.DRAINED, slots_held=frozenset()).action, TakeSlots)
    assert isinstance(decided(NodePhase.DRAINED, slot_sets=()).action, TakeSlots)  # no limit is no permission
    status = recorded(decided(NodePhase.DRAINED))
    assert (status.phase, status.attempts[-1].rung) == (NodePhase.REMEDIATING, Rung.REBOOT)
    assert isinstance(decided(NodePhase.REMEDIATING, *status.attempts).action, Request)


def test_a_request_that_is_seen_is_not_written_again() -> None:
    seen = (RequestSeen(attempt=1),)

    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(), requests=seen))

    assert status.attempts[-1].written_at == NOW
    assert decided(NodePhase.REMEDIATING, *status.attempts, requests=seen).action is None


def test_a_rung_is_chosen_only_after_the_agent_has_reported_the_finding() -> None:
    """It takes its node out at once, and reports seconds later. Without the finding, a check alone would follow."""

    def after(seconds: int, *findings: Finding, reported_at: datetime) -> Decision:
        status = NodeHealthStatus(findings=list(findings), seen_at=reported_at)
        health = NodeHealth(metadata=ObjectMeta(name="gpu-17"), status=status)
        return decided(NodePhase.DRAINED, health=health, status={"phase_since": NOW - timedelta(seconds=seconds)})

    before, later = START - timedelta(seconds=5), START + timedelta(seconds=5)
    waiting = recorded(after(1, reported_at=before))
    assert (waiting.phase, waiting.attempts) == (NodePhase.DRAINED, [])
    assert waiting.message.startswith("waits for the report of its agent")
    assert recorded(after(1, a_finding(), reported_at=before)).attempts[-1].rung is Rung.REBOOT
    of_last_time = a_finding(cleared_at=START - timedelta(days=1), cleared_by="repair")
    assert recorded(after(1, of_last_time, reported_at=before)).attempts == []
    assert recorded(after(1, reported_at=later)).attempts[-1].rung is Rung.NONE
    assert recorded(after(120, reported_at=before)).attempts[-1].rung is Rung.NONE, "it may be dead"


def test_another_boot_proves_a_reboot_and_leads_to_the_check() -> None:
    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(), node=a_quarantined_node("boot-2")))

    assert (status.phase, status.message) == (NodePhase.CHECKING, "it booted since (boot-2)")


def test_a_hand_that_says_done_without_a_boot_is_not_believed_and_the_next_rung_follows() -> None:
    late = an_attempt(at=NOW - 40 * MINUTE, written_at=NOW - 35 * MINUTE)
    claims = (RequestSeen(attempt=1, claims_done=True),)

    status = recorded(decided(NodePhase.REMEDIATING, late, requests=claims))

    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.DRAINED, RungOutcome.TIMED_OUT)
    assert "says that it is done, and nothing shows it" in status.message
    assert recorded(decided(NodePhase.DRAINED, *status.attempts)).attempts[-1].rung is Rung.POWER_CYCLE


def test_the_word_of_a_hand_counts_for_a_reset_and_the_check_shows_whether_it_is_true() -> None:
    hands = (a_hand(Rung.RESET_GPU, claim_is_proof=True),)
    claims = (RequestSeen(attempt=1, claims_done=True),)
    reset = an_attempt(Rung.RESET_GPU, written_at=NOW)

    assert recorded(decided(NodePhase.REMEDIATING, reset, hands=hands, requests=claims)).phase is NodePhase.CHECKING
    lied = CheckSeen(attempt=1, check=1, state=CheckState.FAILED, began=NOW, why="ecc: a row waits")
    checked = an_attempt(Rung.RESET_GPU, check=1, check_since=NOW)
    status = recorded(decided(NodePhase.CHECKING, checked, check=lied))
    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.DRAINED, RungOutcome.NO_HELP)


def test_a_hand_that_failed_is_left_at_once() -> None:
    failed = (RequestSeen(attempt=1, failed="no BMC"),)

    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(), requests=failed))

    assert (status.phase, status.message) == (NodePhase.DRAINED, "the-reboot failed: no BMC")


@pytest.mark.parametrize(
    ("state", "phase"),
    [(CheckState.FAILED, NodePhase.DRAINED), (CheckState.UNCHECKED, NodePhase.AWAITING_PERSON)],
)
def test_only_a_check_that_passed_brings_a_node_back(state: CheckState, phase: NodePhase) -> None:
    checked = an_attempt(check=1, check_since=NOW)

    status = recorded(decided(NodePhase.CHECKING, checked, check=CheckSeen(attempt=1, check=1, state=state, began=NOW)))

    assert (status.phase, status.checked_at) == (phase, None)


def test_a_check_that_passed_gives_the_node_back_from_its_own_time_on() -> None:
    began = NOW - 3 * MINUTE
    checked = an_attempt(check=1, check_since=began)
    passed = CheckSeen(attempt=1, check=1, state=CheckState.PASSED, began=began, boot_id="boot-1")

    status = recorded(decided(NodePhase.CHECKING, checked, check=passed))

    assert (status.phase, status.checked_at) == (NodePhase.PROBATION, began)
    again = {"status": {"checked_at": began}}
    assert decided(NodePhase.PROBATION, *status.attempts, **again).action == GiveBack(began)
    declared = a_quarantined_node(annotations={ANNOTATION_REPAIRED: began.isoformat()})
    assert decided(NodePhase.PROBATION, *status.attempts, node=declared, **again).action is None


def test_a_node_that_boots_after_its_check_is_checked_once_more_before_it_is_given_back() -> None:
    helped = an_attempt(check=1, check_since=NOW, outcome=RungOutcome.HELPED, ended_at=NOW)
    checked = {"checked_at": NOW, "checked_boot": "boot-0"}

    status = recorded(decided(NodePhase.PROBATION, helped, status=checked))

    assert (status.phase, status.message) == (NodePhase.CHECKING, "it booted after the check")
    assert (status.attempts[-1].check, status.attempts[-1].outcome) == (2, None)


def test_a_node_that_its_agent_does_not_give_back_after_the_check_waits_for_a_person() -> None:
    helped = an_attempt(check=1, check_since=NOW, outcome=RungOutcome.HELPED, ended_at=NOW)
    declared = a_quarantined_node(annotations={ANNOTATION_REPAIRED: NOW.isoformat()})

    def waiting_for(minutes: int) -> Decision:
        status = {"checked_at": NOW, "phase_since": NOW - minutes * MINUTE}
        return decided(NodePhase.PROBATION, helped, node=declared, status=status)

    assert recorded(waiting_for(1)).phase is NodePhase.PROBATION
    late = recorded(waiting_for(120))
    assert late.phase is NodePhase.AWAITING_PERSON
    assert "its agent has not ended the quarantine" in late.message


@pytest.mark.parametrize("changed", [{"boot_id": "boot-0"}, {"attempt": 7}, {"check": 7}])
def test_the_answer_of_another_check_or_boot_counts_for_nothing(changed: dict[str, Any]) -> None:
    passed: dict[str, Any] = {"attempt": 1, "check": 1, "state": CheckState.PASSED, "began": NOW, "boot_id": "boot-1"}

    decision = decided(
        NodePhase.CHECKING, an_attempt(check=1, check_since=NOW), check=CheckSeen(**{**passed, **changed})
    )

    assert decision.record is None or decision.record.phase is NodePhase.CHECKING


def test_a_fault_that_comes_during_the_check_is_not_forgotten() -> None:
    passed = CheckSeen(attempt=1, check=1, state=CheckState.PASSED, began=NOW - 3 * MINUTE, boot_id="boot-1")
    again = [a_finding(last_at=NOW - MINUTE)]

    status = recorded(decided(NodePhase.CHECKING, an_attempt(check=1, check_since=NOW), check=passed, findings=again))

    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.DRAINED, RungOutcome.NO_HELP)


def test_what_a_node_or_another_controller_says_is_recorded_short_and_printable() -> None:
    failed = (RequestSeen(attempt=1, failed="\x1b[2J" + "x" * 100_000),)

    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(), requests=failed))
    chosen = recorded(decided(NodePhase.DRAINED, *status.attempts))

    texts = [status.message, status.attempts[-1].message, chosen.message, chosen.attempts[-1].why]
    assert all(text.isprintable() and len(text) <= 1024 for text in texts)


def test_a_check_is_begun_on_record_first_and_ends_in_time() -> None:
    status = recorded(decided(NodePhase.CHECKING, an_attempt()))

    assert (status.attempts[-1].check, status.attempts[-1].check_since) == (1, NOW)
    assert decided(NodePhase.CHECKING, *status.attempts).action == StartCheck(1, 1)
    mute = an_attempt(check=1, check_since=NOW - 21 * MINUTE)
    runs = CheckSeen(attempt=1, check=1, state=CheckState.RUNNING, began=NOW - 21 * MINUTE)
    assert recorded(decided(NodePhase.CHECKING, mute, check=runs)).phase is NodePhase.DRAINED


def test_a_check_that_could_not_be_started_is_begun_again_and_then_left_to_a_person() -> None:
    late: dict[str, Any] = {"check_since": NOW - 21 * MINUTE}

    again = recorded(decided(NodePhase.CHECKING, an_attempt(check=1, **late)))
    assert (again.phase, again.attempts[-1].check) == (NodePhase.CHECKING, 2)
    said = {"message": "the controller may not create Pod"}
    status = recorded(decided(NodePhase.CHECKING, an_attempt(check=3, **late), status=said))
    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.AWAITING_PERSON, RungOutcome.WITHDRAWN)
    assert "may not create Pod" in status.message


def test_a_node_that_does_not_come_up_with_its_gpus_did_not_pass() -> None:
    begun = an_attempt(check=1, check_since=NOW - MINUTE)
    late = an_attempt(check=1, check_since=NOW - 21 * MINUTE)
    waits = {"check_waits_for": "8 nvidia.com/gpu; the Node offers 7"}

    assert "waits for 8 nvidia.com/gpu" in recorded(decided(NodePhase.CHECKING, begun, **waits)).message
    status = recorded(decided(NodePhase.CHECKING, late, **waits))
    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.DRAINED, RungOutcome.NO_HELP)
    assert "the Node offers 7" in status.message


def test_a_check_has_its_whole_time_from_the_creation_of_its_pod_on() -> None:
    late = an_attempt(check=1, check_since=NOW - 30 * MINUTE)
    young = CheckSeen(attempt=1, check=1, state=CheckState.RUNNING, began=NOW - 15 * MINUTE)

    assert recorded(decided(NodePhase.CHECKING, late, check=young)).phase is NodePhase.CHECKING


@pytest.mark.parametrize("boot", ["", "boot-0"])
def test_a_check_of_another_boot_or_of_none_is_done_again(boot: str) -> None:
    passed = CheckSeen(attempt=1, check=1, state=CheckState.PASSED, began=NOW, boot_id=boot)

    status = recorded(decided(NodePhase.CHECKING, an_attempt(check=1, check_since=NOW), check=passed))

    assert (status.phase, status.attempts[-1].check) == (NodePhase.CHECKING, 2)


def test_a_node_whose_agent_still_reports_the_boot_before_is_not_given_back_yet() -> None:
    passed = CheckSeen(attempt=1, check=1, state=CheckState.PASSED, began=NOW, boot_id="boot-2")
    reports = NodeHealth(metadata=ObjectMeta(name="gpu-17"), status=NodeHealthStatus(boot_id="boot-1"))
    checked = an_attempt(check=1, check_since=NOW)

    status = recorded(
        decided(NodePhase.CHECKING, checked, check=passed, health=reports, node=a_quarantined_node("boot-2"))
    )

    assert (status.phase, status.checked_at) == (NodePhase.CHECKING, None)


def test_the_pod_of_a_check_that_is_over_is_deleted_once_and_the_next_check_waits_for_its_end() -> None:
    leftover = CheckLeftover(name="check-gpu-17-1-1", uid="u1", has_ended=False, is_going=False)
    begun = an_attempt(check=2, check_since=NOW)

    assert decided(NodePhase.PROBATION, check_leftovers=(leftover,)).action == DeleteCheck("check-gpu-17-1-1", "u1")
    going = (replace(leftover, is_going=True),)
    waits = decided(NodePhase.CHECKING, begun, check_leftovers=going)
    assert "waits for the end of check-gpu-17-1-1" in waits.reason
    ended = (replace(leftover, is_going=True, has_ended=True),)
    assert decided(NodePhase.CHECKING, begun, check_leftovers=ended).action == StartCheck(1, 2)


def test_a_node_that_stayed_well_is_in_service_again_without_its_mark() -> None:
    over = {"returned_at": START, "probation_until": NOW}
    marked = a_node("gpu-17", labels={LABEL_PROBATION: "true"})

    assert isinstance(decided(NodePhase.PROBATION, node=marked, status=over).action, EndProbation)
    assert recorded(decided(NodePhase.PROBATION, node=a_node("gpu-17"), status=over)).phase is NodePhase.IN_SERVICE


def test_a_relapse_begins_above_what_had_helped_and_doubles_the_probation() -> None:
    helped = an_attempt(Rung.RESET_GPU, outcome=RungOutcome.HELPED, fault="an earlier one")
    before = {"fault": "an earlier one", "returned_at": START}

    status = recorded(decided(NodePhase.PROBATION, helped, status=before))

    assert (status.phase, status.relapses, status.least) == (NodePhase.QUARANTINED, 1, Rung.REBOOT)
    back = recorded(decided(NodePhase.PROBATION, node=a_node("gpu-17"), status={"relapses": 1, "checked_at": NOW}))
    assert back.probation_until == NOW + timedelta(hours=48)


def test_the_last_attempt_of_a_week_leads_to_a_person() -> None:
    earlier = [an_attempt(Rung.RESET_GPU, number, fault="f") for number in range(1, 6)]
    tried = [*earlier[:-1], an_attempt(Rung.RESET_GPU, 5, fault="f", outcome=RungOutcome.HELPED)]

    status = recorded(decided(NodePhase.DRAINED, *tried))

    assert (status.phase, status.message) == (
        NodePhase.AWAITING_PERSON,
        "5 rungs in seven days, which is the most for one node",
    )


@pytest.mark.parametrize(
    ("fields", "phase"),
    [
        ({"word": PersonsWord.OFF}, NodePhase.AWAITING_PERSON),
        ({"word": PersonsWord.RETIRE}, NodePhase.RETIRED),
        ({"node": a_quarantined_node(cordoned=False)}, NodePhase.AWAITING_PERSON),
        ({"node": a_node("gpu-17")}, NodePhase.IN_SERVICE),
        ({"other_remediator": "NVSentinel"}, NodePhase.QUARANTINED),
    ],
)
def test_a_person_or_another_remediator_ends_what_is_under_way_and_the_request_is_taken_back(
    fields: dict[str, Any], phase: NodePhase
) -> None:
    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(written_at=NOW), **fields))

    assert (status.phase, status.attempts[-1].outcome) == (phase, RungOutcome.WITHDRAWN)
    left = decided(phase, *status.attempts, requests=(RequestSeen(attempt=1),), **fields)
    assert isinstance(left.action, Withdraw)


def test_another_remediator_that_comes_between_the_check_and_the_return_takes_the_node() -> None:
    """It may reboot it, or find more: the check says nothing of the node after that."""
    helped = an_attempt(outcome=RungOutcome.HELPED, ended_at=NOW, message="the check passed")
    other: dict[str, Any] = {"other_remediator": "kured", "status": {"checked_at": NOW}}
    declared = a_quarantined_node(annotations={ANNOTATION_REPAIRED: NOW.isoformat()})

    assert recorded(decided(NodePhase.PROBATION, helped, **other)).phase is NodePhase.QUARANTINED
    assert recorded(decided(NodePhase.PROBATION, helped, node=declared, **other)).phase is NodePhase.PROBATION
    after = recorded(decided(NodePhase.DRAINED, helped, findings=[]))
    assert after.attempts[-1].rung is Rung.NONE, "a check alone: nothing stands any more"


def test_a_slot_that_is_not_needed_is_given_back() -> None:
    assert isinstance(decided(NodePhase.AWAITING_PERSON, slots_held=frozenset({SLOT})).action, FreeSlots)


def test_a_person_who_asks_for_a_further_try_begins_the_ladder_anew() -> None:
    tried = an_attempt(outcome=RungOutcome.TIMED_OUT)

    status = recorded(decided(NodePhase.AWAITING_PERSON, tried, retry_at=NOW - MINUTE))

    assert (status.phase, status.forgiven_at) == (NodePhase.QUARANTINED, tried.at)
    assert decided(NodePhase.AWAITING_PERSON, tried, retry_at=NOW - 10 * MINUTE).waits


@pytest.mark.parametrize("later", [timedelta(0), timedelta(hours=-3)], ids=["at once", "clock set back"])
def test_an_attempt_after_a_persons_retry_counts_whatever_the_clock_says(later: timedelta) -> None:
    """The rung after the retry was forgiven, too, where the clock was no later: it was tried again and again."""
    tried = an_attempt(outcome=RungOutcome.TIMED_OUT)
    forgiven = recorded(decided(NodePhase.AWAITING_PERSON, tried, retry_at=NOW - MINUTE)).forgiven_at
    again = recorded(decided(NodePhase.DRAINED, tried, status={"forgiven_at": forgiven}, now=NOW + later)).attempts[-1]
    failed = msgspec.structs.replace(again, outcome=RungOutcome.NO_HELP)
    decision = decided(NodePhase.DRAINED, tried, failed, status={"forgiven_at": forgiven}, now=NOW + later)

    assert again.rung is tried.rung
    assert recorded(decision).attempts[-1].rung is Rung.POWER_CYCLE


@pytest.mark.parametrize("written_at", [None, NOW], ids=["not asked yet", "asked"])
def test_a_person_who_brings_a_node_back_is_obeyed_while_it_is_to_be_replaced(written_at: datetime | None) -> None:
    attempt = an_attempt(Rung.REPLACE, written_at=written_at)
    back = a_node("gpu-17", uid=attempt.node_uid)

    status = recorded(decided(NodePhase.REMEDIATING, attempt, node=back))

    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.IN_SERVICE, RungOutcome.WITHDRAWN)


def test_no_replacement_is_asked_for_where_a_new_node_is_in_service() -> None:
    made_anew = replace_machine(a_node("gpu-17", uid="made-anew"), "m1")

    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(Rung.REPLACE), node=made_anew))

    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.IN_SERVICE, RungOutcome.WITHDRAWN)


def replace_machine(node: Node, machine: str) -> Node:
    """*node*, as the machine with that UUID."""
    info = NodeSystemInfo(boot_id="boot-2", system_uuid=machine)
    return msgspec.structs.replace(node, status=NodeStatus(node_info=info))


def test_another_machine_proves_a_replacement_and_begins_without_its_past() -> None:
    node = a_node("gpu-17", uid="new")
    replaced = a_quarantined_node(machine="m2")

    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(Rung.REPLACE), node=replaced))

    assert (status.phase, status.machine, status.forgiven_at) == (NodePhase.IN_SERVICE, "m2", status.attempts[-1].at)
    assert recorded(decided(NodePhase.REMEDIATING, an_attempt(Rung.REPLACE), node=node)).phase is NodePhase.IN_SERVICE


def test_the_boot_of_another_machine_proves_no_reboot() -> None:
    status = recorded(decided(NodePhase.REMEDIATING, an_attempt(), node=a_quarantined_node("boot-9", "m2")))

    assert status.phase is not NodePhase.CHECKING
    assert status.attempts[-1].outcome is RungOutcome.WITHDRAWN


def test_a_node_that_is_gone_is_waited_for() -> None:
    said = {"message": "the cluster has no such Node"}

    assert decided(NodePhase.DRAINED, node=None, status=said, slots_held=frozenset()).waits
    assert recorded(decided(NodePhase.REMEDIATING, an_attempt(), node=None)).phase is NodePhase.REMEDIATING


def test_a_node_that_is_gone_holds_no_slot_but_while_it_is_replaced() -> None:
    assert isinstance(decided(NodePhase.DRAINED, node=None).action, FreeSlots)
    assert isinstance(decided(NodePhase.CHECKING, an_attempt(), node=None).action, FreeSlots)
    assert decided(NodePhase.REMEDIATING, an_attempt(Rung.REPLACE), node=None).action is None


@pytest.mark.parametrize("rung", [Rung.REBOOT, Rung.POWER_CYCLE])
def test_a_rung_that_was_never_asked_for_leads_to_a_person(rung: Rung) -> None:
    late = an_attempt(rung, at=NOW - timedelta(minutes=31))
    status = recorded(decided(NodePhase.REMEDIATING, late, status={"message": "the controller may not"}))

    assert status.phase is NodePhase.AWAITING_PERSON
    assert status.attempts[-1].outcome is RungOutcome.WITHDRAWN
    assert "the controller may not" in status.message


def test_without_a_check_of_its_own_healthd_waits_for_a_person() -> None:
    proven = an_attempt(proven_at=NOW - timedelta(minutes=1), proof="it booted since")
    waiting = recorded(decided(NodePhase.CHECKING, proven, can_check=False))
    again = [a_finding(last_at=NOW)]

    assert (waiting.phase, waiting.checked_at) == (NodePhase.CHECKING, None)
    assert "healthd repair gpu-17" in waiting.message
    status = recorded(decided(NodePhase.CHECKING, proven, can_check=False, findings=again))
    assert (status.phase, status.attempts[-1].outcome) == (NodePhase.DRAINED, RungOutcome.NO_HELP)


@pytest.mark.parametrize(
    ("said", "word"), [("off", "off"), (" Retire ", "retire"), ("", ""), ("please stop", "off"), ("OFF", "off")]
)
def test_a_word_that_healthd_does_not_know_is_hands_off(said: str, word: str) -> None:
    assert persons_word(a_node(annotations={"healthd.dev/remediation": said})) == word


@pytest.mark.parametrize("said", ["soon", "2026-01-01T00:00:00", "2999-01-01T00:00:00Z", ""])
def test_what_is_no_time_asks_for_nothing(said: str) -> None:
    assert retry_at(a_node(annotations={"healthd.dev/remediation-retry": said}), NOW) is None


@pytest.mark.parametrize("action", list(RepairAction))
def test_every_action_of_a_rule_leads_somewhere(action: RepairAction) -> None:
    assert decided(NodePhase.DRAINED, findings=[a_finding(action=action)]).record is not None
