"""
What a look at one location finds, in one small object: for a program that has to tell it to another one.

Blocks on the file system. Nothing is changed there.
"""

from __future__ import annotations

import os
from pathlib import Path

from healthd.checkpoints.latest import Checkpoint, Rejected, latest
from healthd.checkpoints.tree import Damaged, survey
from healthd.core.objects import ChosenCheckpoint, RejectedCheckpoint
from healthd.core.verification import Report


def report_on(root: Path, *, format: str = "", newer_than: int | None = None) -> Report:  # noqa: A002 - as in `latest`
    """The newest checkpoint below *root* that will load, its size, and the room that is left. Raises UnknownFormat."""
    answer = latest(root, format=format, newer_than=newer_than)
    size, seconds = _weigh(Path(answer.found.path)) if answer.found else (0, 0.0)
    return Report(
        found=_chosen(answer.found) if answer.found else None,
        rejected=[_rejected(each) for each in answer.rejected],
        size=size,
        write_seconds=seconds,
        free=_free(root),
    )


def _chosen(found: Checkpoint) -> ChosenCheckpoint:
    return ChosenCheckpoint(path=found.path, step=found.step, format=found.format, saved_ns=found.saved_ns)


def _rejected(refused: Rejected) -> RejectedCheckpoint:
    return RejectedCheckpoint(path=refused.path, step=refused.step, reason=refused.reason)


def _weigh(path: Path) -> tuple[int, float]:
    """Bytes of a checkpoint, and the seconds from its oldest to its newest file; nothing where it is gone by now."""
    try:
        stamps = [entry.stamp for entry in survey(path).entries.values()]
    except Damaged:
        return 0, 0.0
    written = [stamp.mtime_ns for stamp in stamps]
    return sum(stamp.size for stamp in stamps), (max(written) - min(written)) / 1e9 if written else 0.0


def _free(root: Path) -> int:
    """Bytes that a user may still write there; -1 where nobody can tell."""
    try:
        room = os.statvfs(root)
    except OSError:
        return -1
    return room.f_bavail * room.f_frsize
