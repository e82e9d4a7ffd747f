"""
The one HTTP client of all alert services.

It sends requests over https, follows no redirect, and connects to no link-local address and no metadata service of a
cloud, whatever a name resolves to. The connection and the answer each have a deadline, and the answer a largest size.
An error says in its text what went wrong with which host. It never holds a URL, because a URL is often a password.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import aiohttp

from healthd import __version__
from healthd.alerts.addresses import SCHEMES, BadAddress, guarded_socket, host_of
from healthd.alerts.resolver import Resolver
from healthd.clock import Clock
from healthd.http_errors import why_failed
from healthd.retry_after import parse_retry_after

NO_HEADERS: Mapping[str, str] = {}


class Limits(NamedTuple):
    """How long a message may take, and how large an answer may be."""

    connect: float = 4.0
    """Seconds for the name, the connection and TLS."""
    answer: float = 10.0
    """Seconds from the request to the last byte of the answer."""
    body: int = 64 * 1024
    """Bytes of an answer that are read."""


LIMITS = Limits()

ProxyFor = Callable[[str], str]
"""The proxy for a URL. Empty: none."""


def no_proxy(_url: str) -> str:
    """For tests, and where services are reached directly."""
    return ""


def proxy_of_environment(url: str) -> str:
    """The proxy that `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` name for *url*."""
    parts = urlsplit(url)
    if proxy_bypass(parts.hostname or ""):
        return ""
    return getproxies_environment().get(parts.scheme, "")


class Response(NamedTuple):
    """The answer of a server."""

    status: int
    body: bytes = b""
    retry_after: float | None = None
    """Seconds."""
    cut: str = ""
    """Why the body is not whole. Empty when it is."""


class NoAnswer(Exception):
    """No status arrived. *was_sent*: the server may have got the request."""

    def __init__(self, why: str, *, was_sent: bool) -> None:
        super().__init__(why)
        self.was_sent = was_sent


class Http:
    """Sends messages. One object for each sink; a connection carries one request."""

    def __init__(
        self,
        clock: Clock,
        *,
        ca_file: str = "",
        insecure_http: bool = False,
        limits: Limits = LIMITS,
        proxy_for: ProxyFor = no_proxy,
    ) -> None:
        self._clock = clock
        self._authorities = _Authorities(ca_file)
        self._schemes = SCHEMES if insecure_http else ("https",)
        self._limits = limits
        self._proxy_for = proxy_for
        self._session: aiohttp.ClientSession | None = None
        self._resolver = Resolver()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Response:
        """The answer to *body*, which is JSON unless *headers* say otherwise. Raises NoAnswer."""
        return await self.send("post", url, body, {"Content-Type": "application/json", **headers})

    async def send(
        self, method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] = NO_HEADERS
    ) -> Response:
        """The answer to one request. Raises NoAnswer."""
        host = self._checked(url)
        exchange = _Exchange(self._limits)
        try:
            async with asyncio.timeout(self._limits.connect + self._limits.answer) as exchange.deadline:
                await self._send(exchange, method, url, body, headers)
        except TimeoutError:
            return exchange.ended(f"{host} did not answer within {exchange.patience:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return exchange.ended(f"{host}: {why_failed(error)}")
        return exchange.ended("")

    async def close(self) -> None:
        """Close the client. It may be used again."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        await self._resolver.close()

    def _checked(self, url: str) -> str:
        """The host of *url*. Raises NoAnswer."""
        try:
            return host_of(url, self._schemes)
        except BadAddress as error:
            raise NoAnswer(str(error), was_sent=False) from None

    async def _send(
        self, exchange: _Exchange, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        response = await self._opened().request(
            method,
            url,
            data=body,
            headers=headers,
            ssl=self._authorities.context(),
            allow_redirects=False,
            proxy=self._proxy_for(url) or None,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._limits.connect),
            trace_request_ctx=exchange,
        )
        try:
            exchange.head = Response(response.status, retry_after=self._retry_after(response))
            await exchange.read(response)
        finally:
            _drop(response)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_note_sent)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    force_close=True, use_dns_cache=False, socket_factory=guarded_socket, resolver=self._resolver
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"User-Agent": f"healthd/{__version__}", "Accept-Encoding": "identity"},
                trace_configs=[trace],
            )
        return self._session

    def _retry_after(self, response: aiohttp.ClientResponse) -> float | None:
        return parse_retry_after(response.headers.get("Retry-After", ""), self._clock.now())


class _Exchange:
    """What is known of one request and its answer so far."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.deadline: asyncio.Timeout | None = None
        self.was_sent = False
        self.head: Response | None = None
        self._body = bytearray()
        self._is_too_large = False

    @property
    def patience(self) -> float:
        """Seconds of the part that takes too long."""
        return self._limits.answer if self.was_sent else self._limits.connect

    def note_sent(self) -> None:
        """The request leaves now: the time for the answer begins."""
        self.was_sent = True
        if self.deadline is not None:
            self.deadline.reschedule(asyncio.get_running_loop().time() + self._limits.answer)

    async def read(self, response: aiohttp.ClientResponse) -> None:
        """Read the body, up to its largest size."""
        async for chunk in response.content.iter_any():
            self._body += chunk
            if len(self._body) > self._limits.body:
                del self._body[self._limits.body :]
                self._is_too_large = True
                return

    def ended(self, why: str) -> Response:
        """The answer, also when its body is not whole because of *why*. Raises NoAnswer where there is no status."""
        if self.head is None:
            raise NoAnswer(why, was_sent=self.was_sent)
        cut = f"the answer is larger than {self._limits.body >> 10} KiB" if self._is_too_large else why
        return self.head._replace(body=bytes(self._body), cut=cut)


async def _note_sent(_session: object, context: Any, _params: object) -> None:
    context.trace_request_ctx.note_sent()


class _Authorities:
    """The TLS settings. With a file of authorities, they are loaded again when it changes."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._version: tuple[int, int, int] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | bool:
        """Raises OSError (SSLError included) when the file cannot be used."""
        if not self._path:
            return True
        try:
            found = Path(self._path).stat()
            version = (found.st_ino, found.st_mtime_ns, found.st_size)
            if self._context is None or version != self._version:
                self._context, self._version = ssl.create_default_context(cafile=self._path), version
        except OSError as error:
            raise OSError(error.errno, f"cannot use the ca_file {self._path}: {error.strerror or 'no PEM'}") from None
        return self._context


def _drop(response: aiohttp.ClientResponse) -> None:
    """Abort the connection when the answer was not read to its end. There is no TLS goodbye that could hang."""
    if response.connection is not None and response.connection.transport is not None:
        with contextlib.suppress(RuntimeError):
            response.connection.transport.abort()
    response.close()
