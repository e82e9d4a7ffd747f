"""
The agent of a Kubernetes node, put together: what a pod of the DaemonSet runs until it is stopped.

It watches its own Node and nothing else, so an idle node costs the API server one request every few minutes. A failing
source does not stop the agent: it is logged, shown in `/readyz`, and tried again. Only a bug or a configuration that
can never work ends the process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies, none_to_pause
from healthd.agent.judge import NodeFacts
from healthd.agent.listen import Listener, common_cursor
from healthd.agent.node_view import WatchedNode
from healthd.agent.probing import Poll, Probe, Prober
from healthd.agent.rhythms import (
    AskProcesses,
    AskRankTimes,
    ReadGpus,
    RhythmSampler,
    SettledRhythms,
    Usages,
    ask_no_times,
    ask_none,
)
from healthd.clock import Clock
from healthd.cluster.loop import cycle_when_woken
from healthd.cluster.port import Cluster, ClusterError, Unusable
from healthd.core.api import Device, KernelLogCursor, Nic, PodRhythm
from healthd.core.api.health import GPUS
from healthd.core.backoff import Backoff, Jitter
from healthd.core.config import Config
from healthd.core.config.gangs import StragglerMode
from healthd.core.diagnosis.blindness import expected_by
from healthd.core.diagnosis.klog import parse_message
from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.signals.tables import rules_of
from healthd.core.diagnosis.xid import judge
from healthd.core.hang.gpus import GpuUses
from healthd.core.node.pod_liveness import PodTasks
from healthd.core.node.reporting import quiet_pods
from healthd.probes.errors import CannotRead
from healthd.probes.klog.log import KernelLog
from healthd.probes.nvml.inventory import NvmlInventory
from healthd.telemetry.events import Announcer
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.serving import serving
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

LIST_AGAIN = timedelta(minutes=1)
LIST_AT_LEAST = timedelta(hours=1)
"""How soon devices are listed again that a source shows and the report lacks; doubles up to this while they stay so."""
READ_PODS_EVERY = timedelta(seconds=2)
FIRST_RETRY = timedelta(seconds=1)
LONGEST_RETRY = timedelta(seconds=30)
REPORT_WITHIN = timedelta(seconds=5)
"""After a quarantine. Its reason is on the node at once. The full report waits until other nodes are out too."""
EXIT_GRACE = 0.5
"""Seconds that a stopping agent has to write its state."""


def warm_up() -> None:
    """Judge one message: catalogues are loaded at their first use, and that should not be the first fault."""
    message = parse_message("NVRM: Xid (PCI:0000:00:00): 79, pid=0, warming up")
    assert message is not None
    judge(message)


def no_probes(gpus: Sequence[Device], nics: Sequence[Nic]) -> Sequence[Probe]:  # noqa: ARG001 - what they are made by
    """No probes: the kernel log is enough."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSources:
    """What is read on this node. Passed in, so that a test can replace it. All of these calls block."""

    boot_id: str
    open_kernel_log: Callable[[KernelLogCursor], KernelLog]
    """Reads the kernel log after a cursor. Raises CannotRead."""
    read_inventory: Callable[[], NvmlInventory]
    read_pods: Callable[[], Sequence[PodTasks]]
    """Raises CannotRead."""
    pod_usages: Usages | None = None
    """What the pods use. None: their rhythm is not learned."""
    ask_processes: AskProcesses = ask_none
    """What the processes of quiet pods do, where the component `hang-evidence` says it."""
    ask_rank_times: AskRankTimes = ask_no_times
    """How long the ranks of pods ran, by the same."""
    read_gpus: ReadGpus = GpuUses
    """How much the GPUs are used."""
    read_nics: Callable[[], Sequence[Nic]] = tuple
    """Raises OSError."""
    make_probes: Callable[[Sequence[Device], Sequence[Nic]], Sequence[Probe]] = no_probes
    """All other probes, made from the GPUs and ports that were there earlier in this boot."""
    pause_gpus: Callable[[bool], None] = none_to_pause
    """Called with True while no probe may have a GPU open."""


class AgentDaemon:
    """The agent of the node *name*."""

    def __init__(
        self, name: str, config: Config, sources: NodeSources, cluster: Cluster, clock: Clock, *, jitter: Jitter
    ) -> None:
        self.metrics = Metrics()
        self._config = config
        self._sources = sources
        self._clock = clock
        self._jitter = jitter
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._is_loaded = False
        self._pods_trouble = ""
        self._rhythms_trouble = ""
        self._rhythms = SettledRhythms(jitter)
        self._view = WatchedNode(cluster, clock, name, self._wake.set, jitter=jitter, metrics=self.metrics)
        self._announcer = Announcer(cluster, clock, component="healthd-agent", instance=name, metrics=self.metrics)
        self._agent = Agent(
            AgentDependencies(
                node=NodeFacts(name=name, boot_id=sources.boot_id, trust_user_space=config.kernel_log.trust_user_space),
                cluster=cluster,
                clock=clock,
                metrics=self.metrics,
                quarantine=config.quarantine,
                judge=config.judge,
                rules=rules_of(config.judge),
                expected=expected_by(config.probes),
                view=self._view,
                announce=self._announcer,
                jitter=jitter,
                report_within=REPORT_WITHIN,
                pause_gpus=sources.pause_gpus,
            )
        )
        self._state = self._agent.state
        self._listener = Listener([self._state], clock, self.metrics, self._wake.set)

    def stop(self) -> None:
        """Stop soon. May be called from a signal handler of the event loop."""
        self._stop.set()

    @property
    def ready_checks(self) -> dict[str, Callable[[], str | None]]:
        """The checks of `/readyz`: each returns why it fails, or None."""
        return {"state": self._not_loaded, "watch": self._view.trouble, "kernel_log": self._listener.trouble}

    async def run(self) -> None:
        """Run until `stop`. Raises Unusable, AddressError."""
        self.metrics.quarantine_budget.set(self._config.quarantine.budget)
        async with serving(self._config.http, self.metrics, self.ready_checks), asyncio.TaskGroup() as group:
            work = [
                group.create_task(self._view.follow(), name="watch"),
                group.create_task(self._guard(), name="guard"),
                group.create_task(self._announcer.run(), name="events"),
            ]
            await self._stop.wait()
            for task in work:
                task.cancel()
        await self._publish_at_exit()

    async def _guard(self) -> None:
        await self._load()
        warm_up()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen(), name="kernel log")
            group.create_task(self._keep_inventory(), name="inventory")
            group.create_task(self._sample_probes(), name="probes")
            await self._listener.decided()  # else every start would first report another verdict
            await cycle_when_woken(self._clock, self._agent.cycle, self._wake)

    async def _load(self) -> None:
        """Load the stored state before anything is judged. The kernel keeps its log meanwhile."""
        await self._view.seen()
        backoff = Backoff(FIRST_RETRY, LONGEST_RETRY, self._jitter)
        while not self._is_loaded:
            try:
                await self._agent.load(self._clock.now())
                self._is_loaded = True
            except Unusable:
                raise
            except ClusterError as error:
                log.warning("agent.waits", error=str(error), kind=type(error).__name__)
                await self._clock.sleep(backoff.next())

    async def _listen(self) -> None:
        """Read the kernel log. When it cannot be read or breaks, try again from where reading stopped."""
        backoff = Backoff(FIRST_RETRY, LONGEST_RETRY, self._jitter)
        while True:
            cursor = common_cursor([self._state], self._sources.boot_id)
            try:
                kernel_log = await in_thread(partial(self._sources.open_kernel_log, cursor), "open kernel log")
            except CannotRead as refusal:
                self._listener.blind(str(refusal))
            else:
                backoff.reset()
                await self._listener.ingest_log(kernel_log)
            await self._clock.sleep(backoff.next())

    async def _sample_probes(self) -> None:
        probes = self._sources.make_probes(*self._state.seen_this_boot)
        self._state.begin([probe.source for probe in probes], self._clock.now())
        await Prober(probes, self._clock, self._jitter, self.metrics, self._ingest_sample, also=self._polls()).run()

    def _polls(self) -> list[Poll[Any]]:
        pods = Poll(
            name="pods",
            every=lambda: READ_PODS_EVERY,
            read=lambda _: self._sources.read_pods(),
            ingest=self._ingest_pods,
        )
        sources = self._sources
        if sources.pod_usages is None:
            return [pods]
        with_work = self._config.hang.enabled and self._config.hang.stragglers is not StragglerMode.IGNORE
        sampler = RhythmSampler(
            sources.pod_usages,
            sources.ask_processes,
            self._jitter,
            ask_times=sources.ask_rank_times,
            read_gpus=sources.read_gpus,
            with_work=with_work,
        )
        rhythms = Poll(
            name="rhythms",
            every=lambda: sampler.every,
            read=lambda _: sampler.read(now := self._clock.now(), finely=self._state.is_asked_for_work(now)),
            ingest=self._ingest_rhythms,
        )
        return [pods, rhythms]

    def _ingest_sample(self, sample: Sample) -> None:
        if self._state.ingest_sample(self._state.expecting(sample), self._clock.now()):
            self._wake.set()

    async def _keep_inventory(self) -> None:
        """List the devices, and again where their driver is loaded while this agent runs, as by an operator."""
        await self._list_gpus(self._state.set_gpus)
        await self._list_nics(self._state.set_nics)
        backoff = Backoff(LIST_AGAIN, LIST_AT_LEAST, self._jitter)
        while True:
            await self._clock.sleep(backoff.next())
            lacks_gpus, lacks_nics = self._state.lacks_gpus, self._state.lacks_nics
            if lacks_gpus:
                await self._list_gpus(self._state.add_gpus)
            if lacks_nics:
                await self._list_nics(self._state.add_nics)
            if not (lacks_gpus or lacks_nics):
                backoff.reset()

    async def _list_gpus(self, ingest: Callable[[Sequence[Device]], None]) -> None:
        found = await in_thread(self._sources.read_inventory, "inventory")
        if found.reason:
            log.info("gpus.none", why=found.reason, so="findings name devices by their PCI address alone")
        for gpu in found.unreadable:
            log.warning("gpu.unreadable", why=gpu)
        if found.devices:  # an empty list does not mean that known GPUs are gone
            ingest(found.devices)
        self._wake.set()

    async def _list_nics(self, ingest: Callable[[Sequence[Nic]], None]) -> None:
        try:
            if nics := await in_thread(self._sources.read_nics, "ports"):
                ingest(nics)
        except OSError as error:
            log.warning("ports.unknown", why=str(error), so="the report lists no network ports")
        self._wake.set()

    def _ingest_pods(self, pods: Sequence[PodTasks] | None, error: BaseException | None, _: datetime) -> None:
        trouble = "" if error is None else str(error)
        if trouble and trouble != self._pods_trouble:
            log.warning("pods.unknown", why=trouble, so="the end of a pod is not proven by this agent")
        self._pods_trouble = trouble
        if error is not None and not isinstance(error, CannotRead):
            raise error
        if pods is not None and self._state.ingest_pods(pods, self._clock.now()):
            self._wake.set()

    def _ingest_rhythms(self, rhythms: Sequence[PodRhythm] | None, error: BaseException | None, _: datetime) -> None:
        trouble = "" if error is None else repr(error)
        if trouble and trouble != self._rhythms_trouble:
            log.error("rhythms.unknown", error=trouble, so="no pod of this node is seen to hang", exc_info=error)
        self._rhythms_trouble = trouble
        now = self._clock.now()
        known = self._rhythms.ingest(rhythms or (), now)
        pods = [rhythm for rhythm in known if rhythm.uid != GPUS and not rhythm.is_start]
        self.metrics.pods_sampled.set(len(pods))
        self.metrics.pods_silent.set(len(quiet_pods(pods)))
        if self._state.ingest_rhythms(known, now):
            self._wake.set()

    async def _publish_at_exit(self) -> None:
        if not self._is_loaded:
            return
        try:
            async with asyncio.timeout(EXIT_GRACE):
                await self._agent.report_all(self._clock.now())
        except (ClusterError, TimeoutError) as error:
            log.info("agent.ends", unsaid=str(error) or type(error).__name__)
        await self._announcer.flush(EXIT_GRACE)

    def _not_loaded(self) -> str | None:
        return None if self._is_loaded else "what is stored of this node could not be read yet"
