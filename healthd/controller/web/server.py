"""
The server of the page: its files, a stream of changes, and the pages of single objects. GET only, no cookies.

Data needs a request that comes from this page or from no page at all, under a name that belongs to it: a page of
another site, which may let its own name point to this address, gets nothing.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import math
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any

import msgspec
import structlog
from aiohttp import web

from healthd.clock import Clock
from healthd.controller.web.access import Access, Admission, Refused
from healthd.controller.web.fleet import Fleet
from healthd.controller.web.frames import GZIP_HEAD
from healthd.controller.web.live import Live
from healthd.core.report.page.state import PageState, Scope
from healthd.telemetry.http import LIMITS, PageHandler, Server, StreamHandler, serve

log = structlog.get_logger()

ALIVE_EVERY = 15.0
"""Seconds without a change after which a viewer gets a sign of life."""
WRITE_WITHIN = 20.0
"""Seconds in which a viewer must take what is sent, or it is dropped."""
MOST_VIEWERS = 200
LIMITS_OF_PAGE = LIMITS._replace(connections=2 * MOST_VIEWERS + 64)
_UNKNOWN = {"error": "it does not exist any more, or you may not see it"}
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FOR_EVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"
_LINK = re.compile(rb'\b(href|src)="(?=[a-z]+\.[a-z]+")')
"""Where the page names one of its files."""
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSettings:
    """How the page is served. *hosts*: its names beside the local ones, lower case and without a port."""

    access: Access
    clock: Clock
    hosts: Sequence[str] = ()
    write_within: float = WRITE_WITHIN


@asynccontextmanager
async def serving_page(address: str, live: Live, settings: PageSettings) -> AsyncIterator[Server]:
    """Serve the page while in the block. Raises AddressError."""
    page = _Page(live, settings)
    async with await serve(address, page.files(), LIMITS_OF_PAGE, page.streams()) as server:
        publishing = asyncio.create_task(live.run(), name="page")
        log.info("page.serving", url=server.url)
        try:
            yield server
        finally:
            page.close()
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)


class _Page:
    def __init__(self, live: Live, settings: PageSettings) -> None:
        self._live = live
        self._access = settings.access
        self._clock = settings.clock
        self._write_within = settings.write_within
        self._hosts = _LOCAL_NAMES | {host.lower() for host in settings.hosts}
        self._answers: dict[tuple[str, Scope], tuple[int, bytes]] = {}
        """Answers about single objects: all who look at a recovery ask when it changes."""
        self._answers_of: PageState | None = None
        """The state that was published when they were made."""
        self._streaming: set[asyncio.Task[Any]] = set()

    def files(self) -> dict[str, PageHandler]:
        """
        The files of the page, by path. They have no data, and need no right.

        The page names them in a folder of their digest, so a browser that has them does not ask again: each request
        takes a connection of its own.
        """
        found = files("healthd.controller.web").joinpath("static").iterdir()
        bodies = {each.name: each.read_bytes() for each in sorted(found, key=lambda each: each.name) if each.is_file()}
        folder = hashlib.sha256(b"".join(bodies.values())).hexdigest()[:16]
        page = _LINK.sub(rb'\1="%s/' % folder.encode(), bodies["index.html"])
        kept = {name: body for name, body in bodies.items() if name != "index.html"}
        named = {f"/{folder}/{name}": _file(name, body, self._refusal, _FOR_EVER) for name, body in kept.items()}
        return {**named, "/": _file("index.html", page, self._refusal, _ASK_AGAIN)}

    def streams(self) -> dict[str, StreamHandler]:
        """Everything with data, by path."""
        answers = {
            "/api/gang": lambda fleet, q, scope: fleet.gang(q("namespace"), q("name"), scope, self._clock.now()),
            "/api/recovery": lambda fleet, q, scope: fleet.recovery(
                q("namespace"), q("name"), scope, self._clock.now()
            ),
            "/api/node": lambda fleet, q, scope: fleet.node(q("name"), scope, self._clock.now()),
        }
        return {"/api/stream": self._stream, **{path: partial(self._one, read) for path, read in answers.items()}}

    def close(self) -> None:
        """End every stream."""
        for task in self._streaming:
            task.cancel()

    async def _one(
        self,
        read: Callable[[Fleet, Callable[[str], str], Scope], msgspec.Struct | None],
        request: web.BaseRequest,
        _lift_deadline: Callable[[], None],
    ) -> web.Response:
        try:
            scope, _ = await self._admitted(request)
        except Refused as refused:
            return _error(refused, refused.status)
        fleet = await self._live.fleet()
        state, asked = fleet.state, (request.path_qs, scope)
        if state is not self._answers_of or len(self._answers) >= MOST_VIEWERS:
            self._answers_of = state
            self._answers.clear()
        if asked not in self._answers:
            found = read(fleet, lambda key: request.query.get(key, ""), scope)
            body = {"now": self._clock.now(), "is": found} if found is not None else _UNKNOWN
            self._answers[asked] = (200 if found is not None else 404, msgspec.json.encode(body))
        status, answer = self._answers[asked]
        return _json(answer, status)

    async def _stream(self, request: web.BaseRequest, lift_deadline: Callable[[], None]) -> web.StreamResponse:
        try:
            admission = await self._admitted(request)
        except Refused as refused:
            return _error(refused, refused.status)
        if self._live.viewers >= MOST_VIEWERS:
            return _error(f"{MOST_VIEWERS} others look at this page; it tries again by itself", 503)
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        answer = web.StreamResponse(headers={**_HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        answer.content_type = "text/event-stream"
        if packed:
            answer.headers["Content-Encoding"] = "gzip"
        answer.force_close()
        await answer.prepare(request)
        lift_deadline()
        task = asyncio.current_task()
        assert task is not None
        self._streaming.add(task)
        try:
            await self._send(answer, admission, packed=packed)
        except (TimeoutError, ConnectionError, asyncio.CancelledError):
            if request.transport is not None:  # the viewer is gone, does not read, or the server closes
                request.transport.abort()
        finally:
            self._streaming.discard(task)
        return answer

    async def _send(self, answer: web.StreamResponse, admission: Admission, *, packed: bool) -> None:
        """Send what happens, until the admission ends. The page asks for the next one at once."""
        if packed:
            await answer.write(GZIP_HEAD)
        now = asyncio.get_running_loop().time  # not the clock of the wall, which may be set back meanwhile
        ends = now() + self._left(admission)
        async with self._live.viewing(admission.scope) as viewer:
            while (left := ends - now()) > 0:
                for frame in await viewer.next(min(ALIVE_EVERY, left)):
                    async with asyncio.timeout(self._write_within):
                        await answer.write(frame.packed if packed else frame.plain)

    def _left(self, admission: Admission) -> float:
        """Seconds until *admission* ends."""
        return math.inf if admission.until is None else (admission.until - self._clock.now()).total_seconds()

    async def _admitted(self, request: web.BaseRequest) -> Admission:
        """What the request may see. Raises Refused."""
        if (refusal := self._refusal(request)) is not None:
            raise refusal
        return await self._access.admit(request.headers, self._namespaces)

    async def _namespaces(self) -> set[str]:
        return (await self._live.fleet()).namespaces()

    def _refusal(self, request: web.BaseRequest) -> Refused | None:
        """A request under a foreign name, or from a foreign page."""
        if _name_of(request.headers.get("Host", "")) not in self._hosts:
            return Refused(421, "this page is not known under that name: name it in web.hosts")
        is_foreign = request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none")
        if is_foreign and request.headers.get("Sec-Fetch-Mode") != "navigate":  # a link to this page is welcome
            return Refused(403, "a page of another site asked for this")
        return None


def _name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower().rstrip(".")


def _file(name: str, body: bytes, refusal: Callable[[web.BaseRequest], Refused | None], cached: str) -> PageHandler:
    packed, etag = gzip.compress(body, mtime=0), f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    kind = _TYPES[name[name.rindex(".") :]]
    headers = {**_HEADERS, "Content-Type": kind, "ETag": etag, "Cache-Control": cached, "Vary": "Accept-Encoding"}

    def answer(request: web.BaseRequest) -> web.Response:
        if (refused := refusal(request)) is not None:
            return web.Response(status=refused.status, text=f"healthd: {refused}\n", headers=_HEADERS)
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=packed, headers={**headers, "Content-Encoding": "gzip"})
        return web.Response(body=body, headers=headers)

    return answer


def _error(why: object, status: int) -> web.Response:
    return _json(msgspec.json.encode({"error": str(why)}), status)


def _json(body: bytes, status: int) -> web.Response:
    headers = {**_HEADERS, "Content-Type": "application/json", "Cache-Control": "no-store"}
    return web.Response(body=body, status=status, headers=headers)
