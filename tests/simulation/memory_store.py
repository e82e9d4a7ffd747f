"""
The store of an embedded cluster, in dictionaries: SQL takes a tenth of the time of a world that lasts a second.

It answers what `SqliteStore` answers; the contract of clusters holds for both (`tests/contract`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from healthd.clock import Clock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.embedded.store import HistoryRow, RowKey, SqliteStore
from healthd.cluster.port import EventType, Gone, Unavailable
from tests.fakes import counting_uids

TRIM_EVERY = 100
"""Writes between two trims of the history, as in `SqliteStore`."""


class MemoryStore(SqliteStore):
    """Objects and the last *history* changes of them. For one thread."""

    def __init__(self, *, history: int) -> None:
        self.is_shared = False
        self.newest = {}
        self._kept = max(1, history)
        self._head = 1
        self._objects: dict[str, dict[RowKey, bytes]] = defaultdict(dict)
        self._keys: dict[str, RowKey] = {}
        """By uid."""
        self._uids: dict[RowKey, str] = {}
        self._owners: dict[RowKey, frozenset[str]] = {}
        self._changes: dict[int, tuple[RowKey, HistoryRow]] = {}
        """By version, in order."""
        self._undo: list[tuple[dict[Any, Any], Any, Any]] = []
        """What the open transaction has changed: the table, the key, and the value before; None: there was none."""
        self._is_closed = False

    def close(self) -> None:
        """Close the store. Every later read and write raises Unavailable."""
        self._is_closed = True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside are kept when the block ends, none when it raises."""
        self._check_open()
        self._undo, head = [], self._head
        try:
            yield
        except BaseException:
            self._head = head
            for table, key, before in reversed(self._undo):
                _set(table, key, before)
            raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside see the same version: nothing else runs meanwhile."""
        self._check_open()
        yield

    def read(self, key: RowKey) -> bytes | None:
        """The body, or None."""
        self._check_open()
        return self._objects[key.plural].get(key)

    def read_all(self, plural: str, namespace: str | None) -> list[bytes]:
        """The bodies of a kind, ordered by namespace and name."""
        self._check_open()
        objects = self._objects[plural]
        return [objects[key] for key in sorted(objects) if namespace in (None, key.namespace)]

    def head(self) -> int:
        """The newest version."""
        return self._head

    def insert(self, key: RowKey, uid: str, version: int, body: bytes) -> None:
        """Store a new object."""
        self._put(self._keys, uid, key)
        self._put(self._uids, key, uid)
        self._put(self._objects[key.plural], key, body)
        self._record(key, version, EventType.ADDED, body)

    def update(self, key: RowKey, version: int, body: bytes, before: bytes | None) -> None:
        """Store a new body of an object."""
        self._put(self._objects[key.plural], key, body)
        self._record(key, version, EventType.MODIFIED, body, before)

    def remove(self, key: RowKey, version: int, body: bytes) -> None:
        """Remove an object; *body* is its last state."""
        self._put(self._keys, self._uids[key], None)
        self._put(self._uids, key, None)
        self._put(self._objects[key.plural], key, None)
        self._record(key, version, EventType.DELETED, body)

    def trim(self, upto: int) -> None:
        """Delete changes up to and including version *upto*, but never the newest one."""
        for version in [version for version in self._changes if version <= upto and version < self._head]:
            del self._changes[version]

    def changes(self, plural: str, namespace: str | None, after: int, limit: int) -> tuple[list[HistoryRow], int]:
        """The next changes of a kind after version *after*, and up to which version they are complete. Raises Gone."""
        self._check_open()
        oldest = next(iter(self._changes), 1)
        if after < oldest - 1:
            raise Gone(f"{plural}: changes after version {after} are no longer kept (oldest: {oldest}); list again")
        rows = [
            row
            for version, (key, row) in self._changes.items()
            if version > after and key.plural == plural and namespace in (None, key.namespace)
        ]
        return rows[:limit], rows[limit - 1].version if len(rows) >= limit else self._head

    def set_owners(self, key: RowKey, uids: Iterable[str]) -> None:
        """Store the owners of the object at *key*; no uids when it is gone."""
        self._put(self._owners, key, frozenset(uids) or None)

    def dependents(self, uid: str) -> list[RowKey]:
        """Objects that name *uid* as an owner."""
        return sorted(key for key, uids in self._owners.items() if uid in uids)

    def has_uid(self, uid: str) -> bool:
        """Whether an object with this uid exists."""
        return uid in self._keys

    def data_version(self) -> int:
        """No other connection ever commits."""
        return 0

    def _record(self, key: RowKey, version: int, event: EventType, body: bytes, before: bytes | None = None) -> None:
        self._put(self._changes, version, (key, HistoryRow(version, event, body, before)))
        self._head = self.newest[key.plural] = version
        if version % TRIM_EVERY == 0:
            self.trim(version - self._kept)

    def _put(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._undo.append((table, key, table.get(key)))
        _set(table, key, value)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Unavailable("the store in memory: it is closed")


def _set(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def in_memory(clock: Clock, *, history: int = 1) -> EmbeddedCluster:
    """A cluster in memory, whose uids count from 1. A watch can go back so many changes (*history*)."""
    return EmbeddedCluster(MemoryStore(history=history), clock, counting_uids(), bookmark_every=max(1, history // 10))
