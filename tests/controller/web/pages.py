"""A page over a fleet, served on this machine, and a client that reads its stream."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from healthd.clock import Clock, SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.web.access import Access, OpenAccess
from healthd.controller.web.fleet import FleetSource
from healthd.controller.web.page import WebPage
from tests.controller.web.fleets import CONFIG, FleetOf
from tests.fakes import counting_uids


class ServedPage:
    """A page that is served at `url`."""

    def __init__(self, fleet: FleetOf, url: str, page: WebPage) -> None:
        self.fleet = fleet
        self.url = url
        self._page = page

    def change(self, act: Callable[[], object]) -> None:
        """Change the fleet, as a watch does."""
        act()
        self._page.changed()


@asynccontextmanager
async def a_page(
    fleet: FleetOf, access: Access | None = None, *, port: int = 0, **source: Any
) -> AsyncIterator[ServedPage]:
    """The page over *fleet*; *port* 0: a free one."""
    clock: Clock = SystemClock()
    with EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids()) as cluster:
        given = {"name": "lab", "cluster_state": fleet.state, "config": CONFIG, **source}
        page = WebPage(FleetSource(**given), clock, cluster, "healthd-system")
        async with page.serving(f"127.0.0.1:{port}", access or OpenAccess()) as server:
            yield ServedPage(fleet, server.url, page)


def module(name: str) -> str:
    """JavaScript that imports a module of the open page, the one that the page runs."""
    return f"import(document.querySelector('script[src$=\"/app.js\"]').src.replace('app.js', '{name}.js'))"


class Stream:
    """The events of one viewer."""

    def __init__(self, answer: aiohttp.ClientResponse, *, packed: bool) -> None:
        self.answer = answer
        self.wire_bytes = 0
        self._unpack = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress if packed else bytes
        self._rest = b""

    async def next(self) -> tuple[str, dict[str, Any]]:
        """The next event."""
        async with asyncio.timeout(20):
            while b"\n\n" not in self._rest:
                chunk = await self.answer.content.readany()
                if not chunk:
                    raise EOFError
                self.wire_bytes += len(chunk)
                self._rest += self._unpack(chunk)
        event, _, self._rest = self._rest.partition(b"\n\n")
        first, second = event.decode().split("\n")
        return first.removeprefix("event: "), json.loads(second.removeprefix("data: "))


@asynccontextmanager
async def a_stream(url: str, headers: Mapping[str, str] | None = None, *, packed: bool = True) -> AsyncIterator[Stream]:
    """A viewer's stream."""
    encoding = {"Accept-Encoding": "gzip" if packed else "identity"}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.get(f"{url}/api/stream", headers={**encoding, **(headers or {})}) as answer,
    ):
        yield Stream(answer, packed=packed)
