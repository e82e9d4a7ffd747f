"""
A proxy on the way of one controller to the API server: it sees every request, and lets pass, holds or loses it.

So a controller can be killed exactly between a write and its answer, or right before a write.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.lab.control_plane import ControlPlane

READS = frozenset({"GET", "HEAD"})
_HOP = frozenset({"host", "connection", "keep-alive", "transfer-encoding", "content-length"})
_UNLIMITED = aiohttp.ClientTimeout(total=None)


class Moment(StrEnum):
    """When a write is seen."""

    COMING = "coming"
    """The API server does not know of it yet."""
    DONE = "done"
    """It has taken effect, and its answer is not sent yet."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a controller asks of the API server."""

    method: str
    path: str
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def is_write(self) -> bool:
        """It may change something."""
        return self.method not in READS

    @property
    def is_about_gangs(self) -> bool:
        """Neither the lease nor a Kubernetes Event: losing one of those is no matter."""
        return not {"leases", "events"} & set(self.path.split("/"))


Watcher = Callable[[Moment, Request], None]
"""Called for every write. May close the proxy: then what comes does not arrive, and what is done is not answered."""


class ApiProxy:
    """One way to the API server of *control_plane*."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._target = control_plane.url
        self._authority = control_plane.authority
        self._open = asyncio.Event()
        self._open.set()
        self.watch: Watcher = lambda moment, request: None
        self.delay = 0.0
        """Seconds by which each request is late."""
        self.is_throttled: Callable[[Request], bool] = lambda request: False
        """Which requests get 429 in the place of the API server's answer."""
        self.retry_after = "1"
        """What such an answer says."""
        self.throttled: list[tuple[float, Request]] = []
        """What got such an answer, and when by the clock of the event loop."""
        self.stands_for_lease = asyncio.Event()
        """The one behind the proxy is up: it watches the lease, or has taken it before its watch began."""
        self.refused: list[tuple[Request, int]] = []
        """Writes that the API server did not accept, and its status."""
        self.closed = False
        self.url = ""

    def close(self) -> None:
        """For ever: nothing passes any more, in neither direction."""
        self.closed = True

    def hold(self) -> None:
        """Nothing passes for now."""
        self._open.clear()

    def release(self) -> None:
        """What was held passes now."""
        self._open.set()

    @asynccontextmanager
    async def served(self, certificates: Path) -> AsyncIterator[None]:
        """Take connections, with the certificate of the API server itself."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
        trust = ssl.create_default_context(cafile=str(self._authority))
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False, timeout=_UNLIMITED) as session:

            async def handle(request: web.BaseRequest) -> web.StreamResponse:
                with suppress(ConnectionResetError, aiohttp.ClientError):  # one end has gone
                    return await self._pass(session, request)
                _abort(request)
                return web.Response()

            runner = web.ServerRunner(
                web.Server(handle, access_log=None), handler_cancellation=True, shutdown_timeout=0.1
            )
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"https://{host}:{port}"
            try:
                yield
            finally:
                self.release()
                await runner.cleanup()
                await _ended()

    async def _pass(self, session: aiohttp.ClientSession, incoming: web.BaseRequest) -> web.StreamResponse:
        raw = await incoming.read()
        request = Request(incoming.method, incoming.path, json.loads(raw) if raw else {})
        await asyncio.sleep(self.delay)
        await self._may_pass()
        if self.is_throttled(request):
            self.throttled.append((asyncio.get_running_loop().time(), request))
            return _too_many_requests(self.retry_after)
        self._notify(Moment.COMING, request)
        await self._may_pass()
        headers = {key: value for key, value in incoming.headers.items() if key.lower() not in _HOP}
        url = f"{self._target}{incoming.path_qs}"
        async with session.request(incoming.method, url, headers=headers, data=raw) as answer:
            if answer.ok:
                self._notify(Moment.DONE, request)
            elif request.is_write:
                self.refused.append((request, answer.status))
            await self._may_pass()
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            outgoing = web.StreamResponse(status=answer.status, headers=kept)
            await outgoing.prepare(incoming)
            if answer.ok and "leases" in incoming.path and (request.is_write or "watch" in incoming.query):
                self.stands_for_lease.set()
            async for chunk in answer.content.iter_any():
                await self._may_pass()
                await outgoing.write(chunk)
            await outgoing.write_eof()
            return outgoing

    async def _may_pass(self) -> None:
        await self._open.wait()
        self._check_open()

    def _notify(self, moment: Moment, request: Request) -> None:
        if request.is_write:
            self.watch(moment, request)
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise ConnectionResetError("the gate is closed")


def _too_many_requests(retry_after: str) -> web.Response:
    """As an API server says it, or what stands before it."""
    said = {"kind": "Status", "code": 429, "reason": "TooManyRequests", "message": "too many requests"}
    return web.json_response(said, status=429, headers={"Retry-After": retry_after})


def _abort(incoming: web.BaseRequest) -> None:
    if incoming.transport is not None:
        incoming.transport.abort()


async def _ended() -> None:
    """The server cancels its tasks, and does not wait for them."""
    left = [task for task in asyncio.all_tasks() if "RequestHandler" in repr(task.get_coro())]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
