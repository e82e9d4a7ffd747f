"""An HTTP server on a real socket that answers as a test says, in order; the last answer is given ever again."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from aiohttp import web

from healthd.cluster.remote import Access, ClientLimits, RemoteCluster, connect
from tests.cluster.fakes import FixedConnection
from tests.fakes import START

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

LIMITS = ClientLimits(request=timedelta(seconds=5), stall_after=timedelta(seconds=5))


class Hasty:
    """A clock on which time passes only while somebody sleeps, and then at once."""

    def __init__(self) -> None:
        self._now = START
        self.slept: list[timedelta] = []

    def now(self) -> datetime:
        return self._now

    async def sleep(self, delay: timedelta) -> None:
        self.slept.append(delay)
        self._now += delay
        await asyncio.sleep(0)


@dataclass
class Asked:
    """What the server was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Scripted:
    """The server, and what it was asked so far."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)


def says(status: int, body: Any = b"", **headers: str) -> Answer:
    """An answer as a whole. *headers* with `_` for `-`."""
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=raw, headers={k.replace("_", "-"): v for k, v in headers.items()})

    return answer


def refuses(code: int, message: str, reason: str = "", **headers: str) -> Answer:
    """A refusal as an API server words it."""
    return says(code, {"kind": "Status", "code": code, "message": message, "reason": reason}, **headers)


def streams(*chunks: bytes, then: str = "end") -> Answer:
    """A stream; *then* it may `end`, be `cut` in the middle, or `hang` silently."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if then == "hang":
            await asyncio.Event().wait()
        if then == "cut" and request.transport:
            request.transport.abort()
        return response

    return answer


def line(event: str, obj: dict[str, Any]) -> bytes:
    """One event of a watch."""
    return msgspec.json.encode({"type": event, "object": obj}) + b"\n"


@asynccontextmanager
async def serving(*answers: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Scripted]:
    """A server that gives these answers."""
    left, scripted = list(answers), Scripted()

    async def handle(request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query), dict(request.headers), await request.read())
        scripted.asked.append(asked)
        return await (left.pop(0) if len(left) > 1 else left[0])(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    scripted.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield scripted
    finally:
        await runner.cleanup()


@asynccontextmanager
async def talking(
    *answers: Answer, limits: ClientLimits = LIMITS, clock: Hasty | None = None
) -> AsyncIterator[tuple[RemoteCluster, Scripted]]:
    """A cluster whose API server gives these answers. Waits between tries take no time."""
    async with serving(*answers) as server:
        connection = FixedConnection(Access(server.url, "a test", authorization="Bearer secret"))
        jitter = random.Random(1).random
        async with (
            connect(connection, clock=clock or Hasty(), jitter=jitter, limits=limits) as cluster,
            asyncio.timeout(10),  # ends a test that would wait for ever
        ):
            yield cluster, server
