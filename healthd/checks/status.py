"""The state of a node for `healthd status`: sampled by this process, or published by the agent of the node. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from healthd.checks import devices
from healthd.checks.judging import SeenNow
from healthd.core.api import NodeHealth
from healthd.core.api.model import Finding, Severity, Verdict
from healthd.core.node.reporting import is_silent

_BADNESS = [Severity.FATAL, Severity.ERROR, Severity.WARNING, Severity.INFO]


class Unread(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A source that could not be read, and why."""

    source: str
    why: str


class NodeReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `--json` prints."""

    node: str
    at: datetime
    verdict: Verdict
    message: str
    gpus: list[devices.GpuInfo] = []
    ports: list[devices.PortInfo] = []
    machine: list[str] = []
    findings: list[Finding] = []
    """Active findings, the worst first."""
    seen_now: list[SeenNow] = []
    unread: list[Unread] = []
    seconds: float = 0


def published(name: str, health: NodeHealth, now: datetime) -> NodeReport:
    """The status that an agent published for its node, some time ago."""
    status = health.status
    verdict, message, unread = status.verdict, status.message, []
    if is_silent(status, now):
        unread = [Unread(source="agent", why=f"no report was received {_age_text(status.seen_at, now)}")]
        if verdict is Verdict.HEALTHY:
            verdict, message = Verdict.UNKNOWN, unread[0].why
    gpus = [
        devices.GpuInfo(pci=one.pci, index=one.index, uuid=one.uuid, name=one.name, state="listed")
        for one in status.inventory
    ]
    standing = worst_first([finding for finding in status.findings if finding.cleared_at is None])
    return NodeReport(
        node=name,
        at=status.seen_at or now,
        verdict=verdict,
        message=message,
        gpus=gpus,
        ports=devices.ports(status.nics, {}),
        findings=standing,
        unread=unread,
    )


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """First findings that take the node out, then by severity, then by age."""
    return sorted(findings, key=lambda one: (not one.quarantines, _BADNESS.index(one.severity), one.raised_at, one.id))


def spoken(age: timedelta) -> str:
    """A time span in the largest unit of which it has at least two."""
    seconds = max(0, int(age.total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _age_text(at: datetime | None, now: datetime) -> str:
    return "ever" if at is None else f"for {spoken(now - at)}"
