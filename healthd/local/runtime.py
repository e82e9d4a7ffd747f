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
from functools import partial
from pathlib import Path

import structlog

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.agent.listen import Listener, common_cursor
from healthd.alerts.sink import Sink
from healthd.clock import Clock
from healthd.cluster.loop import cycle_on_change
from healthd.cluster.port import Cluster
from healthd.controller.checkpoints.precheck import PrecheckDependencies, Prechecks
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.reconciler import Reconciler
from healthd.core.api import (
    ANNOTATION_STOPPED_BY,
    Job,
    Node,
    NodeHealth,
    Pod,
    Recovery,
    Slim,
)
from healthd.core.api.model import KernelRecord
from healthd.core.config import Config
from healthd.gangs import ADAPTERS
from healthd.local.attention import Attention
from healthd.local.checkpoints.folder import CheckpointFolder, WatchedCheckpoints
from healthd.local.gang import (
    NAMESPACE,
    RefuseStart,
    RunCompleted,
    RunSpec,
)
from healthd.local.hang.evidence import HangLocator, dumps_in
from healthd.local.hang.gpus import SlotGpus
from healthd.local.hang.launched import LaunchedRanks
from healthd.local.hang.nccl_ranks import port_in
from healthd.local.hang.stragglers import StragglerWatch
from healthd.local.hang.watch import HangWatch, RankActivity
from healthd.local.jobs.controller import JobController
from healthd.local.machine.machine import Machine
from healthd.local.machine.slots import Slot, register
from healthd.local.machine.unassigned import UnassignedFaults
from healthd.local.machine.witnesses import LocalWitnesses
from healthd.local.processes.disk import log_unwritable
from healthd.local.processes.runner import ProcessRunner
from healthd.local.reports.alerts import RunAlerts
from healthd.local.reports.notify import Notifier
from healthd.local.reports.page import RunPage
from healthd.local.reports.restarts import spoken
from healthd.local.reports.run_log import RunLog
from healthd.local.run_objects import RunObjects, StopRequest
from healthd.local.run_start import RunStart
from healthd.probes.errors import CannotRead
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.serving import serving

log = structlog.get_logger(__name__)

WATCHED: Sequence[type[Slim]] = [Job, Pod, Node, NodeHealth, Recovery]


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
        sinks: Sequence[Sink] = (),
        announce_page: Callable[[str], None] | None = None,
    ) -> None:
        """
        *runs* is the folder where other runs keep their state: a checkpoint may be from one of them. *notify* is the
        list of notification targets, *sinks* are the alert services of `alerts.sinks`. *announce_page* gets the address
        of the live page, which is logged otherwise.
        """
        self.spec = spec
        self.cluster = cluster
        self.metrics = Metrics()
        self._config = config
        self._machine = machine
        self._clock = clock
        self._folder = CheckpointFolder(spec.checkpoint.absolute(), spec.checkpoint_format)
        self._checkpoints = WatchedCheckpoints(self._folder)
        self._notifier = Notifier(notify, spec.state / "logs" / "notify.log", machine.environ)
        self._log = RunLog(spec, cluster, clock, self._checkpoints, runs, self._notifier.notify)
        self._stop = StopRequest()
        self._objects = RunObjects(spec.name, cluster, clock, self._stop)
        self._start = self._make_start()
        self._agents_wake = asyncio.Event()
        self._agents = [self._make_agent(slot) for slot in machine.slots]
        self._runner = ProcessRunner(
            cluster,
            clock,
            log_dir=spec.state / "logs",
            environ=machine.environ,
            terminal=machine.terminal,
            saves_in=spec.checkpoint.absolute(),
        )
        self._listener = Listener(
            [agent.state for agent in self._agents],
            clock,
            self.metrics,
            self._agents_wake.set,
            self._ingest_records,
        )
        self._unassigned = self._make_unassigned()
        self._witnesses = LocalWitnesses(self._listener, self._agents)
        self._jobs = JobController(cluster, new_suffix=machine.new_suffix, free_port=machine.free_port)
        self._controller_wakes = asyncio.Event()
        self._launched = LaunchedRanks(self._runner.running)
        self._hangs = self._make_hang_watch()
        self._attention = Attention(self._clock)
        self._controller = self._make_controller()
        self._prechecks = self._make_prechecks()
        self._alerts = RunAlerts(spec.name, spec.state, cluster, clock, self._controller, config, sinks, self.metrics)
        self._page = RunPage(spec.name, config, cluster, clock, self._controller)
        self._announce_page = announce_page or (lambda url: log.info("run.page", url=url))

    def stop(self, by: str = "") -> None:
        """
        Stop the run for its user: the ranks get their grace period, and a later run of the same name continues. *by* is
        for the log.

        A second call ends the grace period.
        """
        self._stop.make(by)

    async def run(self) -> int:
        """
        Run until the gang ends or is stopped. Returns its exit code. Raises RefusedToStart, ClusterError, OSError.
        """
        step = await self._start.plan()
        if isinstance(step, RefuseStart):
            raise RefusedToStart(step.why)
        if isinstance(step, RunCompleted):
            await self._log.done()
            async with self._alerts.sending():  # what an earlier start could not send
                return 0
        now = self._clock.now()
        await register(self.cluster, self._machine.slots, boot_id=self._machine.boot_id, now=now)
        for agent in self._agents:
            await agent.load(now)
        self.metrics.quarantine_budget.set(self._config.quarantine.budget)
        ready_checks = {"kernel_log": self._listener.trouble}
        async with self._notifier.sending(), self._alerts.sending():
            await self._log.skip_the_past()
            async with (
                serving(self._config.http, self.metrics, ready_checks),
                self._page.serving(self._announce_page),
                self._working(),
            ):
                await self._start.begin(step)
                self._log.launch(self._machine.environ)
                await log_unwritable(self.spec.checkpoint.absolute())
                code = await self._until_over()
            if code is not None:
                await self._log.ended(code)
            elif not self._stop.is_repeated:
                await self._log.stopped()
        return code or 0

    async def _until_over(self) -> int | None:
        """Wait for the end. Returns the exit code, None when the user stopped the run."""
        code: int | None = None

        async def is_over() -> bool:
            nonlocal code
            code = await self._objects.exit_code()
            await self._log.poll()
            await self._log.who_left()
            return code is not None or self._stop.is_made

        await self._objects.until(is_over)
        if code is None:
            await self._suspend()
        return code

    async def _suspend(self) -> None:
        """
        Suspend the Job without the annotation of a recovery. So no controller starts it again: it stays stopped.
        """
        log.info("run.stops", name=self.spec.name, by=self._stop.by, grace=spoken(self.spec.grace))
        patch = {"metadata": {"annotations": {ANNOTATION_STOPPED_BY: None}}, "spec": {"suspend": True}}
        await self.cluster.patch(Job, self.spec.name, patch, namespace=NAMESPACE)
        await self._objects.until_quiet_or_urgent()
        if self._stop.is_repeated:
            log.warning("run.hurries", name=self.spec.name, note="asked twice: what is left of the ranks is killed")
            await self._runner.shutdown(timedelta(0))

    @contextlib.asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        """Run all loops until the block ends. Then stop every process of a rank, and wait until it is gone."""
        try:
            async with asyncio.TaskGroup() as group:
                loops = [
                    group.create_task(self._runner.run(), name="runner"),
                    group.create_task(self._loop([Job, Pod, Node], self._jobs.cycle), name="jobs"),
                    group.create_task(
                        self._loop(WATCHED, self._reconcile_all, self._controller_wakes), name="controller"
                    ),
                    group.create_task(self._controller.reads.run(lambda _: self._controller_wakes.set()), name="reads"),
                    group.create_task(self._loop([Node], self._witnesses.cycle, self._agents_wake), name="agents"),
                    group.create_task(self._listen(), name="kernel log"),
                    group.create_task(self._prechecks.run(), name="prechecks"),
                    group.create_task(self._watch_folder(), name="checkpoint folder"),
                    group.create_task(self._watch_ranks(), name="hangs"),
                    group.create_task(self._attention.run(), name="attention"),
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

    async def _reconcile_all(self, now: datetime) -> timedelta:
        try:
            return await self._controller.reconcile_all(now)
        finally:
            self._alerts.changed()
            self._page.changed()

    async def _watch_ranks(self) -> None:
        """Nothing of them is read where hangs are ignored."""
        if self._hangs.is_on:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._loop([], self._launched.cycle), name="launched ranks")
                group.create_task(self._hangs.run(), name="samples")

    async def _watch_folder(self) -> None:
        await self._folder.run(self.cluster, self._clock, self.spec.name, NAMESPACE)

    async def _listen(self) -> None:
        cursor = common_cursor([agent.state for agent in self._agents], self._machine.boot_id)
        try:
            kernel_log = self._machine.open_kernel_log(cursor)
        except CannotRead as refusal:
            self._listener.blind(str(refusal))
        else:
            await self._listener.ingest_log(kernel_log)
        await asyncio.Event().wait()  # the kernel log cannot be read any more, but the run continues

    def _ingest_records(self, records: Sequence[KernelRecord]) -> None:
        self._runner.ingest_records(records)
        if self._unassigned is not None:
            self._unassigned.ingest_records(records)

    def _make_unassigned(self) -> UnassignedFaults | None:
        """None where the GPUs of the slots are known: then the agents judge what is theirs."""
        if any(slot.devices for slot in self._machine.slots):
            return None
        trusts = self._config.kernel_log.trust_user_space
        return UnassignedFaults(self._config.judge, self._clock.now(), trust_user_space=trusts)

    def _make_agent(self, slot: Slot) -> Agent:
        owned = frozenset(device.pci for device in slot.devices)
        facts = NodeFacts(
            name=slot.name,
            boot_id=self._machine.boot_id,
            owns=owned.__contains__,
            job=lambda: self.spec.name,
            trust_user_space=self._config.kernel_log.trust_user_space,
        )
        return Agent(
            AgentDependencies(
                node=facts,
                cluster=self.cluster,
                clock=self._clock,
                metrics=self.metrics,
                quarantine=self._config.quarantine,
                judge=self._config.judge,
                inventory=slot.devices,
                repair=f"healthd repair {slot.name} --state {shlex.quote(str(self.spec.state))}",
            )
        )

    def _make_start(self) -> RunStart:
        return RunStart(
            spec=self.spec,
            cluster=self.cluster,
            clock=self._clock,
            objects=self._objects,
            stop=self._stop,
            checkpoints=self._checkpoints,
            folder=self._folder,
            run_log=self._log,
            start_fresh=self._config.recovery.start_fresh,
        )

    def _make_hang_watch(self) -> HangWatch:
        policy = self._config.hang
        dumps = dumps_in(self._machine.environ, self.spec.working_dir)
        port = port_in(self._machine.environ.get("NCCL_RAS_ADDR", ""))

        return HangWatch(
            policy,
            self._clock,
            running=self._launched.running,
            saved=lambda: self._folder.changed_ns,
            report=partial(self._log.silent, policy=policy),
            locate=HangLocator(partial(self._log.located, policy=policy), dumps=dumps, ras_port=port).locate,
            wake=self._controller_wakes.set,
            stragglers=StragglerWatch(policy, self._log.straggler),
            gpus=SlotGpus(self._machine.slots),
        )

    def _make_controller(self) -> Reconciler:
        dependencies = ReconcilerDependencies(
            cluster=self.cluster,
            clock=self._clock,
            adapters=ADAPTERS,
            checkpoints=self._checkpoints,
            metrics=self.metrics,
            has_rhythms=False,
            activity=RankActivity(self._runner, self._hangs, self._config.hang, self._attention),
            witnesses=self._witnesses,
        )
        return Reconciler(dependencies, self._config)

    def _make_prechecks(self) -> Prechecks:
        return Prechecks(
            self._config.precheck,
            PrecheckDependencies(
                cluster=self.cluster,
                clock=self._clock,
                cluster_state=self._controller.cluster_state,
                adapters=ADAPTERS,
                looker=self._checkpoints,
                metrics=self.metrics,
            ),
        )
