"""What a report of `healthd check` is worth to whoever wants a node back in service."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from healthd.checks.check import CheckOutcome
from healthd.checks.report import CheckReport, FinishedCheck, refusal
from tests.checks.contexts import NOW


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
