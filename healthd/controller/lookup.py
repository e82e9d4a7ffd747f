"""
The checkpoints of gangs that save to a file system which this process can read.

Verification reads many files, so it runs in a thread: the controller's loop must not stand still for it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.parse import unquote, urlsplit

from healthd.checkpoints.formats import UnknownFormat
from healthd.checkpoints.latest import Cache, Latest, latest, newest_step
from healthd.controller.ports import CheckpointAnswer
from healthd.core.gang import Root
from healthd.core.objects import ChosenCheckpoint, RejectedCheckpoint

LONGEST_LOOK = 10.0
"""Seconds; a file server that hangs must not hold up everything else for the sake of a look at progress."""
KEPT_REJECTIONS = 20
"""They are stored in the Recovery, and an object has a size limit; the newest tell the story."""


class FileCheckpoints:
    """Looks below the `file://` URL, or the path, that the root of a gang names, and remembers what was proven."""

    def __init__(self) -> None:
        self._proven = Cache()

    async def latest(self, root: Root, newer_than: int | None = None) -> CheckpointAnswer:
        """The newest checkpoint that will load. Raises OSError when the store cannot be read."""
        location = root.options.checkpoint
        where = path_of(location)
        if where is None:
            # Not the same as empty: what is saved there must not be lost by a fresh start.
            unseen = RejectedCheckpoint(path=location, step=-1, reason="healthd reads directories only (file:///path)")
            return CheckpointAnswer(None, [unseen] if location else [])
        return await asyncio.to_thread(self._look, where, root.options.checkpoint_format, newer_than)

    async def newest_step(self, root: Root) -> int | None:
        """The highest step that there is by name. Raises OSError when the store cannot be read or does not answer."""
        where = path_of(root.options.checkpoint)
        if where is None:
            return None
        async with asyncio.timeout(LONGEST_LOOK):
            return await asyncio.to_thread(newest_step, where)

    def _look(self, where: Path, declared: str, newer_than: int | None) -> CheckpointAnswer:
        try:
            answer = latest(where, format=declared, newer_than=newer_than, cache=self._proven)
        except UnknownFormat as error:
            return CheckpointAnswer(None, [RejectedCheckpoint(path=str(where), step=-1, reason=str(error))])
        return _answer(answer)


def path_of(location: str) -> Path | None:
    """The local path behind a checkpoint location; None when there is none, or it is not on a file system."""
    url = urlsplit(location)
    if url.scheme in ("", "file") and url.path:
        return Path(unquote(url.path) if url.scheme else location)
    return None


def _answer(answer: Latest) -> CheckpointAnswer:
    found = answer.found
    return CheckpointAnswer(
        ChosenCheckpoint(path=found.path, step=found.step, format=found.format, saved_ns=found.saved_ns)
        if found
        else None,
        [RejectedCheckpoint(path=r.path, step=r.step, reason=r.reason) for r in answer.rejected[:KEPT_REJECTIONS]],
    )
