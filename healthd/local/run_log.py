"""What `healthd run` says of its run as a whole: from where it starts, what may go wrong unseen, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, NotFound
from healthd.controller.lookup import FileCheckpoints
from healthd.core.gang import Root, attempt_of
from healthd.core.objects import ChosenCheckpoint, Job, Pod, Recovery
from healthd.gangs.job import read_job
from healthd.local.endings import doubts, left_early, told
from healthd.local.environment import threads_env
from healthd.local.gang import NAMESPACE, RunSpec, resumed_from
from healthd.local.known import known_runs, who_saved
from healthd.local.memory import ANNOTATION_SEEN, note_of, remembered, seen_of
from healthd.local.once import Once
from healthd.local.pipes import LONGEST_SCRIPT, hidden_by

log = structlog.get_logger(__name__)

LONGEST_LOOK = 30.0
"""Seconds at the end of a run: nobody waits longer for a file server that hangs."""


class RunLog:
    """The lines about one run. *runs* is where other runs keep their state."""

    def __init__(
        self, spec: RunSpec, cluster: Cluster, clock: Clock, checkpoints: FileCheckpoints, runs: Path | None
    ) -> None:
        self._spec = spec
        self._cluster = cluster
        self._clock = clock
        self._checkpoints = checkpoints
        self._runs = runs
        self._left = Once()

    def launch(self, environ: Mapping[str, str]) -> None:
        """What the ranks are given without having been asked for, and what hides how they end."""
        self._threads(environ)
        self._what_hides()

    async def starts(
        self, checkpoint: ChosenCheckpoint, attempt: int, since: datetime, changes: Sequence[str] = ()
    ) -> None:
        """From which checkpoint of whose run it starts. That it is of another run is a warning: it may be meant."""
        fields: dict[str, Any] = {"name": self._spec.name, "attempt": attempt}
        if changes:
            fields["changed"] = "; ".join(changes)
        if not checkpoint.path:
            log.info("run.starts", **fields, at="step 0: there is no checkpoint to load")
            return
        fields["at"] = f"step {checkpoint.step}" if checkpoint.step >= 0 else "a checkpoint whose name tells no step"
        others = await known_runs(self._runs) if self._runs else []
        others = [run for run in others if run.state.resolve() != self._spec.state.resolve()]
        if whose := who_saved(checkpoint, self._spec.checkpoint, since, others):
            note = "it goes on from there; to begin from nothing, add --fresh, or name another --checkpoint"
            log.warning("run.starts", **fields, checkpoint=checkpoint.path, saved_by=whose, note=note)
        else:
            log.info("run.starts", **fields, checkpoint=checkpoint.path, saved_by="this run")

    def _threads(self, environ: Mapping[str, str]) -> None:
        if chosen := threads_env(environ, self._spec.nproc):
            note = "so that ranks do not take each other's cores, as torchrun does; set it yourself to choose"
            log.info("run.threads", **chosen, note=note)

    def _what_hides(self) -> None:
        if pipe := hidden_by(self._spec.command, self._read_script):
            note = (
                "a rank that dies before it ends with exit code 0, and counts as done: say `set -o pipefail` "
                "(bash), or leave it out, for the output of each rank is kept in its log"
            )
            log.warning("command.hides_exit_code", by=pipe, note=note)

    def _read_script(self, name: str) -> str:
        try:
            path = self._spec.working_dir / name
            if not path.is_file():  # what is read from a pipe is gone for the shell
                return ""
            with path.open(errors="replace") as file:
                return file.read(LONGEST_SCRIPT)
        except (OSError, ValueError):
            return ""

    async def who_left(self) -> None:
        """A rank that ended with 0 long before the others may have died behind a pipe: said once."""
        pods = (await self._cluster.list(Pod, namespace=NAMESPACE)).items
        last = max(map(attempt_of, pods), default=0)
        gang = [pod for pod in pods if attempt_of(pod) == last]
        for rank in left_early(gang, self._clock.now()):
            if self._left.is_new(rank, str(last)):
                step = told(await self._newest(read_job(await self._cluster.get(Job, self._spec.name, NAMESPACE))))
                note = "it ended with exit code 0 while other ranks go on: was its work done?"
                log.warning("rank.left_early", rank=rank, attempt=last, at=step, note=note)

    async def ended(self, code: int) -> None:
        """How the gang ended."""
        if code == 0:
            await self._completed()
        else:
            note = "`healthd explain` tells why; the same command goes on from the newest checkpoint that loads"
            log.error("run.gave_up", name=self._spec.name, exit_code=code, note=note)

    async def stopped(self) -> None:
        """Where its user stopped it. That is remembered: the files may be gone when it is to go on."""
        try:
            job = await self._cluster.get(Job, self._spec.name, NAMESPACE)
        except NotFound:
            return
        root = read_job(job)
        newest = await self._newest(root)
        if newest:
            await self._remember(job, root, newest)
        note = "the same command goes on from the newest checkpoint that loads"
        log.info("run.stopped", name=self._spec.name, at=told(newest), note=note)

    async def _completed(self) -> None:
        """With the step that it ended at, and what speaks against its being the end of the work."""
        job = await self._cluster.get(Job, self._spec.name, NAMESPACE)
        root = read_job(job)
        newest = await self._newest(root)
        if newest:
            await self._remember(job, root, newest)
        log_it, fields = log.info, {"name": self._spec.name, "attempt": root.attempt, "at": told(newest)}
        if wrong := doubts(self._spec.nproc, root.world, resumed_from(job), newest, root.started_at):
            log_it = log.warning
            note = "all ranks ended with exit code 0; a rank that dies behind a pipe, such as `| tee`, does so, too"
            fields |= {"but": "; ".join(wrong), "note": note}
        log_it("run.completed", **fields)

    async def done(self) -> None:
        """That nothing is to be done, and how to do it all the same."""
        job = await self._cluster.get(Job, self._spec.name, NAMESPACE)
        seen = seen_of(job, read_job(job), ())
        where = f", at {seen}" if seen.anything else ""
        log.warning(
            "run.done",
            name=self._spec.name,
            note=f"nothing is started: the same command in the same folder finished in an earlier run{where}; "
            "--fresh begins it again from nothing",
        )

    async def _newest(self, root: Root) -> ChosenCheckpoint | None:
        """The newest checkpoint by a quick look, without a path where there is none; None where it cannot be known."""
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                report = await self._checkpoints.report(root)
        except OSError:
            return None
        return (report.found or ChosenCheckpoint()) if report else None

    async def _remember(self, job: Job, root: Root, newest: ChosenCheckpoint) -> None:
        recoveries = (await self._cluster.list(Recovery, namespace=NAMESPACE)).items
        before = seen_of(job, root, [one for one in recoveries if one.spec.gang.uid == root.ref.uid])
        seen = remembered(before, newest.step, newest.path)
        if seen.anything:
            notes = {"metadata": {"annotations": {ANNOTATION_SEEN: note_of(seen)}}}
            await self._cluster.patch(Job, self._spec.name, notes, namespace=NAMESPACE)
