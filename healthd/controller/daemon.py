"""
The controller of a Kubernetes cluster, put together: what a replica runs until it has to stop.

Every replica watches, so a standby knows all that the leader knows. Only the leader acts. A Lease decides which replica
leads. For a moment two replicas may both act as leader; this does no harm, because every write has a precondition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from healthd.alerts.sink import Sink
from healthd.clock import Clock
from healthd.cluster.leader import Candidacy, Deposed, lead
from healthd.cluster.port import Cluster
from healthd.controller.alerts import Alerts
from healthd.controller.checkpoints.precheck import PrecheckDependencies, Prechecks
from healthd.controller.cluster_state import ClusterState
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.fabric import Rails
from healthd.controller.informers import Informers
from healthd.controller.peers import Peers
from healthd.controller.ports import Checkpoints, Looker
from healthd.controller.reconciler import Reconciler
from healthd.controller.workqueue import WorkQueue, in_parallel
from healthd.core.backoff import Jitter
from healthd.core.config import Config
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import Announcer
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.serving import serving

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
    clock: Clock
    adapters: Mapping[str, GangAdapter[Any]]
    checkpoints: Checkpoints
    looker: Looker | None = None
    """Checks the checkpoints of running gangs. None: they are not checked."""
    jitter: Jitter
    sinks: Sequence[Sink] = ()
    """The alert services. The daemon closes them at its end."""


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
        self._namespace = dependencies.namespace
        self._wake = asyncio.Event()
        self._wake_alerts = asyncio.Event()
        self._stop = asyncio.Event()
        self._announcer = Announcer(
            cluster, clock, component="healthd-controller", instance=identity, metrics=self.metrics
        )
        self._informers = Informers(
            cluster, clock, self.cluster_state, adapters, self._changed, isolation, self.metrics
        )

    def stop(self) -> None:
        """Stop soon, and let a standby take over. May be called from a signal handler of the event loop."""
        self._stop.set()

    def _changed(self) -> None:
        self._wake.set()
        self._wake_alerts.set()

    async def run(self) -> None:
        """Run until `stop`. Raises Unusable, AddressError."""
        ready_checks = {"watch": self._informers.trouble}
        async with serving(self._config.http, self.metrics, ready_checks), asyncio.TaskGroup() as group:
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
        dependencies = ReconcilerDependencies(
            cluster=self._cluster,
            clock=self._clock,
            adapters=self._adapters,
            checkpoints=self._checkpoints,
            metrics=self.metrics,
            informer=self._informers,
            together=in_parallel(),
            jitter=self._jitter,
            announce=self._announcer,
        )
        controller = Reconciler(dependencies, self._config, cluster_state=self.cluster_state)
        self.metrics.leading.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                if self._looker is not None:
                    group.create_task(self._prechecks(self._looker).run(), name="prechecks")
                if self._sinks:
                    group.create_task(self._alerts().run(), name="alerts")
                group.create_task(self._rails().run(), name="rails")
                group.create_task(self._peers().run(), name="peers")
                group.create_task(
                    WorkQueue(controller, self._clock, self._wake, self._informers.trouble).run(), name="tending"
                )
        finally:
            self.metrics.forget_the_world()

    def _rails(self) -> Rails:
        return Rails(self._clock, self.cluster_state, self.metrics, self._announcer, self._informers.trouble)

    def _peers(self) -> Peers:
        return Peers(
            self._cluster, self._clock, self.cluster_state, self.metrics, self._announcer, self._informers.trouble
        )

    def _alerts(self) -> Alerts:
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
