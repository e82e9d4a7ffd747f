"""
The port's verbs over HTTP. `healthd.cluster.port` is the contract; nothing is cached here.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
import structlog

from healthd.clock import Clock
from healthd.cluster.port import (
    ClusterError,
    Conflict,
    Event,
    Fields,
    Gone,
    KindAccess,
    Labels,
    Listed,
    NotFound,
    Unavailable,
    Unreadable,
)
from healthd.cluster.remote import access, wire
from healthd.cluster.remote.addresses import FIELD_MANAGER, path, selecting
from healthd.cluster.remote.answers import failure, is_another_uid
from healthd.cluster.remote.connection import Connection
from healthd.cluster.remote.http import ClientLimits, Http, Request, RequestRefused
from healthd.cluster.remote.watching import follow
from healthd.core.api import RESOURCES, Resource, Slim

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Slim)

_WRITING = {"fieldManager": FIELD_MANAGER}
_DRY_RUN = {"dryRun": "All"}
_MERGE_PATCH = "application/merge-patch+json"
KEPT_SECONDS = 80
"""How long an idle connection is kept for the next request. An API server closes idle connections after 90 s."""
_LIST_TRIES = 5
"""How often a list starts again when a compaction has deleted the version of its pages."""
_DEFAULTS = ClientLimits()


@asynccontextmanager
async def connect(
    connection: Connection, *, clock: Clock, jitter: Callable[[], float], limits: ClientLimits = _DEFAULTS
) -> AsyncIterator[RemoteCluster]:
    """
    The cluster behind *connection*. *jitter* draws from 0 to 1: it spreads watches and retries of many clients.

    Raises Unusable for a configuration that cannot work. Proxies of the environment are not used.
    """
    await connection.access()
    # Each watch keeps a connection open: with a limit, the watches could block the requests.
    pool = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_SECONDS)
    async with aiohttp.ClientSession(
        connector=pool,
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": FIELD_MANAGER},
        trust_env=False,
    ) as session:
        yield RemoteCluster(Http(session, connection, clock=clock, jitter=jitter, limits=limits), clock, jitter)


class RemoteCluster:
    """A `Cluster` behind an API server; `connect` creates it."""

    def __init__(self, http: Http, clock: Clock, jitter: Callable[[], float]) -> None:
        self._http = http
        self._clock = clock
        self._jitter = jitter

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """The object. Raises NotFound."""
        return wire.parse_object(kind, await self._call("GET", self._object(kind, name, namespace)))

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        """All objects that match, ordered by namespace and name; consistent as one read, also with many pages."""
        where, query = path(RESOURCES[kind], namespace), selecting(labels, fields)
        for _ in range(_LIST_TRIES):
            try:
                listed = await self._pages(kind, where, query)
            except Gone as error:
                log.info("list.restarts", kind=kind.__name__, error=str(error))
                continue
            listed.items.sort(key=_place)
            return listed
        raise Unavailable(f"GET {where}: its pages were too old before they could be read, {_LIST_TRIES} times")

    def watch(
        self,
        kind: type[T],
        *,
        since: str,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> AsyncIterator[Event[T]]:
        """Every change after version *since*, in order, without end. Raises Gone when history does not reach back."""
        where, query = path(RESOURCES[kind], namespace), selecting(labels, fields)
        return follow(self._http, self._clock, self._jitter, kind, where, query, since)

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        """Create a new object; `status` is dropped where it is a subresource. Raises AlreadyExists, Invalid."""
        kind, metadata = type(obj), obj.metadata  # type: ignore[attr-defined]  # every kind that is kept has metadata
        where = path(RESOURCES[kind], metadata.namespace)
        query = {**_WRITING, **_DRY_RUN} if dry_run else _WRITING
        return wire.parse_object(kind, await self._call("POST", where, query=query, body=wire.new_body(obj)))

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str = "",
        subresource: str = "",
        resource_version: str = "",
        uid: str = "",
    ) -> T:
        """Apply a JSON merge patch. Raises NotFound, Conflict, Invalid."""
        where = self._object(kind, name, namespace, subresource)
        body = wire.patch_body(kind, patch, resource_version=resource_version, uid=uid)
        request = Request(method="PATCH", path=where, query=_WRITING, body=body, content_type=_MERGE_PATCH)
        try:
            return wire.parse_object(kind, await self._http.call(request))
        except RequestRefused as refused:
            if uid and is_another_uid(refused.status):
                raise Conflict(refused.status.message) from None
            raise _meant(refused) from None

    async def delete(
        self,
        kind: type[T],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        dependents_first: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Ask for deletion, graceful where a kubelet or a finalizer must act first. Raises NotFound, Conflict."""
        body = wire.deletion_body(
            uid=uid,
            resource_version=resource_version,
            grace_seconds=grace_seconds,
            dependents_first=dependents_first,
            dry_run=dry_run,
        )
        await self._call("DELETE", self._object(kind, name, namespace), body=body)

    async def access_to(self, kind: type[Slim], verbs: Sequence[str]) -> KindAccess:
        """What the caller can do with all objects of *kind*. Raises ClusterError where it may not be asked."""
        resource = RESOURCES[kind]
        try:
            found = await self._call("GET", access.discovery_path(resource))
        except NotFound:
            return KindAccess(is_served=False)
        if not access.is_listed(resource, found):
            return KindAccess(is_served=False)
        answers = {verb: await self._review(resource, verb) for verb in verbs}
        return KindAccess(is_served=True, missing=tuple(verb for verb, allowed in answers.items() if not allowed))

    async def _review(self, resource: Resource, verb: str) -> bool:
        return access.is_allowed(await self._call("POST", access.REVIEWS, body=access.review_body(resource, verb)))

    async def _pages(self, kind: type[T], where: str, query: dict[str, str]) -> Listed[T]:
        items: builtins.list[T] = []
        left_out: builtins.list[Unreadable] = []
        asked = {**query, "limit": str(self._http.limits.page)}
        while True:
            page, unreadable = wire.parse_page(kind, await self._call("GET", where, query=asked))
            left_out += unreadable
            items += page.items or []
            if not page.metadata.continue_:
                return Listed(items, page.metadata.resource_version, left_out)
            asked["continue"] = page.metadata.continue_

    async def _call(
        self, method: str, where: str, *, query: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> bytes:
        try:
            return await self._http.call(Request(method=method, path=where, query=query, body=body))
        except RequestRefused as refused:
            raise _meant(refused) from None

    def _object(self, kind: type[Slim], name: str, namespace: str, subresource: str = "") -> str:
        """The path of one object. With an empty name it would be the path of all objects."""
        if not name:
            raise NotFound(f"{RESOURCES[kind].kind}: asked for an object without a name")
        return path(RESOURCES[kind], namespace, name, subresource)


def _meant(refused: RequestRefused) -> ClusterError:
    return failure(refused.status, refused.where)


def _place(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
