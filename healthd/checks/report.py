"""The report of `healthd check`, and whether it is proof enough to put the node back into service. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from healthd.checks.check import CheckOutcome
from healthd.checks.inventory import InventoryCheck, accounted_for
from healthd.core.node.expected_devices import NOTHING_EXPECTED, ExpectedDevices
from healthd.core.remediation.check_summary import CheckSummary

LASTS = timedelta(hours=1)
"""How long a report is valid: what was good longer ago may be bad again."""
AHEAD = timedelta(minutes=5)
"""The most that two clocks may differ."""


class CheckVerdict(StrEnum):
    """What a run of `healthd check` says of the machine."""

    PASS = "pass"
    FAIL = "fail"
    UNCHECKED = "unchecked"
    """Every check was skipped. Nothing is known, and that is no pass: a node with a dead driver looks like this."""
    BUSY = "busy"
    """Somebody computes on it, so nothing was done."""


class FinishedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One check that was run."""

    name: str
    status: CheckOutcome
    why: str
    seconds: float
    figures: dict[str, dict[str, float | str]]


class CheckReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `--json` prints. *result* is a `CheckVerdict`, in older reports also `skip`. *busy* lists what computes."""

    node: str
    at: datetime
    result: str
    checks: list[FinishedCheck] = []
    busy: list[str] = []
    expected_gpus: int | None = None
    """How many GPUs an operator said must answer; null: not stated."""
    seconds: float = 0


def result_of(checks: Iterable[FinishedCheck]) -> CheckVerdict:
    """The worst result. What was not checked is not known to be good."""
    seen = {one.status for one in checks}
    if CheckOutcome.FAIL in seen:
        return CheckVerdict.FAIL
    return CheckVerdict.PASS if CheckOutcome.PASS in seen else CheckVerdict.UNCHECKED


def refusal(report: CheckReport, node: str, now: datetime, expected: ExpectedDevices = NOTHING_EXPECTED) -> str:
    """Why *report* is no proof that *node* is well now, or empty. *expected*: what the node should have."""
    if _short(report.node) != _short(node):
        return f"it is one of {report.node}"
    if report.result == "busy":
        return f"nothing was checked, because the machine is in use: {'; '.join(report.busy)}"
    if wrong := [f"{one.name}: {one.why}" for one in report.checks if one.status is CheckOutcome.FAIL]:
        return f"it failed: {'; '.join(wrong)}"
    if report.result != CheckOutcome.PASS or not any(one.status is CheckOutcome.PASS for one in report.checks):
        return "nothing in it was checked"
    if missing := _missing_gpus(report, expected):
        return missing
    if not -AHEAD <= now - report.at <= LASTS:
        return f"it is of {report.at:%Y-%m-%d %H:%M:%S} UTC, and must be of the last hour"
    return ""


def _missing_gpus(report: CheckReport, expected: ExpectedDevices) -> str:
    """
    The GPUs that *report* does not show. A check without its inventory, or with a driver that shows no GPU beside a
    network port that is up, says nothing of GPUs. The number that an operator stated at the check wins.
    """
    wanted = report.expected_gpus if report.expected_gpus is not None else expected.gpus and expected.gpus.count
    if not wanted:
        return ""
    why = f": {expected.gpus.why}" if report.expected_gpus is None and expected.gpus else ""
    found = _counted_gpus(report)
    if found is None:
        return f"no GPU in it was counted, and {wanted} are expected{why}"
    return f"{found} GPUs in it answer, and {wanted} are expected{why}" if found < wanted else ""


def _counted_gpus(report: CheckReport) -> int | None:
    """How many GPUs answer in *report*; None: they were not counted."""
    inventory = next((one for one in report.checks if one.name == InventoryCheck.name), None)
    if inventory is None or inventory.status is CheckOutcome.SKIP:
        return None
    return sum(accounted_for(str(figures.get("state", ""))) for figures in inventory.figures.values())


def summary_of(report: CheckReport, boot_id: str) -> CheckSummary:
    """*report* without its figures, for a termination message. *boot_id*: the boot in which it was made."""
    return CheckSummary(
        result=report.result,
        boot_id=boot_id,
        expected_gpus=-1 if report.expected_gpus is None else report.expected_gpus,
        gpus=_counted_gpus(report) or 0,
        passed=[one.name for one in report.checks if one.status is CheckOutcome.PASS],
        failed={one.name: one.why for one in report.checks if one.status is CheckOutcome.FAIL},
        skipped={one.name: one.why for one in report.checks if one.status is CheckOutcome.SKIP},
        busy=report.busy,
    )


def _short(name: str) -> str:
    """Nodes of a cluster may be named by the full name of their host, or by its first label."""
    return name.partition(".")[0].lower()
