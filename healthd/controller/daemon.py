"""
The controller of a Kubernetes cluster, put together: what a replica runs until it has to stop.

Every replica watches, so a standby knows all that the leader knows. Only the leader acts. A Lease decides which replica
leads. For a moment two replicas may both act as leader; this does no harm, because every write has a precondition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from healthd.alerts.sink import Sink
from healthd.clock import Clock
from healthd.cluster.leader import Candidacy, Deposed, lead
from healthd.cluster.port import AccessReader, Cluster
from healthd.controller.alerts.heartbeat import Heartbeat, HeartbeatSink
from healthd.controller.alerts.incidents import Alerts
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import Informers
from healthd.controller.checkpoints.precheck import PrecheckDependencies, Prechecks
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.fleet.fabric import Rails
from healthd.controller.fleet.hardware_histories import HardwareHistories
from healthd.controller.fleet.peers import Peers
from healthd.controller.fleet.stragglers import Stragglers
from healthd.controller.ports import Checkpoints, Looker
from healthd.controller.reconciler import Reconciler
from healthd.controller.remediation.loop import Remediations
from healthd.controller.remediation.requests import Requests
from healthd.controller.remediation.spare_checks import SpareChecks
from healthd.controller.workqueue import WorkQueue, in_parallel
from healthd.core.backoff import Jitter
from healthd.core.config import Config
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.completed import completed
from healthd.telemetry.events import Announcer
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.serving import serving

if TYPE_CHECKING:
    from healthd.controller.web.page import WebPage

log = structlog.get_logger()

LEASE = "healthd-controller"
EXIT_GRACE = 0.5
"""Seconds in which a replica that has to stop may still send its last Events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerDependencies:
    """What one replica of the controller gets from outside."""

    identity: str
    """The replica's own name."""
    namespace: str
    """The namespace of the Lease that the replicas compete for."""
    cluster: Cluster
    access: AccessReader | None = None
    """What says which rights the controller has. None: it tries."""
    clock: Clock
    adapters: Mapping[str, GangAdapter[Any]]
    checkpoints: Checkpoints
    looker: Looker | None = None
    """Checks the checkpoints of running gangs. None: they are not checked."""
    jitter: Jitter
    sinks: Sequence[Sink] = ()
    """The alert services. The daemon closes them at its end."""
    heartbeat: HeartbeatSink | None = None
    """Called while the leader's reconcile loop turns. None: nothing is. The daemon closes it at its end."""
    requests: Requests | None = None
    """The hands of the site that repair nodes. None: it has chosen none, and nothing is done to any node."""


class ControllerDaemon:
    """One replica of the controller."""

    def __init__(self, config: Config, dependencies: ControllerDependencies) -> None:
        cluster, clock, adapters = dependencies.cluster, dependencies.clock, dependencies.adapters
        identity = dependencies.identity
        self.metrics = Metrics()
        isolation = Isolation(self.metrics)
        self.cluster_state = ClusterState(adapters, isolation)
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._adapters = adapters
        self._checkpoints = dependencies.checkpoints
        self._looker = dependencies.looker
        self._candidacy = Candidacy.lasting(
            config.leader.lease, identity=identity, name=LEASE, namespace=dependencies.namespace
        )
        self._jitter = dependencies.jitter
        self._sinks = dependencies.sinks
        self._heartbeat = dependencies.heartbeat
        self._requests = dependencies.requests
        self._namespace = dependencies.namespace
        self._wake = asyncio.Event()
        self._wake_alerts = asyncio.Event()
        self._wake_remediations = asyncio.Event()
        self._wake_spare_checks = asyncio.Event()
        self._stop = asyncio.Event()
        self._page: WebPage | None = None
        self._announcer = Announcer(
            cluster, clock, component="healthd-controller", instance=identity, metrics=self.metrics
        )
        self._informers = Informers(
            cluster,
            clock,
            self.cluster_state,
            adapters,
            self._changed,
            isolation,
            self.metrics,
            dependencies.access,
        )

    def stop(self) -> None:
        """Stop soon, and let a standby take over. May be called from a signal handler of the event loop."""
        self._stop.set()

    def _changed(self) -> None:
        self._wake.set()
        self._wake_alerts.set()
        self._wake_remediations.set()
        self._wake_spare_checks.set()
        if self._page is not None:
            self._page.changed()

    async def run(self) -> None:
        """Run until `stop`. Raises Unusable, AddressError."""
        ready_checks = {"watch": self._informers.trouble}
        async with (
            serving(self._config.http, self.metrics, ready_checks),
            self._showing(),
            asyncio.TaskGroup() as group,
        ):
            feeding = group.create_task(self._informers.run(), name="informers")
            announcing = group.create_task(self._announcer.run(), name="events")
            leading = group.create_task(self._lead(), name="lead")
            await self._stop.wait()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)  # it releases the Lease
            announcing.cancel()
            feeding.cancel()
        await self._announcer.flush(EXIT_GRACE)
        for sink in self._sinks:
            await sink.close()
        if self._heartbeat is not None:
            await self._heartbeat.close()

    @asynccontextmanager
    async def _showing(self) -> AsyncIterator[None]:
        """Serve the live page while in the block, where it is configured. Raises AddressError."""
        if not self._config.web.address:
            yield
            return
        # Imported here: 9 MB of memory, only where the page is served.
        from healthd.controller.web.access import access_of
        from healthd.controller.web.fleet import FleetSource
        from healthd.controller.web.page import WebPage

        source = FleetSource(
            name=self._config.alerts.cluster or "cluster",
            cluster_state=self.cluster_state,
            config=self._config,
            trouble=self._informers.trouble,
            has_alerts=bool(self._config.alerts.sinks),
            complete=partial(completed, self._adapters, self._informers),
        )
        self._page = WebPage(source, self._clock, self._cluster, self._namespace)
        access = access_of(self._config.web, self._cluster, self._clock)
        async with self._page.serving(self._config.web.address, access):
            yield

    async def _lead(self) -> None:
        """Become the leader again and again. Only a replica with synced informers stands for election."""
        while True:
            await self._informers.until_synced()
            try:
                await lead(self._cluster, self._clock, self._candidacy, self._work)
            except Deposed as why:
                log.warning("leader.deposed", why=str(why))

    async def _work(self) -> None:
        """Do the leader's work. It starts anew each time this replica leads: it may have been away for long."""
        stragglers = self._stragglers()
        dependencies = ReconcilerDependencies(
            cluster=self._cluster,
            clock=self._clock,
            adapters=self._adapters,
            checkpoints=self._checkpoints,
            metrics=self.metrics,
            namespace=self._namespace,
            informer=self._informers,
            slow_ranks=stragglers.slow_now,
            together=in_parallel(),
            jitter=self._jitter,
            announce=self._announcer,
        )
        controller = Reconciler(dependencies, self._config, cluster_state=self.cluster_state)
        queue = WorkQueue(controller, self._clock, self._wake, self._informers.trouble)
        self.metrics.leading.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                if self._looker is not None:
                    group.create_task(self._prechecks(self._looker).run(), name="prechecks")
                if self._sinks:
                    group.create_task(self._alerts(stragglers).run(), name="alerts")
                group.create_task(self._rails().run(), name="rails")
                group.create_task(self._peers().run(), name="peers")
                group.create_task(stragglers.run(), name="stragglers")
                if self._heartbeat is not None:
                    group.create_task(self._beats(self._heartbeat, queue).run(), name="heartbeat")
                group.create_task(self._histories().run(), name="histories")
                if self._requests is not None:
                    group.create_task(self._remediations(self._requests).run(), name="remediations")
                    if self._config.remediation.check_spares_every:
                        group.create_task(self._spare_checks(self._requests).run(), name="spare-checks")
                group.create_task(queue.run(), name="tending")
        finally:
            self.metrics.forget_the_world()

    def _beats(self, service: HeartbeatSink, queue: WorkQueue) -> Heartbeat:
        return Heartbeat(
            service,
            self._clock,
            interval=self._config.heartbeat.interval,
            rounds=lambda: queue.rounds,
            metrics=self.metrics,
        )

    def _rails(self) -> Rails:
        return Rails(self._clock, self.cluster_state, self.metrics, self._announcer, self._informers.trouble)

    def _peers(self) -> Peers:
        return Peers(
            self._cluster, self._clock, self.cluster_state, self.metrics, self._announcer, self._informers.trouble
        )

    def _stragglers(self) -> Stragglers:
        return Stragglers(
            self._cluster,
            self._clock,
            self.cluster_state,
            self._adapters,
            self._config.hang,
            self.metrics,
            self._announcer,
            self._informers.trouble,
        )

    def _histories(self) -> HardwareHistories:
        return HardwareHistories(
            self._cluster,
            self._clock,
            self.cluster_state,
            self.metrics,
            namespace=self._namespace,
            trouble=self._informers.trouble,
        )

    def _remediations(self, requests: Requests) -> Remediations:
        return Remediations(
            self._cluster,
            self._clock,
            self.cluster_state,
            self._config,
            requests,
            namespace=self._namespace,
            metrics=self.metrics,
            announce=self._announcer,
            trouble=self._informers.trouble,
            wake=self._wake_remediations,
            together=in_parallel(),
        )

    def _spare_checks(self, requests: Requests) -> SpareChecks:
        return SpareChecks(
            self._cluster,
            self._clock,
            self.cluster_state,
            self._config,
            requests,
            namespace=self._namespace,
            metrics=self.metrics,
            announce=self._announcer,
            trouble=self._informers.trouble,
            wake=self._wake_spare_checks,
        )

    def _alerts(self, stragglers: Stragglers) -> Alerts:
        return Alerts(
            self._cluster,
            self._clock,
            self.cluster_state,
            self._sinks,
            self._config.alerts,
            self._config.quarantine,
            namespace=self._namespace,
            metrics=self.metrics,
            wake=self._wake_alerts,
            announce=self._announcer,
            trouble=self._informers.trouble,
            jitter=self._jitter,
            hang=self._config.hang,
            stragglers=stragglers.present,
        )

    def _prechecks(self, looker: Looker) -> Prechecks:
        return Prechecks(
            self._config.precheck,
            PrecheckDependencies(
                cluster=self._cluster,
                clock=self._clock,
                cluster_state=self.cluster_state,
                adapters=self._adapters,
                looker=looker,
                metrics=self.metrics,
                announce=self._announcer,
            ),
        )
