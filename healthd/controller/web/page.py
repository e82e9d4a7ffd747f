"""The live page put together: from a cluster state to a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from healthd.clock import Clock
from healthd.cluster.port import Reader
from healthd.controller.web.access import Access
from healthd.controller.web.fleet import FleetSource
from healthd.controller.web.live import Live
from healthd.controller.web.server import PageSettings, serving_page
from healthd.core.api import IncidentRecord
from healthd.telemetry.http import Server


class WebPage:
    """The page over *source*. The incidents are read from *namespace*, where alert services are configured."""

    def __init__(self, source: FleetSource, clock: Clock, cluster: Reader, namespace: str) -> None:
        self._clock = clock
        self._cluster = cluster
        self._namespace = namespace
        self._hosts = source.config.web.hosts
        self._live = Live(source, clock, self._incidents if source.has_alerts else None)

    def changed(self) -> None:
        """Something may have changed in the cluster state."""
        self._live.changed()

    @asynccontextmanager
    async def serving(self, address: str, access: Access) -> AsyncIterator[Server]:
        """Serve it on *address* while in the block. Raises AddressError."""
        settings = PageSettings(access=access, clock=self._clock, hosts=self._hosts)
        async with serving_page(address, self._live, settings) as server:
            yield server

    async def _incidents(self) -> Sequence[IncidentRecord]:
        return (await self._cluster.list(IncidentRecord, namespace=self._namespace)).items
