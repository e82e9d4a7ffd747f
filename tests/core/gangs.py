"""Builders of what the decisions look at: roots, views, and the pods of a gang."""

from __future__ import annotations

from typing import Any

from healthd.core.gang import GangOptions, Root
from healthd.core.objects import GangRef


def a_root(name: str = "train", *, attempt: int = 0, world: int = 2, **fields: Any) -> Root:
    """A running gang of *world* members that healthd may restart."""
    known: dict[str, Any] = {
        "ref": GangRef(kind="Job", name=name, namespace="default", uid=f"uid-{name}"),
        "resource_version": "1",
        "suspended": False,
        "stopped": False,
        "stopped_by": "",
        "options": GangOptions(restart=True, checkpoint="/checkpoints"),
    }
    return Root(**{**known, "attempt": attempt, "world": world, **fields})
