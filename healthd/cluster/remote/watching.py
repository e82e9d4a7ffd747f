"""
A watch without end: it is opened again, from its last version, whenever its connection breaks, stalls or ends.

It reads no faster than its caller. Data that comes in the meantime waits as bytes in the buffer of the connection.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TypeVar

import structlog
from aiohttp import ClientResponse

from healthd.clock import Clock
from healthd.cluster.port import Event, EventType, TooManyRequests, Unavailable
from healthd.cluster.remote import wire
from healthd.cluster.remote.answers import failure
from healthd.cluster.remote.http import ClientLimits, Http, Request, RequestRefused, as_unavailable
from healthd.core.api import Slim
from healthd.core.backoff import Backoff, Jitter

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Slim)

AT_ONCE = timedelta(0)
"""Wait before a watch that worked is opened again."""


async def follow(
    http: Http,
    clock: Clock,
    jitter: Jitter,
    kind: type[T],
    path: str,
    selecting: dict[str, str],
    since: str,
) -> AsyncIterator[Event[T]]:
    """
    Every change after version *since*, and a bookmark each time that the server accepts the watch.

    Raises errors that a retry does not solve: Gone, Invalid, Forbidden, NotFound.
    """
    backoff, version = Backoff(http.limits.first_retry, http.limits.last_retry, jitter), since
    has_events, trouble = True, False
    while True:
        try:
            async with http.answer(_request(http.limits, jitter, path, selecting, version)) as response:
                if trouble:
                    log.info("watch.resumed", kind=kind.__name__, since=version)
                    trouble = False
                yield Event(EventType.BOOKMARK, None, version)
                stream = _Stream(response, http.limits.stall_after)
                while lines := await stream.lines():
                    has_events = True
                    for line in lines:
                        event = wire.parse_event(kind, line, stream.where)
                        version = event.resource_version
                        yield event
        except (RequestRefused, Unavailable, TooManyRequests) as error:
            passing = _passing(error)
            if not trouble:  # a lasting error is logged once
                log.warning("watch.interrupted", kind=kind.__name__, error=str(passing))
                trouble = True
        if has_events:
            backoff.reset()
        await clock.sleep(AT_ONCE if has_events else backoff.next())
        has_events = False


class _Stream:
    """The lines of a watch, as they arrive."""

    def __init__(self, response: ClientResponse, stall_after: timedelta) -> None:
        self.where = f"GET {response.url}"
        self._content = response.content
        self._stall_after = stall_after
        self._rest = b""

    async def lines(self) -> list[bytes]:
        """All complete lines that arrived; empty at the end, where an incomplete line is dropped."""
        while True:
            with as_unavailable(self.where, self._stall_after):
                chunk = await self._content.readany()
            if not chunk:
                return []
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if whole := [line for line in lines if line]:
                return whole


def _request(limits: ClientLimits, jitter: Jitter, path: str, selecting: dict[str, str], version: str) -> Request:
    seconds = limits.watch_lasts.total_seconds() * (1 + jitter())
    asking = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(max(1, round(seconds))),
    }
    query = {**selecting, **asking}
    return Request(method="GET", path=path, query=query, silence=limits.stall_after, buffer=limits.watch_buffer)


def _passing(error: Exception) -> Exception:
    """The error of the port, when a retry may help; other errors are raised."""
    meant = failure(error.status, error.where) if isinstance(error, RequestRefused) else error
    if not isinstance(meant, Unavailable | TooManyRequests):
        raise meant
    return meant
