"""
The assembly of `healthd run`: the agents, the controller and the cluster of one machine, around the ranks of one gang.

All code that decides is the code that runs on Kubernetes. Only the nodes (slots), the Job controller and the kubelet
(processes) are specific to this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from healthd.agent.agent import Agent
from healthd.agent.listen import Listener, common_cursor
from healthd.clock import Clock
from healthd.cluster.loop import cycle_on_change
from healthd.cluster.port import Cluster, NotFound
from healthd.controller.checkpoints.precheck import Prechecks
from healthd.controller.dependencies import Dependencies
from healthd.controller.ports import CheckpointAnswer
from healthd.controller.reconciler import Reconciler
from healthd.core.api import (
    ANNOTATION_STOPPED_BY,
    ChosenCheckpoint,
    Job,
    Node,
    NodeHealth,
    Pod,
    Recovery,
    Slim,
)
from healthd.core.api.model import ENDED, Phase
from healthd.core.config import Config
from healthd.core.recovery.gang import Ending, Root, StartHint, attempt_of, is_terminal
from healthd.gangs import ADAPTERS
from healthd.gangs.job import JobAdapter, read_job
from healthd.local.aside import move_aside, why_not_aside
from healthd.local.checkpoint_folder import CheckpointFolder, WatchedCheckpoints
from healthd.local.free_slots import open_spares, shortage
from healthd.local.gang import (
    ANNOTATION_BY_HAND,
    NAMESPACE,
    Create,
    Done,
    GoOn,
    Refuse,
    Resume,
    RunSpec,
    job_of,
    plan,
    restarts_of,
    since_of,
    why_not_done,
    why_not_fresh,
)
from healthd.local.jobs.controller import JobController
from healthd.local.machine import Machine
from healthd.local.memory import NOTHING_SEEN, Seen, finished_with, remembered, seen_of
from healthd.local.notify import Notifier
from healthd.local.processes.runner import ProcessRunner
from healthd.local.restarts import spoken
from healthd.local.run_log import RunLog
from healthd.local.slots import Slot, register
from healthd.local.witnesses import LocalWitnesses
from healthd.probes.errors import CannotRead
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.serving import serving

log = structlog.get_logger(__name__)

WATCHED: Sequence[type[Slim]] = [Job, Pod, Node, NodeHealth, Recovery]
LOOK_EVERY = timedelta(seconds=1)
GAVE_UP = 1
"""The exit code when healthd gave up and no rank left a more specific one."""


class RefusedToStart(Exception):
    """The run cannot start. The message says why, and what to do."""


class LocalRuntime:
    """One gang on this machine, from its start to its end."""

    def __init__(
        self,
        spec: RunSpec,
        config: Config,
        machine: Machine,
        cluster: Cluster,
        clock: Clock,
        runs: Path | None = None,
        notify: Sequence[str] = (),
    ) -> None:
        """
        *runs* is the folder where other runs keep their state: a checkpoint may be from one of them. *notify* is the
        list of notification targets.
        """
        self.spec = spec
        self.cluster = cluster
        self.metrics = Metrics()
        self._config = config
        self._machine = machine
        self._clock = clock
        self._adapter = JobAdapter()
        self._folder = CheckpointFolder(spec.checkpoint.absolute(), spec.checkpoint_format)
        self._checkpoints = WatchedCheckpoints(self._folder)
        self._notifier = Notifier(notify, spec.state / "logs" / "notify.log", machine.environ)
        self._log = RunLog(spec, cluster, clock, self._checkpoints, runs, self._notifier.tell)
        self._stopping = False
        self._hurrying = False
        self._stop_wakes = asyncio.Event()
        self._agents_wake = asyncio.Event()
        self._agents = [self._agent_of(slot) for slot in machine.slots]
        self._runner = ProcessRunner(
            cluster,
            clock,
            log_dir=spec.state / "logs",
            environ=machine.environ,
            terminal=machine.terminal,
            saves_in=spec.checkpoint.absolute(),
        )
        self._listener = Listener(self._agents, clock, self.metrics, self._agents_wake.set, self._runner.ingest_records)
        self._witnesses = LocalWitnesses(self._listener, self._agents)
        self._jobs = JobController(cluster, new_suffix=machine.new_suffix, free_port=machine.free_port)
        dependencies = Dependencies(
            cluster=cluster,
            clock=clock,
            adapters=ADAPTERS,
            checkpoints=self._checkpoints,
            metrics=self.metrics,
            activity=self._runner,
            witnesses=self._witnesses,
        )
        self._controller = Reconciler(dependencies, config)
        self._prechecks = Prechecks(
            cluster, clock, self._controller.cluster_state, ADAPTERS, self._checkpoints, config.precheck, self.metrics
        )

    def stop(self) -> None:
        """
        Stop the run for its user: the ranks get their grace period, and a later run of the same name continues.

        A second call ends the grace period.
        """
        self._hurrying = self._stopping
        self._stopping = True
        self._stop_wakes.set()

    async def run(self) -> int:
        """
        Run until the gang ends or is stopped. Returns its exit code. Raises RefusedToStart, ClusterError, OSError.
        """
        step = await self._plan()
        if isinstance(step, Refuse):
            raise RefusedToStart(step.why)
        if isinstance(step, Done):
            await self._log.done()
            return 0
        now = self._clock.now()
        await register(self.cluster, self._machine.slots, boot_id=self._machine.boot_id, now=now)
        for agent in self._agents:
            await agent.load(now)
        self.metrics.quarantine_budget.set(self._config.quarantine.budget)
        ready_checks = {"kernel_log": self._listener.trouble}
        async with self._notifier.telling():
            await self._log.skip_the_past()
            async with serving(self._config.http, self.metrics, ready_checks), self._working():
                await self._begin(step)
                self._log.launch(self._machine.environ)
                code = await self._until_over()
            if code is not None:
                await self._log.ended(code)
            elif not self._hurrying:
                await self._log.stopped()
        return code or 0

    async def _begin(self, step: Create | Resume | GoOn) -> None:
        match step:
            case Create():
                await self._create(step)
            case Resume():
                await self._resume()
            case GoOn():
                log.info("run.goes_on", name=self.spec.name)

    async def _until_over(self) -> int | None:
        """Wait for the end. Returns the exit code, None when the user stopped the run."""
        code: int | None = None

        async def is_over() -> bool:
            nonlocal code
            code = await self._exit_code()
            await self._log.look()
            await self._log.who_left()
            return code is not None or self._stopping

        await self._until(is_over)
        if code is None:
            await self._suspend()
        return code

    async def _plan(self) -> Create | Resume | GoOn | Done | Refuse:
        if self.spec.fresh and (why := why_not_aside(self.spec.checkpoint, self.spec.command, self.spec.working_dir)):
            return Refuse(f"--fresh: {why}")
        try:
            job = await self.cluster.get(Job, self.spec.name, NAMESPACE)
        except NotFound:
            return plan(self.spec, None, None, ())
        root = read_job(job)
        recoveries = await self._recoveries(root)
        step = plan(self.spec, job, root, recoveries)
        if isinstance(step, Create | Resume) and (why := await self._would_lose_work(job, root, recoveries)):
            return Refuse(why)
        if isinstance(step, Done) and (why := await self._why_not_done(job, root)):
            return Refuse(why)
        if isinstance(step, GoOn):
            await self._warm_up(root)
            await self._folder.begin(seen_of(job, root, recoveries))
        return step

    async def _warm_up(self, root: Root) -> None:
        """
        Start the process that reads checkpoints, by a first read. Otherwise a recovery in the loop would wait for its
        start.
        """
        with contextlib.suppress(OSError):
            await self._checkpoints.newest_step(root)

    async def _create(self, step: Create) -> None:
        since, seen, restarts = self._clock.now(), NOTHING_SEEN, 0
        if step.replace:
            since, seen, restarts = await self._what_stays(since)
            await self.cluster.delete(Job, self.spec.name, namespace=NAMESPACE)
            await self._until(self._is_gone_or_unwanted)
            if self._stopping:
                return
        if self.spec.fresh and (aside := await asyncio.to_thread(move_aside, self.spec.checkpoint)):
            log.info("checkpoints.moved_aside", to=str(aside), note="--fresh: move them back to use them again")
        answer = await self._look_for_checkpoint(read_job(job_of(self.spec, ChosenCheckpoint())))
        found = answer.found or ChosenCheckpoint()
        for sight in [(found.step, found.path), *((rejected.step, rejected.path) for rejected in answer.rejected)]:
            seen = remembered(seen, *sight)
        await self._log.starts(found, step.attempt, since, step.changes)
        await self._find_slots()
        await self._folder.begin(seen)
        await self.cluster.create(job_of(self.spec, found, step.attempt, since, seen, min(restarts, step.attempt)))

    async def _what_stays(self, now: datetime) -> tuple[datetime, Seen, int]:
        """
        Facts of the replaced Job: since when checkpoints belong to this run, the highest step seen, and the restarts.
        """
        job = await self.cluster.get(Job, self.spec.name, NAMESPACE)
        root = read_job(job)
        if self.spec.fresh or root.options.checkpoint != self.spec.checkpoint.absolute().as_uri():
            return now, NOTHING_SEEN, 0
        return since_of(job) or now, seen_of(job, root, await self._recoveries(root)), restarts_of(job, root)

    async def _resume(self) -> None:
        """Start the gang again, after every process of the last attempt is proven gone, as in a recovery."""
        await self._until(self._is_quiet_or_unwanted)
        if self._stopping:
            return
        job = await self.cluster.get(Job, self.spec.name, NAMESPACE)
        root = read_job(job)
        answer = await self._look_for_checkpoint(root)
        checkpoint = answer.found or ChosenCheckpoint()
        hint = StartHint(recovery="", attempt=root.attempt + 1, checkpoint=checkpoint, placement={})
        await self._log.starts(checkpoint, hint.attempt, since_of(job) or self._clock.now())
        await self._find_slots()
        await self._folder.begin(seen_of(job, root, await self._recoveries(root)))
        await self._adapter.start(self.cluster, root, hint)
        by_hand = {ANNOTATION_BY_HAND: str(hint.attempt - restarts_of(job, root))}
        await self.cluster.patch(Job, self.spec.name, {"metadata": {"annotations": by_hand}}, namespace=NAMESPACE)

    async def _find_slots(self) -> None:
        """Find one slot for each rank, before any rank starts."""
        for name in await open_spares(self.cluster, self.spec.nproc):
            log.info("spare.used", slot=name, note="another slot is out of service, see `healthd explain`")
        if why := shortage((await self.cluster.list(Node)).items, self.spec.nproc):
            note = (
                "ranks start when all have a slot: after a repair say `healthd repair SLOT`, or stop and ask for fewer"
            )
            log.warning("run.waits", why=why, note=note)

    async def _look_for_checkpoint(self, root: Root) -> CheckpointAnswer:
        """The newest checkpoint that loads. Rejected checkpoints are logged here, as no other code logs them."""
        answer = await self._checkpoints.latest(root)
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
        answer = await self._checkpoints.latest(root)
        if answer.found:
            return ""
        seen = seen_of(job, root, recoveries)
        return why_not_fresh(self.spec, seen, answer.rejected, self._config.recovery.start_fresh)

    async def _why_not_done(self, job: Job, root: Root) -> str:
        """A quick check. When the folder does not answer, no checkpoint counts as missing."""
        try:
            report = await self._checkpoints.report(root)
        except OSError as error:
            log.warning("checkpoints.unread", why=str(error))
            return ""
        return why_not_done(self.spec, finished_with(job, root), report.found, report.rejected) if report else ""

    async def _suspend(self) -> None:
        """
        Suspend the Job without the annotation of a recovery. So no controller starts it again: it stays stopped.
        """
        log.info("run.stops", name=self.spec.name, grace=spoken(self.spec.grace))
        patch = {"metadata": {"annotations": {ANNOTATION_STOPPED_BY: None}}, "spec": {"suspend": True}}
        await self.cluster.patch(Job, self.spec.name, patch, namespace=NAMESPACE)
        await self._until(self._is_quiet_or_hurried)
        if self._hurrying:
            log.warning("run.hurries", name=self.spec.name, note="asked twice: what is left of the ranks is killed")
            await self._runner.shutdown(timedelta(0))

    async def _exit_code(self) -> int | None:
        """The exit code. None while the gang runs or may run again."""
        try:
            root = read_job(await self.cluster.get(Job, self.spec.name, NAMESPACE))
        except NotFound:
            return GAVE_UP
        recoveries = await self._recoveries(root)
        if root.ending is Ending.COMPLETE:
            # The controller must finish first: an open recovery would look for ever as if it continued.
            return 0 if all(recovery.status.phase in ENDED for recovery in recoveries) else None
        gave_up = [recovery for recovery in recoveries if recovery.status.phase is Phase.GAVE_UP]
        latest = max(gave_up, key=lambda r: r.status.attempt, default=None)
        given_up_now = latest is not None and latest.status.attempt > root.attempt
        if root.ending is Ending.FAILED or given_up_now:
            return await self._failing_rank() or GAVE_UP
        return None

    async def _failing_rank(self) -> int:
        """The exit code of the rank that failed first in the last attempt. 0 when no rank failed by itself."""
        pods = (await self.cluster.list(Pod, namespace=NAMESPACE)).items
        last = max(map(attempt_of, pods), default=0)
        states = [s.state.terminated for pod in pods if attempt_of(pod) == last for s in pod.status.container_statuses]
        failed = [end for end in states if end and end.reason in ("Error", "StartError") and not end.signal]
        first = min(failed, key=lambda end: end.finished_at or self._clock.now(), default=None)
        return first.exit_code if first else 0

    async def _is_quiet(self) -> bool:
        return all(is_terminal(pod) for pod in (await self.cluster.list(Pod, namespace=NAMESPACE)).items)

    async def _is_quiet_or_unwanted(self) -> bool:
        return self._stopping or await self._is_quiet()

    async def _is_gone_or_unwanted(self) -> bool:
        return self._stopping or await self._is_gone()

    async def _is_quiet_or_hurried(self) -> bool:
        return self._hurrying or await self._is_quiet()

    async def _is_gone(self) -> bool:
        try:
            await self.cluster.get(Job, self.spec.name, NAMESPACE)
        except NotFound:
            return await self._is_quiet()
        return False

    async def _recoveries(self, root: Root) -> list[Recovery]:
        found = (await self.cluster.list(Recovery, namespace=NAMESPACE)).items
        return [recovery for recovery in found if recovery.spec.gang.uid == root.ref.uid]

    async def _until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Return when *condition* holds. It is checked after each change, and when the user wants to stop."""
        held = asyncio.Event()

        async def look(_: datetime) -> timedelta:
            if await condition():
                held.set()
            return LOOK_EVERY

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._loop([Job, Pod, Recovery], look, self._stop_wakes))
            await held.wait()
            watching.cancel()

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Run all loops until the block ends. Then stop every process of a rank, and wait until it is gone."""
        controller_wakes = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(self._runner.run(), name="runner"),
                    group.create_task(self._loop([Job, Pod, Node], self._jobs.cycle), name="jobs"),
                    group.create_task(
                        self._loop(WATCHED, self._controller.reconcile_all, controller_wakes), name="controller"
                    ),
                    group.create_task(self._controller.reads.run(lambda _: controller_wakes.set()), name="reads"),
                    group.create_task(self._loop([Node], self._witnesses.cycle, self._agents_wake), name="agents"),
                    group.create_task(self._listen(), name="kernel log"),
                    group.create_task(self._prechecks.run(), name="prechecks"),
                    group.create_task(self._watch_folder(), name="checkpoint folder"),
                ]
                yield
                for loop in loops:
                    loop.cancel()
        finally:
            await self._runner.shutdown(self.spec.grace)

    async def _loop(
        self,
        kinds: Sequence[type[Slim]],
        cycle: Callable[[datetime], Awaitable[timedelta]],
        wake: asyncio.Event | None = None,
    ) -> None:
        await cycle_on_change(self.cluster, self._clock, kinds, cycle, wake or asyncio.Event())

    async def _watch_folder(self) -> None:
        await self._folder.run(self.cluster, self._clock, self.spec.name, NAMESPACE)

    async def _listen(self) -> None:
        cursor = common_cursor(self._agents, self._machine.boot_id)
        try:
            kernel_log = self._machine.open_kernel_log(cursor)
        except CannotRead as refusal:
            self._listener.blind(str(refusal))
        else:
            await self._listener.ingest_log(kernel_log)
        await asyncio.Event().wait()  # the kernel log cannot be read any more, but the run continues

    def _agent_of(self, slot: Slot) -> Agent:
        owned = frozenset(device.pci for device in slot.devices)
        return Agent(
            slot.name,
            self.cluster,
            self._clock,
            boot_id=self._machine.boot_id,
            policy=self._config.quarantine,
            judge=self._config.judge,
            metrics=self.metrics,
            owns=owned.__contains__,
            job=lambda: self.spec.name,
            inventory=slot.devices,
            trust_user_space=self._config.kernel_log.trust_user_space,
            repair=f"healthd repair {slot.name} --state {shlex.quote(str(self.spec.state))}",
        )
