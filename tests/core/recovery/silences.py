"""Builders of gangs that are silent by the reports of their agents."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from healthd.core.api import NodeHealth, NodeHealthStatus, Pod, PodStatus
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.recovery.gang import GangView
from tests.builders import a_node, a_nodehealth, a_pod
from tests.core.gangs import a_root
from tests.fakes import START

NOW = START + timedelta(hours=1)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_rank(number: int, *, name: str = "", phase: str = "Running", **fields: Any) -> Pod:
    """A member that has run since the start of time."""
    name = name or f"train-{number}"
    known: dict[str, Any] = {
        "node": f"node-{number}",
        "index": number,
        "uid": f"uid-{name}",
        "creation_timestamp": START,
        "status": PodStatus(phase=phase),
    }
    return a_pod(name, **{**known, **fields})


def a_rhythm(number: int, **fields: Any) -> PodRhythm:
    """A rank that has been silent for a minute."""
    known: dict[str, Any] = {
        "uid": f"uid-train-{number}",
        "state": MemberState.SILENT,
        "since": ago(60),
        "period": 2.0,
        "allowed": 12.0,
        "worked": 36000.0,
    }
    return PodRhythm(**{**known, **fields})


def a_report(number: int, *rhythms: PodRhythm, seen_at: datetime | None = None, boot_id: str = "boot-1") -> NodeHealth:
    """What the agent of node *number* published, half a minute ago if not *seen_at*."""
    status = NodeHealthStatus(rhythms=list(rhythms), seen_at=seen_at or ago(30), boot_id=boot_id)
    return a_nodehealth(f"node-{number}", status=status)


def a_gang(**fields: Any) -> GangView:
    """Two ranks on two nodes, both silent for a minute."""
    known: dict[str, Any] = {
        "root": a_root(),
        "pods": (a_rank(0), a_rank(1)),
        "nodes": {f"node-{number}": a_node(f"node-{number}") for number in range(4)},
        "health": {f"node-{number}": a_report(number, a_rhythm(number)) for number in range(2)},
    }
    return GangView(**{**known, **fields})
