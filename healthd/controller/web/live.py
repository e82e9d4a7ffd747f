"""
The loop of the page: while somebody looks, it refreshes the state after a change and publishes what is different.

Without a viewer it does nothing and keeps nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import structlog

from healthd.clock import Clock
from healthd.cluster.port import ClusterError
from healthd.cluster.waiting import first, within
from healthd.controller.web.channel import Channel, Viewer
from healthd.controller.web.fleet import Fleet, FleetSource
from healthd.core.api import IncidentRecord
from healthd.core.report.page.state import Scope
from healthd.telemetry.isolation import Isolation

log = structlog.get_logger()

GAP = timedelta(milliseconds=200)
"""Between two refreshes: changes that come close together are one."""
LEISURE = 20
"""The loop rests for so many times as long as a refresh took: it has a twentieth of a core, unless it rests for"""
LONGEST_REST = timedelta(milliseconds=400)
"""after a refresh that took long, such as the one each minute that makes all cells anew."""
EVERY = timedelta(seconds=5)
"""A refresh without a change: some of the page follows from the time alone."""
KEPT_FOR = timedelta(seconds=60)
"""How long the state is kept after the last viewer left."""
INCIDENTS_EVERY = timedelta(seconds=5)
"""Between two reads of the incidents, for all viewers together. Only where alert services are configured."""

ReadIncidents = Callable[[], Coroutine[Any, Any, Sequence[IncidentRecord]]]


class Live:
    """The state of the page for all viewers. *read_incidents* may be None: there are none."""

    def __init__(self, source: FleetSource, clock: Clock, read_incidents: ReadIncidents | None = None) -> None:
        self._source = source
        self._clock = clock
        self._read_incidents = read_incidents
        self._fleet: Fleet | None = None
        self._refreshing = asyncio.Lock()
        self._channels: dict[Scope, Channel] = {}
        self._isolation = Isolation()
        self._wake = asyncio.Event()
        self._last_viewer = clock.now()

    @property
    def viewers(self) -> int:
        """How many look now."""
        return sum(len(channel.viewers) for channel in self._channels.values())

    def changed(self) -> None:
        """Something may have changed in the cluster state."""
        if self._fleet is not None:
            self._wake.set()

    async def fleet(self) -> Fleet:
        """The state as of now, also where there was no viewer before."""
        async with self._refreshing:
            self._last_viewer = self._clock.now()
            if self._fleet is None:
                fleet = Fleet(self._source)
                await fleet.refresh(self._last_viewer)
                self._fleet = fleet
                self._wake.set()
            return self._fleet

    @asynccontextmanager
    async def viewing(self, scope: Scope) -> AsyncIterator[Viewer]:
        """A viewer with *scope*, while the block runs."""
        fleet = await self.fleet()
        channel = self._channels.get(scope)
        if channel is None:
            channel = self._channels[scope] = Channel(scope)
            channel.publish(fleet.state, fleet.around, self._clock.now())
        viewer = channel.join()
        try:
            yield viewer
        finally:
            channel.viewers.discard(viewer)
            self._last_viewer = self._clock.now()

    async def run(self) -> None:
        """Publish changes until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._publish_changes(), name="page")
                if self._read_incidents is not None:
                    group.create_task(self._follow_incidents(self._read_incidents), name="page incidents")
        finally:
            self._forget()

    async def _publish_changes(self) -> None:
        while True:
            await self._wait()
            took = await self._refresh()
            await self._clock.sleep(max(GAP, min(LONGEST_REST, LEISURE * took)))

    async def _follow_incidents(self, read: ReadIncidents) -> None:
        while True:
            if (fleet := self._fleet) is not None:
                try:
                    records = await within(self._clock, INCIDENTS_EVERY, read())
                except (ClusterError, TimeoutError) as error:
                    log.info("page.incidents_not_read", error=str(error))
                else:
                    fleet.incidents = [each for each in records if each.spec.resolved is None]
                    self._wake.set()
            await self._clock.sleep(INCIDENTS_EVERY)

    async def _wait(self) -> None:
        await first(self._wake.wait(), self._clock.sleep(EVERY))
        self._wake.clear()

    async def _refresh(self) -> timedelta:
        """Returns how long it took."""
        now = self._clock.now()
        self._channels = {scope: channel for scope, channel in self._channels.items() if channel.viewers}
        if self._fleet is None:
            return timedelta(0)
        if not self._channels and now - self._last_viewer > KEPT_FOR:
            self._forget()
            return timedelta(0)
        with self._isolation.of("page", "the live page"):  # an error of the page must not end the controller
            await self._publish(self._fleet, now)
        return self._clock.now() - now

    async def _publish(self, fleet: Fleet, now: datetime) -> None:
        async with self._refreshing:
            await fleet.refresh(now)
        for channel in self._channels.values():
            channel.publish(fleet.state, fleet.around, now)

    def _forget(self) -> None:
        if self._fleet is not None:
            self._fleet.close()
        self._fleet = None
