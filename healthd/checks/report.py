"""The report of `healthd check`, and whether it is proof enough to put the node back into service. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from healthd.checks.check import CheckOutcome

LASTS = timedelta(hours=1)
"""How long a report is valid: what was good longer ago may be bad again."""
AHEAD = timedelta(minutes=5)
"""The most that two clocks may differ."""


class FinishedCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One check that was run."""

    name: str
    status: CheckOutcome
    why: str
    seconds: float
    figures: dict[str, dict[str, float | str]]


class CheckReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `--json` prints. *result* is that of `result_of`, or `busy`, and then *busy* lists what computes."""

    node: str
    at: datetime
    result: str
    checks: list[FinishedCheck] = []
    busy: list[str] = []
    seconds: float = 0


def result_of(checks: Iterable[FinishedCheck]) -> CheckOutcome:
    """The worst result. `skip` where every check was skipped: what was not checked is not known to be good."""
    seen = {one.status for one in checks}
    return next((outcome for outcome in (CheckOutcome.FAIL, CheckOutcome.PASS) if outcome in seen), CheckOutcome.SKIP)


def refusal(report: CheckReport, node: str, now: datetime) -> str:
    """Why *report* is no proof that *node* is well now. Empty where it is one."""
    if _short(report.node) != _short(node):
        return f"it is one of {report.node}"
    if report.result == "busy":
        return f"nothing was checked, because the machine is in use: {'; '.join(report.busy)}"
    if wrong := [f"{one.name}: {one.why}" for one in report.checks if one.status is CheckOutcome.FAIL]:
        return f"it failed: {'; '.join(wrong)}"
    if report.result != CheckOutcome.PASS or not any(one.status is CheckOutcome.PASS for one in report.checks):
        return "nothing in it was checked"
    if not -AHEAD <= now - report.at <= LASTS:
        return f"it is of {report.at:%Y-%m-%d %H:%M:%S} UTC, and must be of the last hour"
    return ""


def _short(name: str) -> str:
    """Nodes of a cluster may be named by the full name of their host, or by its first label."""
    return name.partition(".")[0].lower()
