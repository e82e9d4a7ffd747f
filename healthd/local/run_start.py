"""
Start the gang of `healthd run`: create its Job, resume the Job of an earlier run, or go on with one that runs.

The decision is in `healthd.local.gang`. Nothing starts from step 0 while work may be lost by that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, NotFound
from healthd.controller.ports import CheckpointAnswer
from healthd.core.api import ChosenCheckpoint, Job, Node, Recovery
from healthd.core.config import StartFresh
from healthd.core.recovery.gang import Root, StartHint
from healthd.gangs.job import JobAdapter, read_job
from healthd.local.checkpoints.aside import move_aside, why_not_aside
from healthd.local.checkpoints.folder import CheckpointFolder, WatchedCheckpoints
from healthd.local.checkpoints.memory import ANNOTATION_ENDED_WITH, NOTHING_SEEN, Seen, ended_with, remembered, seen_of
from healthd.local.gang import (
    ANNOTATION_BY_HAND,
    NAMESPACE,
    Create,
    GoOn,
    Plan,
    RefuseStart,
    Resume,
    RunCompleted,
    RunSpec,
    job_of,
    plan,
    restarts_of,
    since_of,
    why_not_done,
    why_not_fresh,
)
from healthd.local.machine.free_slots import open_spares, shortage
from healthd.local.reports.run_log import RunLog
from healthd.local.run_objects import RunObjects, StopRequest
from healthd.local.state.folder import explain_command, option_of

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart:
    """Starts the gang of one run. All methods raise ClusterError and OSError."""

    spec: RunSpec
    cluster: Cluster
    clock: Clock
    objects: RunObjects
    stop: StopRequest
    checkpoints: WatchedCheckpoints
    folder: CheckpointFolder
    run_log: RunLog
    start_fresh: StartFresh

    async def plan(self) -> Plan:
        """What starting the run means now."""
        if self.spec.fresh and (why := why_not_aside(self.spec.checkpoint, self.spec.command, self.spec.working_dir)):
            return RefuseStart(f"--fresh: {why}")
        try:
            job = await self.objects.job()
        except NotFound:
            return plan(self.spec, None, None, ())
        root = read_job(job)
        recoveries = await self.objects.recoveries(root)
        step = plan(self.spec, job, root, recoveries)
        if isinstance(step, Create | Resume) and (why := await self._would_lose_work(job, root, recoveries)):
            return RefuseStart(why)
        if isinstance(step, RunCompleted) and (why := await self._why_not_done(job, root)):
            return RefuseStart(why)
        if isinstance(step, GoOn):
            await self._warm_up(root)
            await self.folder.begin(seen_of(job, root, recoveries))
        return step

    async def begin(self, step: Create | Resume | GoOn) -> None:
        """Do what `plan` decided. Returns early when the user asks to stop."""
        match step:
            case Create():
                await self._create(step)
            case Resume():
                await self._resume()
            case GoOn():
                log.info("run.goes_on", name=self.spec.name)

    async def _warm_up(self, root: Root) -> None:
        """
        Start the process that reads checkpoints, by a first read. Otherwise a recovery in the loop would wait for its
        start.
        """
        with contextlib.suppress(OSError):
            await self.checkpoints.newest_step(root)

    async def _create(self, step: Create) -> None:
        since, seen, restarts = self.clock.now(), NOTHING_SEEN, 0
        if step.replace:
            since, seen, restarts = await self._what_stays(since)
            await self.cluster.delete(Job, self.spec.name, namespace=NAMESPACE)
            await self.objects.until_gone()
            if self.stop.is_made:
                return
        if self.spec.fresh and (aside := await asyncio.to_thread(move_aside, self.spec.checkpoint)):
            log.info("checkpoints.moved_aside", to=str(aside), note="--fresh: move them back to use them again")
        answer = await self._find_checkpoint(read_job(job_of(self.spec, ChosenCheckpoint())))
        found = answer.found or ChosenCheckpoint()
        for sight in [(found.step, found.path), *((rejected.step, rejected.path) for rejected in answer.rejected)]:
            seen = remembered(seen, *sight)
        await self.run_log.starts(found, step.attempt, since, step.changes)
        await self._find_slots()
        await self.folder.begin(seen)
        await self.cluster.create(job_of(self.spec, found, step.attempt, since, seen, min(restarts, step.attempt)))

    async def _what_stays(self, now: datetime) -> tuple[datetime, Seen, int]:
        """
        Facts of the replaced Job: since when checkpoints belong to this run, the highest step seen, and the restarts.
        """
        job = await self.objects.job()
        root = read_job(job)
        if self.spec.fresh or root.options.checkpoint != self.spec.checkpoint.absolute().as_uri():
            return now, NOTHING_SEEN, 0
        return since_of(job) or now, seen_of(job, root, await self.objects.recoveries(root)), restarts_of(job, root)

    async def _resume(self) -> None:
        """Start the gang again, after every process of the last attempt is proven gone, as in a recovery."""
        await self.objects.until_quiet()
        if self.stop.is_made:
            return
        job = await self.objects.job()
        root = read_job(job)
        answer = await self._find_checkpoint(root)
        checkpoint = answer.found or ChosenCheckpoint()
        hint = StartHint(recovery="", attempt=root.attempt + 1, checkpoint=checkpoint, placement={})
        await self.run_log.starts(checkpoint, hint.attempt, since_of(job) or self.clock.now())
        await self._find_slots()
        await self.folder.begin(seen_of(job, root, await self.objects.recoveries(root)))
        await JobAdapter().start(self.cluster, root, hint)
        by_hand = {ANNOTATION_BY_HAND: str(hint.attempt - restarts_of(job, root)), ANNOTATION_ENDED_WITH: None}
        await self.cluster.patch(Job, self.spec.name, {"metadata": {"annotations": by_hand}}, namespace=NAMESPACE)

    async def _find_slots(self) -> None:
        """Find one slot for each rank, before any rank starts."""
        explain, option = (of(self.spec.name, self.spec.state) for of in (explain_command, option_of))
        for name in await open_spares(self.cluster, self.spec.nproc):
            log.info("spare.used", slot=name, note=f"another slot is out of service, see `{explain}`")
        if why := shortage((await self.cluster.list(Node)).items, self.spec.nproc):
            note = (
                f"ranks start when all have a slot: after a repair say `healthd repair SLOT {option}`, or stop and ask "
                "for fewer"
            )
            log.warning("run.waits", why=why, note=note)

    async def _find_checkpoint(self, root: Root) -> CheckpointAnswer:
        """The newest checkpoint that loads. Rejected checkpoints are logged here, as no other code logs them."""
        answer = await self.checkpoints.latest(root)
        for rejected in answer.rejected:
            log.warning("checkpoint.rejected", path=rejected.path, step=rejected.step, why=rejected.reason)
        return answer

    async def _would_lose_work(self, job: Job, root: Root, recoveries: Sequence[Recovery]) -> str:
        """
        Why a restart would begin at step 0 although work was saved. Empty when it would not, or when the user wants
        that.
        """
        if self.spec.fresh or root.options.checkpoint != self.spec.checkpoint.absolute().as_uri():
            return ""
        answer = await self.checkpoints.latest(root)
        if answer.found:
            return ""
        seen = seen_of(job, root, recoveries)
        return why_not_fresh(self.spec, seen, answer.rejected, self.start_fresh)

    async def _why_not_done(self, job: Job, root: Root) -> str:
        """A quick check. When the folder does not answer, no checkpoint counts as missing."""
        try:
            report = await self.checkpoints.report(root)
        except OSError as error:
            log.warning("checkpoints.unread", why=str(error))
            return ""
        return why_not_done(self.spec, ended_with(job, root), report.found, report.rejected) if report else ""
