"""
The running watches, and how they are woken.

A watcher holds only a position in the history: a slow one costs no memory, and it gets Gone when its position is no
longer in the history. Writes of this process wake it at once; a slow tick detects writes of other processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import msgspec

from healthd.clock import Clock
from healthd.cluster.decoding import decoded
from healthd.cluster.embedded.store import HistoryRow, SqliteStore
from healthd.cluster.port import ClusterError, Event, EventType, Unreadable
from healthd.cluster.selection import Selection
from healthd.core.api import Slim

T = TypeVar("T", bound=Slim)

FOREIGN_TICK = timedelta(seconds=1)
"""How often to check for writes of other processes (`healthd repair`). At 0.2 s an idle agent did little else."""


class Watcher:
    """One running watch: its kind, how far it has read, and the bell that wakes it."""

    def __init__(self, plural: str, position: int) -> None:
        self.plural = plural
        self.position = position
        self.bell = asyncio.Event()


class Watchers:
    """All running watches of one store."""

    def __init__(self, store: SqliteStore, clock: Clock, *, bookmark_every: int) -> None:
        self.bookmark_every = bookmark_every
        """No watcher stays further behind than so many versions, even if its kind has no changes."""
        self._store = store
        self._clock = clock
        self._watchers: set[Watcher] = set()
        self._tick: asyncio.Task[None] | None = None

    @contextmanager
    def enlisted(self, plural: str, position: int) -> Iterator[Watcher]:
        """A watcher that is woken while the block runs."""
        watcher = Watcher(plural, position)
        self._watchers.add(watcher)
        if self._store.is_shared and self._tick is None:
            seen = self._store.data_version()  # before the first read: no write is missed
            self._tick = asyncio.get_running_loop().create_task(self._notice_others(seen))
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._stop_tick()

    def wake(self) -> None:
        """After a write of this process: wake the watchers whose kind changed, and those far behind."""
        newest = self._store.newest
        head = max(newest.values(), default=0)
        for watcher in self._watchers:
            if newest.get(watcher.plural, 0) > watcher.position or head - watcher.position >= self.bookmark_every:
                watcher.bell.set()

    def wake_all(self) -> None:
        """Wake every watcher, so that it reads the history again."""
        for watcher in self._watchers:
            watcher.bell.set()

    def close(self) -> None:
        """Stop the tick, and wake the watchers: their next read fails because the store is closed."""
        self._stop_tick()
        self.wake_all()

    def _stop_tick(self) -> None:
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None

    async def _notice_others(self, seen: int) -> None:
        while True:
            await self._clock.sleep(FOREIGN_TICK)
            try:
                now = self._store.data_version()
            except ClusterError:
                self.wake_all()  # they read again and report the error to their callers
                continue
            if now != seen:
                seen = now
                self.wake_all()


def selected(change: HistoryRow, wanted: Selection, kind: type[T]) -> Event[T] | None:
    """
    The event of *change* for a watcher with the selector *wanted*; None when there is none. An object that cannot be
    read becomes a bookmark.

    For such a watcher, an object that begins to match is ADDED; one that stops is DELETED in its last matching state.
    """
    version, obj = str(change.version), decoded(kind, change.body)
    if isinstance(obj, Unreadable):
        return Event(EventType.BOOKMARK, None, version, obj, change.type is EventType.DELETED)
    is_match = wanted.matches(obj)
    if change.before is None or change.type is not EventType.MODIFIED:
        return Event(change.type, obj, version) if is_match else None
    former = decoded(kind, change.before)
    known = None if isinstance(former, Unreadable) or not wanted.matches(former) else former
    if is_match:
        return Event(EventType.MODIFIED if known else EventType.ADDED, obj, version)
    return Event(EventType.DELETED, _at_version(known, version), version) if known else None


def _at_version(obj: T, version: str) -> T:
    # Every stored kind has metadata.
    metadata = msgspec.structs.replace(obj.metadata, resource_version=version)  # type: ignore[attr-defined]
    return msgspec.structs.replace(obj, metadata=metadata)
