"""Log lines about a run as a whole: where it starts, which problems may stay hidden, and how it ended."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, NotFound
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.core.api import (
    ANNOTATION_PROGRESS,
    ANNOTATION_SILENCE,
    ANNOTATION_STRAGGLERS,
    ChosenCheckpoint,
    Job,
    Pod,
    Recovery,
)
from healthd.core.config.gangs import HangPolicy, SilenceMode
from healthd.core.hang.describe import who_holds_up, why_hang
from healthd.core.hang.silence import Silence, cannot_go_on
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.suspects.suspicion import suspects_of
from healthd.core.hang.work.straggler_text import minutes
from healthd.core.hang.work.straggler_text import sentence_of as straggler_sentence
from healthd.core.printable import printable
from healthd.core.recovery.gang import Root
from healthd.core.recovery.hangs.silence_record import what_follows
from healthd.core.recovery.hangs.suspicion import again_text
from healthd.core.recovery.members import attempt_of
from healthd.core.recovery.progress import advance
from healthd.gangs.job import read_job
from healthd.local.checkpoints.memory import (
    ANNOTATION_ENDED_WITH,
    ANNOTATION_SEEN,
    NOTHING_SEEN,
    ended_with,
    note_of,
    remembered,
    seen_of,
)
from healthd.local.environment import threads_env
from healthd.local.gang import NAMESPACE, RunSpec, resumed_from
from healthd.local.hang.record import ANNOTATION_HANG, HangRecord, encoded
from healthd.local.hang.stragglers import StragglerRecord
from healthd.local.reports.endings import doubts, left_early, step_text, unsaved
from healthd.local.reports.notify import Facts
from healthd.local.reports.once import Once
from healthd.local.reports.pipes import LONGEST_SCRIPT, hidden_by
from healthd.local.reports.restarts import Restarts, RunMessage, RunMessageKind, place, spoken, step_of
from healthd.local.state.folder import explain_command, option_of
from healthd.local.state.known_runs import known_runs, who_saved

log = structlog.get_logger(__name__)

READ_LIMIT = 30.0
"""Seconds. The end of a run does not wait longer for a file server that hangs."""


def _no_notification(facts: Facts) -> None:
    """Used without `--notify`."""


class RunLog:
    """Logs the lines about one run. *runs* is the folder where other runs keep their state."""

    def __init__(
        self,
        spec: RunSpec,
        cluster: Cluster,
        clock: Clock,
        checkpoints: FileCheckpoints,
        runs: Path | None,
        notify: Callable[[Facts], None] = _no_notification,
    ) -> None:
        """*notify* sends the notifications of `--notify`."""
        self._spec = spec
        self._cluster = cluster
        self._clock = clock
        self._checkpoints = checkpoints
        self._runs = runs
        self._left = Once()
        self._stragglers = StragglerRecord()
        self._notify_user = notify
        self._restarts = Restarts(spec.nproc, option_of(spec.name, spec.state))
        self._explain = explain_command(spec.name, spec.state)
        self._began_at = clock.now()
        self._began: ChosenCheckpoint | None = None
        """The checkpoint that the first attempt of this process had to load."""

    def launch(self, environ: Mapping[str, str]) -> None:
        """Log the variables that healthd adds for the ranks, and what hides their exit codes."""
        self._threads(environ)
        self._what_hides()

    async def starts(
        self, checkpoint: ChosenCheckpoint, attempt: int, since: datetime, changes: Sequence[str] = ()
    ) -> None:
        """
        Log the checkpoint that the run starts from, and which run saved it.

        A checkpoint of another run is a warning: the user may want that.
        """
        self._began = checkpoint
        fields: dict[str, Any] = {"name": self._spec.name, "attempt": attempt}
        if changes:
            fields["changed"] = "; ".join(changes)
        if not checkpoint.path:
            log.info("run.starts", **fields, at="step 0: there is no checkpoint to load")
            return
        fields["at"] = f"step {checkpoint.step}" if checkpoint.step >= 0 else "a checkpoint whose name has no step"
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
            if not path.is_file():  # text read from a pipe is lost for the shell
                return ""
            with path.open(errors="replace") as file:
                return file.read(LONGEST_SCRIPT)
        except (OSError, ValueError):
            return ""

    async def skip_the_past(self) -> None:
        """Ignore the recoveries that have ended: they belong to an earlier start of the run."""
        self._restarts.skip((await self._cluster.list(Recovery, namespace=NAMESPACE)).items)

    async def poll(self) -> None:
        """Log what has changed in the run since the last call."""
        try:
            root = read_job(await self._cluster.get(Job, self._spec.name, NAMESPACE))
        except NotFound:
            return
        found = (await self._cluster.list(Recovery, namespace=NAMESPACE)).items
        own = [recovery for recovery in found if recovery.spec.gang.uid == root.ref.uid]
        for message in self._restarts.poll(own, root.world, self._clock.now()):
            self._log_message(message)

    def _log_message(self, message: RunMessage) -> None:
        fields = {"recovery": message.recovery, "attempt": message.attempt, "text": message.text}
        match message.kind:
            case RunMessageKind.RESTART:
                log.warning(
                    "run.restarted",
                    **fields,
                    cause=message.cause,
                    step=message.step,
                    down=message.down,
                    lost=message.lost,
                )
            case RunMessageKind.HOLD:
                log.warning("run.held", **fields, why=message.why, note=message.hint)
            case _:
                log.info("run.message", **fields, about=message.kind)
        if message.kind in (RunMessageKind.RESTART, RunMessageKind.HOLD):
            more = (
                {"down_s": _seconds(message.down), "lost_s": _seconds(message.lost)}
                if message.kind is RunMessageKind.RESTART
                else {}
            )
            self._notify(
                message.kind,
                message.text,
                cause=message.cause,
                why=message.why,
                hint=message.hint or None,
                step=message.step,
                **more,
            )

    async def silent(self, silence: Silence, *, policy: HangPolicy) -> None:
        """Log a hang when it begins and when it is over, and record it for `healthd explain`."""
        await self._annotate(ANNOTATION_SILENCE, msgspec.json.encode(silence).decode())
        if silence.was_stopped:
            return
        if silence.ended_at is not None:
            quiet = spoken(silence.ended_at - silence.since)
            log.info("run.works_again", text=f"the ranks work again, after {quiet}", since=silence.since.isoformat())
            return
        text = f"the run hangs: {why_hang(silence)}"
        states = {member.rank: member.state.value for member in silence.members}
        note = await self._way_out_of_hang(silence, policy)
        log.warning("run.hangs", text=text, note=note, since=silence.since.isoformat(), ranks=states)

    async def located(self, silence: Silence, record: HangRecord, *, policy: HangPolicy) -> None:
        """Log and notify who holds up the others in *silence*, or why no rank is named, and record it for explain."""
        text = "; ".join(filter(None, [who_holds_up(record.location), await self._suspected_before(record)]))
        suspects = [suspect.rank for suspect in record.location.suspects]
        before = await self._way_out_of_hang(silence, policy)
        silence = msgspec.structs.replace(silence, suspects=suspects_of(record.location, record.ranks))
        hint = await self._way_out_of_hang(silence, policy)
        log_it = log.warning if suspects else log.info
        note = hint if hint != before else ""
        log_it("run.hang_located", text=text, note=note, suspects=suspects, since=silence.since.isoformat())
        why = why_hang(silence)
        named = ",".join(map(str, suspects)) or None
        message = f"the run hangs: {why}; {text}"
        self._notify(RunMessageKind.HANG, message, why=f"{why}; {text}", hint=hint, suspects=named)
        await self._annotate(ANNOTATION_HANG, encoded(record))

    async def straggler(self, straggler: Straggler) -> None:
        """Log and notify a rank that the others wait for, log its end, and record both for `healthd explain`."""
        await self._annotate(ANNOTATION_STRAGGLERS, self._stragglers.encoded_with(straggler))
        if straggler.was_stopped:
            return
        fields = {"rank": straggler.rank, "since": straggler.since.isoformat()}
        if straggler.ended_at is not None:
            slow = minutes(straggler.since, straggler.ended_at)
            text = f"rank {printable(straggler.rank)} keeps up with the others again, after {slow}"
            log.info("run.straggler_over", text=text, **fields)
            return
        text = straggler_sentence(straggler)
        log.warning("run.straggler", text=text, slower=round(straggler.slower, 3), **fields)
        hint = f"nothing is done about it; `{self._explain}` shows it"
        self._notify(RunMessageKind.STRAGGLER, text, why=text, hint=hint, suspects=straggler.rank)

    async def _suspected_before(self, record: HangRecord) -> str:
        with suppress(ClusterError):
            return again_text(record.location.nodes, (await self._cluster.list(Recovery, namespace=NAMESPACE)).items)
        return ""

    async def _annotate(self, name: str, text: str) -> None:
        note = {"metadata": {"annotations": {name: text}}}
        with suppress(ClusterError):  # the line in the log is what matters
            await self._cluster.patch(Job, self._spec.name, note, namespace=NAMESPACE)

    async def _way_out_of_hang(self, silence: Silence, policy: HangPolicy) -> str:
        if policy.silence is not SilenceMode.RESTART:
            shown = f"nothing is done about it yet; `{self._explain}` shows it"
            is_left = silence.is_start and not cannot_go_on(silence)
            return shown if is_left else f"{shown}, and --hang restart restarts"
        try:
            root = read_job(await self._cluster.get(Job, self._spec.name, NAMESPACE))
        except ClusterError as error:
            return f"whether it is restarted is not known: the state of the run cannot be read ({error})"
        return what_follows(root, policy, silence)

    def _notify(self, kind: RunMessageKind, message: str, **facts: str | float | None) -> None:
        """Send a notification: the facts of every kind, and the own facts of this kind."""
        self._notify_user(
            {
                "event": kind.value,
                "message": message,
                "run": self._spec.name,
                "host": socket.gethostname(),
                "at": self._clock.now().isoformat(timespec="seconds").replace("+00:00", "Z"),
                "restarts": self._restarts.count,
                "checkpoints": str(self._spec.checkpoint.absolute()),
                "logs": str(self._logs),
                **facts,
            }
        )

    @property
    def _logs(self) -> Path:
        return self._spec.state.absolute() / "logs"

    async def who_left(self) -> None:
        """Log each rank that exited with 0 before the others, once, at level info. It may have died behind a pipe."""
        pods = (await self._cluster.list(Pod, namespace=NAMESPACE)).items
        last = max(map(attempt_of, pods), default=0)
        gang = [pod for pod in pods if attempt_of(pod) == last]
        left = [rank for rank in left_early(gang, self._clock.now()) if self._left.is_new(rank, str(last))]
        if not left:
            return
        step = step_text(await self._newest(read_job(await self._cluster.get(Job, self._spec.name, NAMESPACE))))
        who = f"rank {left[0]} has" if len(left) == 1 else f"ranks {', '.join(left)} have"
        text = (
            f"{who} ended with exit code 0, and the other ranks go on; the newest checkpoint is at {step}. That "
            "is well where the work of a rank is done before that of the others"
        )
        log.info("rank.left_early", ranks=left, attempt=last, at=step, text=text)

    async def ended(self, code: int) -> None:
        """Log how the gang ended."""
        await self.poll()
        if code == 0:
            await self._completed()
        else:
            await self._gave_up(code)

    async def _gave_up(self, code: int) -> None:
        found = (await self._cluster.list(Recovery, namespace=NAMESPACE)).items
        last = max(found, key=lambda recovery: recovery.status.attempt, default=None)
        why = last.status.message if last is not None else "its ranks failed"
        note = f"`{self._explain}` shows more; the same command goes on from the newest checkpoint that loads"
        log.error("run.gave_up", name=self._spec.name, exit_code=code, why=why, note=note)
        newest = await self._newest_of_run()
        self._sum_up(newest)
        text = f"run {self._spec.name} is given up (exit code {code}): {why}"
        self._notify(RunMessageKind.GIVE_UP, text, exit_code=code, why=why, step=step_of(newest))

    async def _newest_of_run(self) -> ChosenCheckpoint | None:
        """What the run has left, recorded as that."""
        try:
            job = await self._cluster.get(Job, self._spec.name, NAMESPACE)
        except NotFound:
            return None
        return await self._record_end(job, read_job(job))

    def _sum_up(self, newest: ChosenCheckpoint | None) -> None:
        """Log how far the run came, what the faults cost, and where the files are."""
        restarts, began = self._restarts, self._began
        took = spoken(self._clock.now() - self._began_at)
        way = self._way(newest, took)
        if restarts.count:
            how_many = f"{restarts.count} restart{'s' if restarts.count > 1 else ''}"
            cost = f"{spoken(restarts.down)} until all ranks ran again, and {spoken(restarts.lost)} of work done again"
            way += f"; {how_many} cost {cost}" if restarts.down else f"; {how_many} without progress"
        else:
            way += ", without a restart"
        where = f"checkpoints in {self._spec.checkpoint.absolute()}, logs in {self._logs}"
        log.info(
            "run.summary",
            name=self._spec.name,
            began=None if began is None else step_of(began),
            step=step_of(newest),
            restarts=restarts.count,
            down=restarts.down,
            lost=restarts.lost,
            text=f"{way}\n{where}",
        )

    def _way(self, newest: ChosenCheckpoint | None, took: str) -> str:
        """The start point and the end point of the run, in words."""
        if newest is not None and not newest.path:
            return f"it ran for {took} and left no checkpoint that loads"
        began = f"from {place(self._began)} " if self._began is not None else ""
        return f"{began}to {step_text(newest)} in {took}"

    async def stopped(self) -> None:
        """Log where its user stopped the run. The step is recorded: the files may be gone at the next start."""
        try:
            job = await self._cluster.get(Job, self._spec.name, NAMESPACE)
        except NotFound:
            return
        root = read_job(job)
        newest = await self._record_end(job, root)
        has_none = newest is not None and not newest.path
        at = "a point without a checkpoint that loads" if has_none else step_text(newest)
        note = "the same command starts it again" if has_none else "the same command goes on from there"
        log.info("run.stopped", name=self._spec.name, at=at, note=note)
        await self.poll()
        self._sum_up(newest)

    async def _completed(self) -> None:
        """Log the last step of a completed run, and the doubts that the work is complete."""
        job = await self._cluster.get(Job, self._spec.name, NAMESPACE)
        root = read_job(job)
        newest = await self._record_end(job, root)
        log_it, fields = log.info, {"name": self._spec.name, "attempt": root.attempt, "at": step_text(newest)}
        pods = (await self._cluster.list(Pod, namespace=NAMESPACE)).items
        wrong = doubts(self._spec.nproc, root.world, resumed_from(job), newest, root.started_at)
        if wrong := wrong + unsaved([pod for pod in pods if attempt_of(pod) == root.attempt], newest):
            log_it = log.warning
            note = "all ranks ended with exit code 0; a rank that dies behind a pipe, such as `| tee`, does so, too"
            fields |= {"but": "; ".join(wrong), "note": note}
        log_it("run.completed", **fields)
        self._sum_up(newest)
        text = f"run {self._spec.name} has finished at {step_text(newest)}"
        self._notify(RunMessageKind.DONE, text, exit_code=0, step=step_of(newest), but="; ".join(wrong) or None)

    async def done(self) -> None:
        """Log that nothing is started, and how to start it again."""
        job = await self._cluster.get(Job, self._spec.name, NAMESPACE)
        left = ended_with(job, read_job(job))
        where = f", at {left}" if left.anything else ""
        log.warning(
            "run.done",
            name=self._spec.name,
            note=f"nothing is started: the same command in the same folder finished in an earlier run{where}; "
            "--fresh begins it again from nothing",
        )

    async def _newest(self, root: Root) -> ChosenCheckpoint | None:
        """
        The newest checkpoint by a quick check. Its path is empty when there is none. None when that cannot be read.
        """
        try:
            async with asyncio.timeout(READ_LIMIT):
                report = await self._checkpoints.report(root)
        except OSError:
            return None
        return (report.found or ChosenCheckpoint()) if report else None

    async def _record_end(self, job: Job, root: Root) -> ChosenCheckpoint | None:
        """
        The newest checkpoint, as `_newest`, recorded on the Job: what the run has left, and the highest step seen.

        The two differ where the checkpoint of the highest step does not load.
        """
        newest = await self._newest(root)
        notes: dict[str, str | None] = {ANNOTATION_ENDED_WITH: None}
        if newest is not None:
            recoveries = (await self._cluster.list(Recovery, namespace=NAMESPACE)).items
            before = seen_of(job, root, [one for one in recoveries if one.spec.gang.uid == root.ref.uid])
            seen = remembered(before, newest.step, newest.path)
            progress = advance(root.progress, newest.step, root.attempt, self._clock.now())
            notes[ANNOTATION_ENDED_WITH] = note_of(remembered(NOTHING_SEEN, newest.step, newest.path))
            notes[ANNOTATION_PROGRESS] = msgspec.json.encode(progress).decode()
            if seen.anything:
                notes[ANNOTATION_SEEN] = note_of(seen)
        await self._cluster.patch(Job, self._spec.name, {"metadata": {"annotations": notes}}, namespace=NAMESPACE)
        return newest


def _seconds(span: timedelta) -> float:
    return round(span.total_seconds(), 1)
