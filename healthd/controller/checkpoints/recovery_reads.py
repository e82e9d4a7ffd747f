"""
The searches for checkpoints that a recovery needs: the one to resume from, and those that the started gang makes.

A search runs in the background. Each call returns it as far as it has come.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from healthd.controller.checkpoints.background_reads import BackgroundRead, CheckpointReads, ReadPurpose, question_of
from healthd.controller.ports import Checkpoints
from healthd.core.api import ChosenCheckpoint, Recovery
from healthd.core.api.model import Phase
from healthd.core.recovery.gang import CheckpointRead, Root
from healthd.core.recovery.resume_point import ASK_AGAIN, doubted


class RecoveryReads:
    """Searches the gangs' *checkpoints* through *reads*, each at most once in *every*."""

    def __init__(self, reads: CheckpointReads, checkpoints: Checkpoints, every: timedelta) -> None:
        self._reads = reads
        self._checkpoints = checkpoints
        self._every = every

    def resume(self, root: Root, recovery: Recovery, previous: Recovery | None) -> CheckpointRead | None:
        """
        The search for the checkpoint to resume from; None for a gang without a location of checkpoints. *previous* is
        the gang's recovery before this one.
        """
        if not root.options.checkpoint:
            return None
        read = self._search(ReadPurpose.RESUME, root, recovery, doubted=doubted(recovery, previous), every=self._every)
        if read is not None and read.ended is not None and not read.error and read.answer.pending:
            self._reads.again(read, ASK_AGAIN)
        return _as_far_as_it_is(read)

    def newer(self, root: Root, recovery: Recovery) -> CheckpointRead | None:
        """The search for checkpoints beyond the loaded one; None while the gang does not run with the loaded one."""
        if recovery.status.phase is not Phase.CONFIRMING or not root.options.checkpoint:
            return None
        resumed_at = recovery.status.checkpoint.step if recovery.status.checkpoint else -1
        newer_than = resumed_at if resumed_at >= 0 else None
        # Read again soon: until progress of the gang is seen, another fault belongs to the same recovery.
        every = min(ASK_AGAIN, self._every / 2)
        read = self._search(ReadPurpose.CONFIRM, root, recovery, newer_than, recovery.status.doubted, every=every)
        return _as_far_as_it_is(read)

    def _search(
        self,
        purpose: ReadPurpose,
        root: Root,
        recovery: Recovery,
        newer_than: int | None = None,
        doubted: Sequence[ChosenCheckpoint] = (),
        *,
        every: timedelta,
    ) -> BackgroundRead | None:
        work = partial(self._checkpoints.latest, root, newer_than, recovery, doubted)
        question = question_of(purpose, root, recovery, newer_than, doubted)
        return self._reads.ask(root.ref, question, work, every=every)


def _as_far_as_it_is(read: BackgroundRead | None) -> CheckpointRead:
    if read is None:
        return CheckpointRead()
    if read.ended is None or read.error:
        return CheckpointRead(asked=read.asked, ended=read.ended, error=read.error, is_passing=read.is_passing)
    found, rejected, pending = read.answer
    return CheckpointRead(asked=read.asked, ended=read.ended, found=found, rejected=tuple(rejected), pending=pending)
