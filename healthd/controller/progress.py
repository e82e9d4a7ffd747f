"""
The training progress of running gangs: the newest step of their checkpoints, recorded on their roots.

The step is read by the names of the checkpoints alone: a cheap read, in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec
import structlog

from healthd.cluster.port import Cluster
from healthd.controller.checkpoints.background_reads import BackgroundRead, CheckpointReads, ReadPurpose, question_of
from healthd.controller.ports import Checkpoints
from healthd.core.api import ANNOTATION_PROGRESS
from healthd.core.recovery.gang import Root
from healthd.core.recovery.progress import advance
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import WARNING, Announce, about_gang

log = structlog.get_logger()


class ProgressRecorder:
    """Reads the newest step of gangs through *reads*, at most once in *every*, and records it through *cluster*."""

    def __init__(
        self,
        cluster: Cluster,
        adapters: Mapping[str, GangAdapter[Any]],
        reads: CheckpointReads,
        checkpoints: Checkpoints,
        every: timedelta,
        announce: Announce,
        missed_since: Callable[[datetime], timedelta],
    ) -> None:
        self._cluster = cluster
        self._adapters = adapters
        self._reads = reads
        self._checkpoints = checkpoints
        self._every = every
        self._announce = announce
        self._missed_since = missed_since
        self._unsure: set[str] = set()
        """Uids of gangs that may hang, while their store cannot be read to confirm it."""

    async def record(self, root: Root | None) -> bool:
        """Record a step that a read has shown, and read again. True: *root* was written. Raises ClusterError."""
        if root is None or root.invalid or not root.options.checkpoint or root.suspended:
            return False
        read = self._read_step(ReadPurpose.PROGRESS, root)
        if read is None or read.ended is None or read.error:
            return False
        # Else a newer step was recorded after this read began.
        is_written = read.known == root.progress.step and await self._record_step(root, read)
        self._reads.use(read)
        return is_written

    async def is_silent(self, root: Root) -> bool:
        """
        Whether the store, read after the silence was suspected, shows the recorded step and no other.

        The recorded step may be old because there was no read: no controller ran, or the store did not answer. Raises
        ClusterError.
        """
        read = self._read_step(ReadPurpose.SILENCE, root)
        if read is None or read.ended is None:
            return False
        self._report_unsure(root, read.error)
        if read.error:
            return False
        await self._record_step(root, read)
        self._reads.use(read)
        return bool((-1 if read.answer is None else read.answer) == root.progress.step)

    def forget_others(self, uids: Collection[str]) -> None:
        """Forget what is known of gangs that are not in *uids*."""
        self._unsure.intersection_update(uids)

    def _report_unsure(self, root: Root, why: str) -> None:
        """Report once that a gang may hang, and that this is not certain while its store does not answer."""
        if why and root.ref.uid not in self._unsure:
            message = f"it may hang, but its checkpoints cannot be read, so healthd does not restart it: {why}"
            log.warning("gang.may_hang", gang=root.ref.name, namespace=root.ref.namespace, why=why)
            self._announce(about_gang(root.ref, self._adapters[root.ref.kind].kind), WARNING, "GangMayHang", message)
        (self._unsure.add if why else self._unsure.discard)(root.ref.uid)

    def _read_step(self, purpose: ReadPurpose, root: Root) -> BackgroundRead | None:
        """Read the newest step by its name. The gang's usual interval is learned from the times of these reads."""
        since = root.progress.step if purpose is ReadPurpose.SILENCE else None
        question = question_of(purpose, root, newer_than=since)
        known = root.progress.step if purpose is ReadPurpose.PROGRESS else None
        work = partial(self._checkpoints.newest_step, root)
        return self._reads.ask(root.ref, question, work, every=self._every, known=known)

    async def _record_step(self, root: Root, read: BackgroundRead) -> bool:
        """Record the step that was read, if it differs from the one before: whether it did."""
        if read.answer is None:
            return False
        # The store may take minutes to answer; the step is dated by the end of the read.
        before, ended = root.progress.at, read.ended or read.asked
        missed = self._missed_since(before) if before is not None else timedelta(0)
        progress = advance(root.progress, read.answer, root.attempt, ended, missed)
        if progress == root.progress:
            return False
        note = {ANNOTATION_PROGRESS: msgspec.json.encode(progress).decode()}
        await self._adapters[root.ref.kind].note(self._cluster, root, note)
        return True
