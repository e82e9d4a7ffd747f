"""
What a look at one location finds, in one small object: for a program that has to tell it to another one.

Blocks on the store. Nothing is changed there.
"""

from __future__ import annotations

import os
from pathlib import Path

from healthd.checkpoints.latest import Cache, Checkpoint, Level, Rejected, latest
from healthd.checkpoints.stores.urls import Location
from healthd.core.objects import ChosenCheckpoint, RejectedCheckpoint
from healthd.core.verification import Report


def report_on(
    root: Location,
    *,
    format: str = "",  # noqa: A002 - as in `latest`
    level: Level = Level.FULL,
    newer_than: int | None = None,
    cache: Cache | None = None,
) -> Report:
    """The newest checkpoint below *root* that will load, its size, and the room that is left. Raises UnknownFormat."""
    answer = latest(root, format=format, level=level, newer_than=newer_than, cache=cache)
    found = answer.found
    return Report(
        found=_chosen(found) if found else None,
        rejected=[_rejected(each) for each in answer.rejected],
        size=found.size if found else 0,
        write_seconds=found.write_seconds if found else 0.0,
        free=_free(root) if isinstance(root, Path) else -1,
    )


def _chosen(found: Checkpoint) -> ChosenCheckpoint:
    return ChosenCheckpoint(path=found.path, step=found.step, format=found.format, saved_ns=found.saved_ns)


def _rejected(refused: Rejected) -> RejectedCheckpoint:
    return RejectedCheckpoint(path=refused.path, step=refused.step, reason=refused.reason)


def _free(root: Path) -> int:
    """Bytes that a user may still write there; -1 where nobody can tell. A bucket has no end."""
    try:
        room = os.statvfs(root)
    except OSError:
        return -1
    return room.f_bavail * room.f_frsize
