"""
The controller of a Kubernetes cluster, put together: what a replica runs until it is told to stop.

Every replica watches, so that a standby knows all that the leader knows, and only the leader acts. Who leads is decided
by a Lease; that two may believe it for a moment is no harm, as every write has a precondition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from healthd.clock import Clock
from healthd.cluster.leader import Candidacy, Deposed, lead
from healthd.cluster.port import Cluster
from healthd.controller.census import Census
from healthd.controller.controller import Controller
from healthd.controller.fabric import Rails
from healthd.controller.feed import Feed
from healthd.controller.ports import Checkpoints, Looker
from healthd.controller.precheck import Prechecks
from healthd.controller.tending import Tending, in_parallel
from healthd.core.config import Config
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.events import Announcer
from healthd.telemetry.isolation import Isolation
from healthd.telemetry.metrics import Metrics
from healthd.telemetry.serving import serving

log = structlog.get_logger()

LEASE = "healthd-controller"
LAST_WORDS = 0.5
"""Seconds in which a replica that was told to stop may still tell what happened."""


class ControllerDaemon:
    """
    One replica. *identity* is its own; *namespace* holds the lease; *luck* draws from 0 to 1. With a *looker* the
    checkpoints of gangs that run are looked at, too.
    """

    def __init__(
        self,
        config: Config,
        cluster: Cluster,
        clock: Clock,
        adapters: Mapping[str, GangAdapter[Any]],
        checkpoints: Checkpoints,
        *,
        identity: str,
        namespace: str,
        luck: Callable[[], float],
        looker: Looker | None = None,
    ) -> None:
        self.metrics = Metrics()
        isolation = Isolation(self.metrics)
        self.census = Census(adapters, isolation)
        self._config = config
        self._cluster = cluster
        self._clock = clock
        self._adapters = adapters
        self._checkpoints = checkpoints
        self._looker = looker
        self._candidacy = Candidacy.lasting(config.leader.lease, identity=identity, name=LEASE, namespace=namespace)
        self._luck = luck
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._announcer = Announcer(
            cluster, clock, component="healthd-controller", instance=identity, metrics=self.metrics
        )
        self._feed = Feed(cluster, clock, self.census, adapters, self._wake.set, isolation)

    def stop(self) -> None:
        """End soon, and let a standby take over. May be called from a signal handler of the event loop."""
        self._stop.set()

    async def run(self) -> None:
        """Until `stop`. Raises Unusable, AddressError."""
        ready_checks = {"watch": self._feed.trouble}
        async with serving(self._config.http, self.metrics, ready_checks), asyncio.TaskGroup() as group:
            feeding = group.create_task(self._feed.run(), name="feed")
            telling = group.create_task(self._announcer.run(), name="events")
            leading = group.create_task(self._lead(), name="lead")
            await self._stop.wait()
            leading.cancel()
            await asyncio.gather(leading, return_exceptions=True)  # it gives the lease back
            telling.cancel()
            feeding.cancel()
        await self._announcer.tell_the_rest(LAST_WORDS)

    async def _lead(self) -> None:
        """Become the leader again and again; only whoever can see the cluster stands for it."""
        while True:
            await self._feed.until_synced()
            try:
                await lead(self._cluster, self._clock, self._candidacy, self._work)
            except Deposed as why:
                log.warning("leader.deposed", why=str(why))

    async def _work(self) -> None:
        """What a leader does, anew for each time that it leads: it may have been away for long."""
        controller = Controller(
            self._cluster,
            self._clock,
            self._adapters,
            self._checkpoints,
            recovery=self._config.recovery,
            hang=self._config.hang,
            metrics=self.metrics,
            census=self.census,
            mirror=self._feed,
            look_every=self._config.recovery.look_every,
            together=in_parallel(),
            luck=self._luck,
            announce=self._announcer,
            foreign=self._config.foreign,
        )
        self.metrics.leading.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                if self._looker is not None:
                    group.create_task(self._prechecks(self._looker).run(), name="prechecks")
                group.create_task(self._rails().run(), name="rails")
                group.create_task(
                    Tending(controller, self._clock, self._wake, self._feed.trouble).run(), name="tending"
                )
        finally:
            self.metrics.forget_the_world()

    def _rails(self) -> Rails:
        return Rails(self._clock, self.census, self.metrics, self._announcer, self._feed.trouble)

    def _prechecks(self, looker: Looker) -> Prechecks:
        return Prechecks(
            self._cluster,
            self._clock,
            self.census,
            self._adapters,
            looker,
            self._config.precheck,
            self.metrics,
            self._announcer,
        )
