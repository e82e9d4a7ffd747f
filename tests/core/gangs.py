"""Builders of what the decisions look at: roots and the recoveries of a gang."""

from __future__ import annotations

from typing import Any

from healthd.core.api import Cause, GangRef, Recovery, RecoveryStatus, TimelineEntry
from healthd.core.api.model import CauseKind, Phase
from healthd.core.recovery.gang import Elastic, GangOptions, Root
from tests.builders import a_cause, a_recovery
from tests.fakes import START

STOPPED: dict[str, Any] = {"suspended": True, "stopped": True, "stopped_by": "train-1"}
"""A root that the recovery `train-1` has stopped."""
SOFTWARE = a_cause(CauseKind.SOFTWARE, message="rank-0 exited with code 1")


def a_root(name: str = "train", *, attempt: int = 0, world: int = 2, **fields: Any) -> Root:
    """A running gang of *world* members that healthd may restart."""
    known: dict[str, Any] = {
        "ref": GangRef(kind="Job", name=name, namespace="default", uid=f"uid-{name}"),
        "resource_version": "1",
        "suspended": False,
        "stopped": False,
        "stopped_by": "",
        "options": GangOptions(restart=True, checkpoint="/checkpoints"),
        "elastic": Elastic(world),
    }
    return Root(**{**known, "attempt": attempt, "world": world, **fields})


def a_recovery_in(
    phase: Phase, *, causes: list[Cause] | None = None, annotations: dict[str, str] | None = None, **status: Any
) -> Recovery:
    """A recovery for attempt 1 that came to *phase* at the start of time."""
    known = causes or [SOFTWARE]
    entered = TimelineEntry(phase=phase, at=START, message="so it was")
    fields = {
        "attempt": 1,
        "let_through": START,
        "phase_since": START,
        "message": "so it was",
        "timeline": [entered],
        **status,
    }
    recorded = RecoveryStatus(phase=phase, causes=known, **fields)
    return a_recovery(cause=known[0], status=recorded, annotations=annotations or {})
