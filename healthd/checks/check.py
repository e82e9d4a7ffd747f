"""
What a check is: a name, its needs, and a run that returns pass, fail or skip with a reason and figures.

A check that cannot run because something is not there (no GPU, no tool) is skipped. A check that should have got an
answer and got none has failed: the caller wants to put a node into service, and no answer is no good news.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from healthd.checks.devices import GpuInfo, Places, PortInfo
from healthd.core.node.expected_devices import NOTHING_EXPECTED, ExpectedDevices

Figures = dict[str, dict[str, float | str]]
"""By device, then by name. The unit is part of the name."""


class CheckOutcome(StrEnum):
    """How a check ended."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """*why*: what is wrong, or why it was skipped. For a check that passed: what was seen."""

    status: CheckOutcome
    why: str = ""
    figures: Figures = {}


class InUse(Exception):
    """A device that a check was about to load is in use. The message names the user or the place."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """
    What a node should have. An operator states the first three. None: not stated; then *known* counts, and the devices
    are compared with each other.
    """

    gpus: int | None = None
    ports: int | None = None
    rate_gbps: float | None = None
    known: ExpectedDevices = NOTHING_EXPECTED
    """What the cluster knows of the node."""


@dataclass(frozen=True, kw_only=True)
class CheckContext:
    """What checks know of the machine. *ends* is the monotonic time at which all must be done."""

    gpus: list[GpuInfo]
    ports: list[PortInfo]
    places: Places
    unread: Mapping[str, str] = field(default_factory=dict)
    """By source: why it could not be read."""
    expected: Expected = Expected()
    sys: Path = Path("/sys")
    environ: Mapping[str, str] = field(default_factory=dict)
    """For the programs that checks run."""
    ends: float = float("inf")
    may_disturb: bool = False
    """An operator insists on the checks, although other programs may use the devices."""

    @property
    def seconds_left(self) -> float:
        """Until everything must be done. Never below zero."""
        return max(0.0, self.ends - time.monotonic())

    @property
    def usable(self) -> list[GpuInfo]:
        """GPUs that the driver reports as healthy."""
        return [gpu for gpu in self.gpus if gpu.state == "ok"]


class Check(Protocol):
    """One check. *needs*: what it cannot run without, for a person. *is_deep*: it puts load on the devices."""

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> str: ...

    @property
    def is_deep(self) -> bool: ...

    def run(self, context: CheckContext) -> CheckResult:
        """Run the check. Raises InUse."""
        ...


def passed(why: str, figures: Figures | None = None) -> CheckResult:
    """All is well."""
    return CheckResult(status=CheckOutcome.PASS, why=why, figures=figures or {})


def failed(why: str, figures: Figures | None = None) -> CheckResult:
    """Something is wrong, or did not answer."""
    return CheckResult(status=CheckOutcome.FAIL, why=why, figures=figures or {})


def skipped(why: str, figures: Figures | None = None) -> CheckResult:
    """It cannot be done here."""
    return CheckResult(status=CheckOutcome.SKIP, why=why, figures=figures or {})


def judged(wrong: list[str], well: str, figures: Figures | None = None) -> CheckResult:
    """Failed with everything that is *wrong*. Otherwise passed, with *well* as what was seen."""
    return failed("; ".join(wrong), figures) if wrong else passed(well, figures)
