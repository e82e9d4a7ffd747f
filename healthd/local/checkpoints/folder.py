"""
Watches the checkpoint folder during the run. It remembers each checkpoint from the second in which it appears.

So checkpoints that disappear are never mistaken for a first start.

One poll costs one stat a second. Names are read only when the folder has changed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import structlog

from healthd.checkpoints.formats import UnknownFormat, declared
from healthd.checkpoints.lookalikes import lookalike
from healthd.checkpoints.steps import Candidate, find
from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.controller.ports import CheckpointAnswer
from healthd.core.api import ChosenCheckpoint, Job, Recovery, RejectedCheckpoint
from healthd.core.recovery.gang import Root
from healthd.local.checkpoints.memory import ANNOTATION_SEEN, NOTHING_SEEN, Seen, note_of, remembered
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

POLL_EVERY = timedelta(seconds=1)
LONGEST_POLL = 10.0
"""Seconds. Only the poll waits for a file server that hangs."""
_NUMBERS = re.compile(r"\d+")
GONE = "it was there, and is not any more: was it moved or deleted, or is its file system not mounted?"


class FolderStamp(NamedTuple):
    """Stat fields that differ when the folder has changed."""

    device: int
    inode: int
    changed_ns: int


class PollResult(NamedTuple):
    """
    The result of one poll.

    *stamp* is None when the folder does not exist. *newest* is the newest checkpoint by name, if names were read, and
    *undeclared* a newer one that loads only if its layout is declared, or a file that may be one.
    """

    stamp: FolderStamp | None
    newest: Candidate | None = None
    undeclared: Candidate | None = None


class CheckpointFolder:
    """What is known of *folder* since `begin`: whether it existed, and the checkpoint with the highest step."""

    def __init__(self, folder: Path, format: str = "") -> None:  # noqa: A002 - the word that users see everywhere else
        self.seen = NOTHING_SEEN
        self._folder = folder
        self._format = format
        self._first: FolderStamp | None = None
        self._last: FolderStamp | None = None
        self._warned: set[str] = set()
        self._begun = asyncio.Event()
        self._polling: asyncio.Task[PollResult] | None = None
        """A poll that the file server has not answered yet. No other poll starts before it ends."""

    async def begin(self, seen: Seen) -> None:
        """Watch from now on. *seen* is what existed before."""
        self.seen = seen
        await self.poll()
        self._begun.set()

    async def run(self, cluster: Cluster, clock: Clock, name: str, namespace: str) -> None:
        """Run until cancelled. Each change is also written to an annotation of the Job *name*, for a later start."""
        await self._begun.wait()
        noted = NOTHING_SEEN
        while True:
            await clock.sleep(POLL_EVERY)
            await self.poll()
            if self.seen != noted:
                notes = {"metadata": {"annotations": {ANNOTATION_SEEN: note_of(self.seen)}}}
                with suppress(ClusterError):  # a failed write is repeated at the next poll
                    await cluster.patch(Job, name, notes, namespace=namespace)
                    noted = self.seen

    async def poll(self) -> None:
        """Poll once. A folder that cannot be read, or does not answer, changes nothing."""
        if self._polling is None:
            work = partial(poll, self._folder, self._format, self._last)
            self._polling = asyncio.create_task(in_thread(work, "look at checkpoints"))
        done, _ = await asyncio.wait({self._polling}, timeout=LONGEST_POLL)
        if not done:
            return
        polled, self._polling = self._polling, None
        with suppress(OSError):
            self._take(polled.result())

    def _take(self, result: PollResult) -> None:
        if result.stamp is not None:
            self._first = self._first or result.stamp
            self._last = result.stamp
        if result.undeclared is not None:
            self._warn_once(result.undeclared)
        if result.newest is None:
            return
        seen = remembered(self.seen, result.newest.step, str(result.newest.path))
        if seen != self.seen:
            self.seen = seen
            log.debug("checkpoint.seen", path=seen.path, step=seen.step)

    def _warn_once(self, undeclared: Candidate) -> None:
        """Once, and not at each save: reasons differ by the numbers of steps."""
        reason = _NUMBERS.sub("", undeclared.unfinished)
        if reason not in self._warned:
            self._warned.add(reason)
            log.warning("checkpoint.undeclared", path=str(undeclared.path), why=undeclared.unfinished)

    @property
    def changed_ns(self) -> int:
        """The time of the last change of the folder that was seen. 0: it was not there yet."""
        return self._last.changed_ns if self._last else 0

    async def missing(self, root: Root) -> list[RejectedCheckpoint]:
        """
        Stand-ins for checkpoints that existed, when no checkpoint is found now. Empty when none ever existed.
        """
        if self.seen.anything:
            return [RejectedCheckpoint(path=self.seen.path or str(self._folder), step=self.seen.step, reason=GONE)]
        why = await self._why_not_the_same()
        return [RejectedCheckpoint(path=root.options.checkpoint, step=-1, reason=why)] if why else []

    async def _why_not_the_same(self) -> str:
        """Why the folder is not the same as before. Empty when it is the same, or when it never existed."""
        if self._first is None:
            return ""
        try:
            async with asyncio.timeout(LONGEST_POLL):
                now = await in_thread(lambda: stamp_of(self._folder), "look at checkpoints")
        except OSError as error:
            return str(error) or f"{self._folder} has not answered within {LONGEST_POLL:.0f} s"
        if now is None:
            return f"the folder {GONE.replace('it was', 'was', 1)}"
        if now.device != self._first.device:
            return "another file system is mounted there than at the start of the run"
        return ""


class WatchedCheckpoints(FileCheckpoints):
    """Like `FileCheckpoints`, but distinguishes checkpoints that disappeared from checkpoints that never existed."""

    def __init__(self, folder: CheckpointFolder) -> None:
        super().__init__()
        self._folder = folder

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: Recovery | None = None,
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        """The newest checkpoint that loads. When all have disappeared, that is the reason for the rejection."""
        answer = await super().latest(root, newer_than, recovery, doubted)
        if newer_than is not None or answer.found or answer.rejected:
            return answer
        return CheckpointAnswer(None, await self._folder.missing(root))


def poll(folder: Path, format: str, last: FolderStamp | None) -> PollResult:  # noqa: A002 - as above
    """Poll *folder*. *last* is its state at the poll before. Blocks on the file system. Raises OSError."""
    stamp = stamp_of(folder)
    if stamp is None or stamp == last:
        return PollResult(stamp)
    try:
        wanted = declared(format) if format else None
    except UnknownFormat:
        wanted = None
    # The folder may not be listable, or its names may hit a bug of healthd. The folder exists in any case: report that.
    with suppress(Exception):
        found = find(folder, wanted)
        newest = next((candidate for candidate in found if not candidate.unfinished), None)
        newer = found[: found.index(newest)] if newest else found
        undeclared = next((candidate for candidate in newer if candidate.is_undeclared), None)
        return PollResult(stamp, newest, undeclared if found else lookalike(folder))
    return PollResult(stamp)


def stamp_of(folder: Path) -> FolderStamp | None:
    """None when the folder does not exist. Raises OSError."""
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FolderStamp(found.st_dev, found.st_ino, found.st_mtime_ns)
