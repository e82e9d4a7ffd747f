"""
Requests to one API server: credentials, time limits, and retries when the server is busy.

A network error becomes Unavailable here. A refusal by the server becomes Refused: its meaning depends on the verb, and
callers of the port never see it.
"""

from __future__ import annotations

from asyncio import timeout
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta

import aiohttp

from healthd.clock import Clock
from healthd.cluster.port import Unavailable
from healthd.cluster.remote.answers import Status, parse_status
from healthd.cluster.remote.connection import Access, Connection
from healthd.http_errors import why_failed
from healthd.retry_after import parse_retry_after


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Time limits and sizes."""

    request: timedelta = timedelta(seconds=15)
    """Time limit for the answer to one request; for a watch, until it is accepted."""
    throttled: timedelta = timedelta(seconds=30)
    """How long requests to a busy server are retried."""
    shortest_pause: timedelta = timedelta(seconds=1)
    """Before such a retry, also where the server asks for less, or for nothing."""
    stall_after: timedelta = timedelta(seconds=90)
    """A watch that is silent for so long, without even a bookmark (one a minute), is opened again."""
    watch_lasts: timedelta = timedelta(minutes=5)
    """The server ends a watch after this time, up to twice as long, so that not all watches end at once."""
    first_retry: timedelta = timedelta(milliseconds=100)
    """Wait before a broken watch is opened again; doubles up to *last_retry*."""
    last_retry: timedelta = timedelta(seconds=10)
    page: int = 500
    """Objects in one answer to a list."""
    watch_buffer: int = 4 * 1024 * 1024
    """Bytes of a watch that are buffered before they are read: API servers end the watches of slow clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, also when it is sent more than once."""

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = "application/json"
    silence: timedelta | None = None
    """The longest silence in the answer, when the answer is a stream."""
    buffer: int = 64 * 1024


class RequestRefused(Exception):
    """The server refused the request, with this status."""

    def __init__(self, status: Status, where: str) -> None:
        super().__init__(status.message)
        self.status = status
        self.where = where


class Http:
    """One pool of connections to one API server."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        connection: Connection,
        *,
        clock: Clock,
        jitter: Callable[[], float],
        limits: ClientLimits,
    ) -> None:
        self._session = session
        self._connection = connection
        self._clock = clock
        self._jitter = jitter
        self.limits = limits
        self._is_distrusted = False
        """We refused the server's certificate: perhaps its CA was replaced after we read it."""

    async def call(self, request: Request) -> bytes:
        """The body of the answer. Raises Refused, Unavailable."""
        async with self.answer(request) as response:
            with as_unavailable(str(response.url), self.limits.request):
                async with timeout(self.limits.request.total_seconds()):
                    return await response.read()

    @asynccontextmanager
    async def answer(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to an accepted request, while it still comes in. Raises Refused, Unavailable."""
        response = await self._accepted(request)
        try:
            yield response
        finally:
            _drop(response)

    async def _accepted(self, request: Request) -> aiohttp.ClientResponse:
        until, is_renewed = self._clock.now() + self.limits.throttled, False
        while True:
            access = await self._connection.access(fresh=is_renewed or self._is_distrusted)
            response, body = await self._sent(request, access)
            if response.status < 300:
                return response
            status = parse_status(response.status, body)
            if response.status == 401 and not is_renewed:
                is_renewed = True
                continue
            pause = self._pause(response)
            if pause is None or self._clock.now() + pause > until:
                raise RequestRefused(status, _where(request, access))
            await self._clock.sleep(pause)

    async def _sent(self, request: Request, access: Access) -> tuple[aiohttp.ClientResponse, bytes]:
        """The answer, and its body when it is a refusal."""
        silence = request.silence.total_seconds() if request.silence else None
        headers = {"Accept": "application/json", "Content-Type": request.content_type}
        if access.authorization:
            headers["Authorization"] = access.authorization
        with as_unavailable(_where(request, access), self.limits.request), self._distrusting():
            async with timeout(self.limits.request.total_seconds()):
                response = await self._session.request(
                    request.method,
                    access.url + request.path,
                    params=request.query,
                    data=request.body,
                    headers=headers,
                    ssl=access.tls or True,
                    server_hostname=access.server_name,
                    proxy=access.proxy,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, sock_read=silence),
                    read_bufsize=request.buffer,
                )
                return response, b"" if response.status < 300 else await response.read()

    @contextmanager
    def _distrusting(self) -> Iterator[None]:
        try:
            yield
        except aiohttp.ClientConnectorCertificateError:
            self._is_distrusted = True
            raise
        self._is_distrusted = False

    def _pause(self, response: aiohttp.ClientResponse) -> timedelta | None:
        """How long to wait before a retry to a busy server; None when it is not busy and the refusal is final."""
        if response.status != 429:
            return None
        asked = parse_retry_after(response.headers.get("Retry-After", ""), self._clock.now())
        return _bounded(timedelta(seconds=asked or 0), self.limits) * (1 + self._jitter())


def _bounded(asked: timedelta, limits: ClientLimits) -> timedelta:
    """
    The pause that a busy server gets. Never none: it would be asked in a circle. A server that asks for minutes is
    asked twice: a refusal at once would bring its caller back a second later, and with it thousands of others.
    """
    return max(limits.shortest_pause, min(asked, limits.throttled / 2))


@contextmanager
def as_unavailable(where: str, limit: timedelta) -> Iterator[None]:
    """Turn every error of a connection into Unavailable, with the request and the server in its message."""
    try:
        yield
    except TimeoutError as error:
        raise Unavailable(f"{where}: nothing came for {limit.total_seconds():g} s") from error
    except (aiohttp.ClientError, OSError) as error:
        raise Unavailable(f"{where}: {why_failed(error)}") from error


def _drop(response: aiohttp.ClientResponse) -> None:
    """
    Abort an answer that was not read to its end. A complete answer has already released its connection.

    No TLS close handshake: a server that is gone does not answer it, and the connection would stay open for 30 s.
    """
    if response.connection is not None and response.connection.transport is not None:
        response.connection.transport.abort()
    response.close()


def _where(request: Request, access: Access) -> str:
    return f"{request.method} {access.url}{request.path} ({access.source})"
