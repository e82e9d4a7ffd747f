"""
The only module that creates HTTP servers, each with limits that no client can exceed; the linter refuses others.

A server answers GET requests for a fixed set of paths, read-only. One connection carries one request. It is closed
after the answer, or aborted at its deadline: so one deadline covers late headers, endless bodies and clients that do
not read. A stream (`StreamHandler`) has no such deadline: it bounds what it keeps and how long it waits by itself.
When there are too many connections, the address with the most connections loses its oldest one. So a flood
from one address takes no slot of another, and a client that sends its request at once is answered before it is aborted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self

import structlog
from aiohttp import hdrs, web

from healthd.telemetry.address import Address, AddressError, parse_address

log = structlog.get_logger(__name__)

PageHandler = Callable[[web.BaseRequest], web.Response]
"""Answers one request, quickly and without I/O: the event loop is blocked meanwhile."""
StreamHandler = Callable[[web.BaseRequest, Callable[[], None]], Awaitable[web.StreamResponse]]
"""
Answers one request, and may wait. Its second argument lifts the deadline of the connection: a handler calls it once it
has admitted the client, and drops a client that does not read.
"""

_CLOSE_SECONDS = 1.0
"""How long an answer in progress may take when the server closes."""
_RECEIVE_BYTES = 16384
"""The kernel's receive buffer of a connection, and so what is parsed at once: chunks of one byte take a hundred times
as much memory."""
_ACCEPTED_AT_ONCE, _WAITING = 8, 128
"""Connections. asyncio accepts up to the whole backlog in one turn of its loop, and the process does nothing else."""
_READ_ONLY = (hdrs.METH_GET, hdrs.METH_HEAD)


class ServerLimits(NamedTuple):
    """The limits of a server, for all clients together and for each client."""

    connections: int = 64
    seconds: float = 10.0
    """From the connection to the last byte of the answer. The default scrape timeout of Prometheus is the same."""
    line_bytes: int = 4096
    """For the request line, and for each header."""
    headers: int = 64
    """For one request. aiohttp keeps unfinished headers in memory: 64 connections hold 16 MB at most."""


LIMITS = ServerLimits()


class Server:
    """A server that listens; `address` has the real port. Close it, or use it as `async with`."""

    def __init__(self, runner: web.ServerRunner, address: Address) -> None:
        self._runner = runner
        self.address = address

    @property
    def url(self) -> str:
        """The URL of the server for a program on this machine."""
        return f"http://{self.address if self.address.host else Address('127.0.0.1', self.address.port)}"

    async def close(self) -> None:
        """Stop listening and close every connection. May be called twice."""
        await self._runner.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def serve(
    address: str,
    pages: Mapping[str, PageHandler],
    limits: ServerLimits = LIMITS,
    streams: Mapping[str, StreamHandler] | None = None,
) -> Server:
    """Listen on *address*, such as `127.0.0.1:9400`. Raises AddressError when this is not possible."""
    wanted = parse_address(address)
    listening = await _listen(wanted)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)  # each connection inherits it
    runner = web.ServerRunner(_BoundedServer(pages, limits, streams or {}), shutdown_timeout=_CLOSE_SECONDS)
    try:
        await runner.setup()
        await web.SockSite(runner, listening, backlog=_ACCEPTED_AT_ONCE).start()
        listening.listen(_WAITING)
    except BaseException:
        await runner.cleanup()
        listening.close()
        raise
    return Server(runner, wanted._replace(port=listening.getsockname()[1]))


class _BoundedServer(web.Server):
    """Applies the limits to every connection, in any state."""

    def __init__(
        self, pages: Mapping[str, PageHandler], limits: ServerLimits, streams: Mapping[str, StreamHandler]
    ) -> None:
        super().__init__(
            self._answer,
            request_factory=_request,
            access_log=None,
            logger=_SILENT,
            auto_decompress=False,
            lingering_time=0,
            max_line_size=limits.line_bytes,
            max_field_size=limits.line_bytes,
            max_headers=limits.headers,
        )
        self._pages = pages
        self._streams = streams
        self._limits = limits
        self._open: dict[web.RequestHandler, _Connection] = {}

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._open) >= self._limits.connections:
            self._cut_off_one()
        deadline = asyncio.get_running_loop().call_later(self._limits.seconds, transport.abort)
        self._open[handler] = _Connection(_address_of(transport), transport, deadline)

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if ended := self._open.pop(handler, None):
            ended.deadline.cancel()

    def _cut_off_one(self) -> None:
        (busiest, _), *_ = Counter(one.address for one in self._open.values()).most_common(1)
        oldest = next(handler for handler, one in self._open.items() if one.address == busiest)
        ended = self._open.pop(oldest)
        ended.deadline.cancel()
        ended.transport.abort()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        stream = self._streams.get(request.path)
        if stream is not None and request.method == hdrs.METH_GET:
            return await self._stream(request, stream)
        answer = self._page(request)
        answer.force_close()
        return answer

    async def _stream(self, request: web.BaseRequest, stream: StreamHandler) -> web.StreamResponse:
        connection = self._open.get(request.protocol)
        try:
            answer = await stream(request, connection.deadline.cancel if connection else _nothing)
        except ConnectionError:
            raise
        except Exception:
            log.exception("http.page_failed", path=request.path)
            answer = web.Response(status=500)
        if not answer.prepared:
            answer.force_close()
        return answer

    def _page(self, request: web.BaseRequest) -> web.Response:
        page = self._pages.get(request.path)
        if request.path in self._streams:
            return web.Response(status=405, headers={hdrs.ALLOW: hdrs.METH_GET})
        if page is None:
            return web.Response(status=404, text=f"healthd: {' '.join([*self._pages, *self._streams])}\n")
        if request.method not in _READ_ONLY:
            return web.Response(status=405, headers={hdrs.ALLOW: ", ".join(_READ_ONLY)})
        try:
            return page(request)
        except Exception:
            log.exception("http.page_failed", path=request.path)
            return web.Response(status=500)


def _request(message: Any, payload: Any, caller: web.RequestHandler, writer: Any, task: Any) -> web.BaseRequest:
    """The first request of a connection, also a malformed one. No more is read: no body, no further request."""
    if caller.transport is not None:  # else it is already closed
        caller.transport.pause_reading()
    return web.BaseRequest(message, payload, caller, writer, task, asyncio.get_running_loop())


def _nothing() -> None:
    """The connection is already closed, and has no deadline."""


class _Connection(NamedTuple):
    address: str
    transport: asyncio.Transport
    deadline: asyncio.TimerHandle


def _address_of(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return peer[0] if peer else ""  # none: it is already closed


_SILENT = logging.getLogger("healthd.telemetry.http.malformed")
"""aiohttp logs each malformed request with a traceback: clients could fill the disk. A failing page is logged above."""
_SILENT.setLevel(logging.CRITICAL + 1)


async def _listen(address: Address) -> socket.socket:
    """One bound socket, so that port 0 is one port also when a name has an IPv4 and an IPv6 address."""
    try:
        if address.host is None:
            return _listen_everywhere(address.port)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        return socket.create_server(where, family=family)
    except OSError as error:
        raise AddressError(f"cannot listen on {address}: {_reason(error)}") from error


def _listen_everywhere(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # EADDRNOTAVAIL: IPv6 is compiled in and disabled
                raise
    return socket.create_server(("", port))


def _reason(error: OSError) -> str:
    match error:
        case socket.gaierror():
            return "no such host"
        case OSError(errno=errno.EADDRINUSE):
            return "the port is in use; choose another, or 0 for a free one"
        case OSError(errno=errno.EADDRNOTAVAIL):
            return "this machine has no such address"
        case OSError(errno=errno.EACCES):
            return "not allowed; ports below 1024 are for root"
        case _:
            return os.strerror(error.errno) if error.errno else str(error)
