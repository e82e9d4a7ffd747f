"""What a report of `healthd check` is worth to a person who wants a node back in service."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from healthd.checks.check import CheckOutcome
from healthd.checks.report import CheckReport, CheckVerdict, FinishedCheck, refusal, result_of
from healthd.core.node.expected_devices import ExpectedCount, ExpectedDevices
from tests.checks.contexts import NOW

EIGHT = ExpectedDevices(gpus=ExpectedCount(8, "its label says so"))


def done(status: CheckOutcome, why: str = "") -> FinishedCheck:
    return FinishedCheck(name="ecc", status=status, why=why, seconds=0, figures={})


def a_report(**changed: Any) -> CheckReport:
    usual: dict[str, Any] = {"node": "gpu-17", "at": NOW, "result": "pass", "checks": [done(CheckOutcome.PASS)]}
    return CheckReport(**{**usual, **changed})


@pytest.mark.parametrize("host", ["gpu-17", "GPU-17", "gpu-17.example.com"])
def test_a_report_that_passed_proves_its_own_node_well(host: str) -> None:
    assert refusal(a_report(node=host), "gpu-17", NOW + timedelta(minutes=20)) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"node": "gpu-18"}, "it is one of gpu-18"),
        ({"result": "fail", "checks": [done(CheckOutcome.FAIL, "a row waits")]}, "it failed: ecc: a row waits"),
        ({"checks": [done(CheckOutcome.FAIL, "a row waits")]}, "it failed: ecc: a row waits"),
        ({"result": "busy", "busy": ["python (process 7)"]}, "the machine is in use: python (process 7)"),
        ({"checks": [done(CheckOutcome.SKIP)]}, "nothing in it was checked"),
        ({"checks": []}, "nothing in it was checked"),
        ({"at": NOW - timedelta(hours=2)}, "must be of the last hour"),
        ({"at": NOW + timedelta(hours=2)}, "must be of the last hour"),
    ],
)
def test_any_other_report_proves_nothing(changed: dict[str, Any], why: str) -> None:
    assert why in refusal(a_report(**changed), "gpu-17", NOW)


def counted(*states: str) -> FinishedCheck:
    """An inventory of GPUs in these states."""
    figures: dict[str, dict[str, float | str]] = {
        f"0000:{n:02x}:00.0": {"state": each} for n, each in enumerate(states)
    }
    return FinishedCheck(name="inventory", status=CheckOutcome.PASS, why="", seconds=0, figures=figures)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, "no GPU in it was counted, and 8 are expected: its label says so"),
        ({"checks": [counted(*["ok"] * 7)]}, "7 GPUs in it answer, and 8 are expected: its label says so"),
        ({"checks": [done(CheckOutcome.PASS)], "expected_gpus": 7}, "no GPU in it was counted, and 7 are expected"),
        ({"result": "skip", "checks": [done(CheckOutcome.SKIP)]}, "nothing in it was checked"),
    ],
)
def test_a_report_that_misses_gpus_of_the_node_proves_nothing(changed: dict[str, Any], why: str) -> None:
    assert refusal(a_report(**changed), "gpu-17", NOW, EIGHT) == why


@pytest.mark.parametrize(
    "changed",
    [
        {"checks": [counted(*["ok"] * 8)]},
        {"checks": [counted(*["ok"] * 7, "driver vfio-pci")]},
        {"checks": [counted(*["ok"] * 7)], "expected_gpus": 7},
        {"expected_gpus": 0},
    ],
)
def test_a_report_in_which_all_gpus_answer_is_proof_and_the_number_of_an_operator_wins(changed: dict[str, Any]) -> None:
    assert refusal(a_report(**changed), "gpu-17", NOW, EIGHT) == ""


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ([CheckOutcome.SKIP, CheckOutcome.SKIP], CheckVerdict.UNCHECKED),
        ([], CheckVerdict.UNCHECKED),
        ([CheckOutcome.SKIP, CheckOutcome.PASS], CheckVerdict.PASS),
        ([CheckOutcome.FAIL, CheckOutcome.PASS], CheckVerdict.FAIL),
    ],
)
def test_what_was_skipped_is_never_a_pass(outcomes: list[CheckOutcome], verdict: CheckVerdict) -> None:
    assert result_of(map(done, outcomes)) is verdict
