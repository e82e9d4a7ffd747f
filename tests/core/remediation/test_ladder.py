"""Which rung comes next, and why."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.core.api import MachineHistory, Outage
from healthd.core.api.model import Finding, RepairAction
from healthd.core.api.remediations import NodePhase, Rung, RungOutcome
from healthd.core.remediation.ladder import Step, next_step
from tests.core.remediation.situations import DEVICE, NOW, a_finding, a_hand, a_situation, an_attempt
from tests.fakes import START


def step(*attempts: Any, **fields: Any) -> Step:
    """The next step of a drained node."""
    return next_step(a_situation(NodePhase.DRAINED, *attempts, **fields))


def a_history(helped: str) -> MachineHistory:
    outage = Outage(began=START, rule="xid-79", slot=DEVICE, helped=helped)
    return MachineHistory(machine="m1", node="gpu-17", since=START, outages=[outage])


@pytest.mark.parametrize(
    ("findings", "rung"),
    [
        ([], Rung.NONE),
        ([a_finding(action=RepairAction.RESET_GPU)], Rung.RESET_GPU),
        ([a_finding(action=RepairAction.REBOOT_NODE)], Rung.REBOOT),
        ([a_finding(action=RepairAction.INSPECT)], Rung.PERSON),
        ([a_finding(action=RepairAction.CONTACT_SUPPORT)], Rung.REPLACE),
        ([a_finding(action=RepairAction.RESET_GPU), a_finding("xid-48", RepairAction.REBOOT_NODE)], Rung.REBOOT),
    ],
)
def test_the_ladder_begins_where_the_worst_finding_says(findings: list[Finding], rung: Rung) -> None:
    assert step(findings=findings).rung is rung


def test_the_driver_comes_before_the_rule() -> None:
    advice = a_finding("nvml-wants-reset", RepairAction.RESET_GPU)

    assert step(findings=[a_finding(action=RepairAction.REBOOT_NODE), advice]).rung is Rung.RESET_GPU
    merged = a_finding(action=RepairAction.INSPECT, also=["nvml-wants-reboot"])
    assert step(findings=[merged]).why == f"the driver asks for it (nvml-wants-reboot on {DEVICE})"


def test_what_helped_this_machine_before_is_tried_first_unless_the_driver_says_otherwise() -> None:
    reset = a_finding(action=RepairAction.RESET_GPU)

    assert step(findings=[reset], history=a_history("reboot")).rung is Rung.REBOOT
    advised = a_finding(action=RepairAction.RESET_GPU, also=["xid-154"])
    assert step(findings=[advised], history=a_history("reboot")).rung is Rung.RESET_GPU
    assert step(findings=[reset], history=a_history("repair")).rung is Rung.RESET_GPU


def test_a_rung_without_a_hand_is_skipped_and_above_the_last_is_a_person() -> None:
    only = (a_hand(Rung.REPLACE),)

    skipped = step(hands=only)

    assert (skipped.rung, skipped.why) == (
        Rung.REPLACE,
        f"{DEVICE}/xid-79 asks for it; there is no hand for reboot, power_cycle",
    )
    assert step(hands=()).rung is Rung.PERSON


@pytest.mark.parametrize("outcome", [None, *RungOutcome])
def test_no_rung_is_tried_twice_for_one_fault_however_it_ended(outcome: RungOutcome | None) -> None:
    assert step(an_attempt(Rung.REBOOT, outcome=outcome)).rung is Rung.POWER_CYCLE


def test_what_was_tried_for_another_fault_or_before_a_persons_word_does_not_count() -> None:
    assert step(an_attempt(fault="another")).rung is Rung.REBOOT
    assert step(an_attempt(), status={"forgiven_at": NOW}).rung is Rung.REBOOT


def test_after_a_relapse_less_than_before_is_not_tried() -> None:
    reset = [a_finding(action=RepairAction.RESET_GPU)]

    assert step(findings=reset, status={"least": Rung.POWER_CYCLE}).rung is Rung.POWER_CYCLE
