"""
An in-memory cache of a cluster's objects, kept by list and watch: reads need no request, and are a little behind.

An informer is for detecting changes. Where it matters that nothing changed in the meantime, the API server decides:
write with the resourceVersion that was read, or read from the cluster itself.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Iterable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, TypeVar

import structlog

from healthd.clock import Clock
from healthd.cluster.port import (
    Cluster,
    ClusterError,
    Event,
    EventType,
    Fields,
    Labels,
    Listed,
    NotFound,
    Unavailable,
    Unreadable,
    Unusable,
)
from healthd.cluster.selection import selection
from healthd.cluster.store import Change, Key, Store, Watched
from healthd.core.api import RESOURCES, Slim
from healthd.core.backoff import Backoff, no_jitter

__all__ = ["Change", "Informer", "Watched"]

log = structlog.get_logger(__name__)

T = TypeVar("T", bound=Slim)

_LOGGED = 1000
"""Unreadable objects that were logged already, and are remembered."""
_FIRST_RETRY, _LAST_RETRY = timedelta(seconds=1), timedelta(seconds=30)


class Informer:
    """
    A `Reader` of the *watched* kinds. The cache is empty before `run`; a read before the first list is an error.

    *unreadable* is called for each object that does not fit its struct. Errors of *ends_with* end `run`; others are
    tried again.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        watched: Iterable[Watched[Any]],
        unreadable: Callable[[Unreadable], None] = lambda _: None,
        *,
        ends_with: tuple[type[ClusterError], ...] = (),
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._kept: dict[type[Slim], _Kept] = {each.kind: _Kept(each) for each in watched}
        self._listeners: builtins.list[Callable[[Change], None]] = []
        self._logged_unreadable: dict[Key, Unreadable] = {}
        self._unreadable = unreadable
        self._ends_with = ends_with

    def listen(self, notify: Callable[[Change], None]) -> None:
        """Call *notify* after each change in the cache, also at the first list. *notify* must not wait."""
        self._listeners.append(notify)

    async def run(self) -> None:
        """Keep up with the cluster until cancelled. Raises Unusable, and a group of what it ends with."""
        async with asyncio.TaskGroup() as tasks:
            for kept in self._kept.values():
                tasks.create_task(self._follow(kept), name=f"informer {kept.kind.__name__}")

    @property
    def is_synced(self) -> bool:
        """True when every kind has been listed once."""
        return all(kept.synced.is_set() for kept in self._kept.values())

    async def until_synced(self) -> None:
        """Return when every kind has been listed once."""
        for kept in self._kept.values():
            await kept.synced.wait()

    def stale_for(self, now: datetime) -> timedelta:
        """
        Time since the last message on the quietest of the watches: with an API server, about a minute at most.

        Before the first list: the time since the first call of this method, which is never less than zero.
        """
        return max((kept.stale_for(now) for kept in self._kept.values()), default=timedelta(0))

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """The object as last seen. Raises NotFound; Unavailable before the first list."""
        obj = self._store(kind).get(Key(namespace, name))
        if obj is None:
            where = "/".join(part for part in (namespace, name) if part)
            raise NotFound(f"{RESOURCES[kind].kind} {where} not found")
        return obj

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        """All that match, ordered by namespace and name. Raises Unavailable before the first list."""
        store = self._store(kind)
        return Listed(store.select(namespace, selection(kind, labels, fields)), self._kept[kind].version)

    def _store(self, kind: type[T]) -> Store[T]:
        kept = self._kept.get(kind)
        if kept is None:
            raise LookupError(f"{kind.__name__} is not watched")
        if not kept.synced.is_set():
            raise Unavailable(f"{RESOURCES[kind].plural} have not been listed yet")
        return kept.store

    async def _follow(self, kept: _Kept) -> None:
        """List and watch, for ever. After a watch ends, for any reason, the kind is listed again."""
        backoff = Backoff(_FIRST_RETRY, _LAST_RETRY, no_jitter)
        while True:
            try:
                await self._list(kept)
                backoff.reset()
                await self._watch(kept)
            except ClusterError as error:
                if isinstance(error, (Unusable, *self._ends_with)):
                    raise
                log.info("informer.restarts", kind=kept.kind.__name__, error=str(error))
            except Exception as error:  # a bug of ours with one answer must not end the process
                log.exception("informer.failed", kind=kept.kind.__name__, error=str(error))
            await self._clock.sleep(backoff.next())

    async def _list(self, kept: _Kept) -> None:
        what = kept.store.watched
        listed = await self._cluster.list(kept.kind, namespace=what.namespace, labels=what.labels, fields=what.fields)
        now = self._clock.now()
        unreadable = {Key(each.namespace, each.name) for each in listed.unreadable}
        changed = kept.store.replace(listed.items, listed.resource_version, unreadable=unreadable)
        kept.updated(listed.resource_version, now)
        kept.synced.set()
        for change in changed:
            self._notify(change)
        for each in listed.unreadable:
            self._log_unreadable(each)

    async def _watch(self, kept: _Kept) -> None:
        what = kept.store.watched
        events: Any = self._cluster.watch(
            kept.kind, since=kept.version, namespace=what.namespace, labels=what.labels, fields=what.fields
        )
        async with aclosing(events):
            async for event in events:
                self._take(kept, event)

    def _take(self, kept: _Kept, event: Event[Any]) -> None:
        kept.updated(event.resource_version, self._clock.now())
        if event.unreadable is not None:
            self._log_unreadable(event.unreadable)
            last = kept.store.get(Key(event.unreadable.namespace, event.unreadable.name))
            if event.is_gone and last is not None:
                self._notify(kept.store.drop(last, kept.version))
        if event.obj is None:
            return
        take = kept.store.drop if event.type is EventType.DELETED else kept.store.put
        self._notify(take(event.obj, kept.version))

    def _log_unreadable(self, unreadable: Unreadable) -> None:
        """Log once for each object and reason: each new list reports the object again."""
        self._unreadable(unreadable)
        key = Key(unreadable.namespace, unreadable.name)
        if self._logged_unreadable.get(key) != unreadable:
            log.warning("object.unreadable", **unreadable._asdict(), so="it counts as it was last seen, if ever")
        self._logged_unreadable[key] = unreadable
        while len(self._logged_unreadable) > _LOGGED:
            del self._logged_unreadable[next(iter(self._logged_unreadable))]

    def _notify(self, change: Change) -> None:
        for notify in self._listeners:
            notify(change)


class _Kept:
    """One watched kind: its store, whether it is synced, and its resource version."""

    def __init__(self, watched: Watched[Any]) -> None:
        self.kind: type[Any] = watched.kind
        self.store: Store[Any] = Store(watched)
        self.synced = asyncio.Event()
        self.version = ""
        self._updated_at: datetime | None = None

    def updated(self, version: str, now: datetime) -> None:
        """Record that all changes up to *version* are known."""
        self.version = version
        self._updated_at = now

    def stale_for(self, now: datetime) -> timedelta:
        """Time since the last message; before the first one, time since the first call."""
        if self._updated_at is None:
            self._updated_at = now
        return now - self._updated_at
