"""
Objects and their history as bytes in SQLite: rows, transactions, and the errors of the port. It has no rules.

Every write takes the next version and adds exactly one row to `history`, so versions there have no gaps. The newest
row is never trimmed, so it is also the version counter. Write-ahead log with `synchronous=FULL`: committed data
survives kill -9 and power loss. Several processes may open the same file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from healthd.cluster.embedded.opening import Busy, alone
from healthd.cluster.port import EventType, Gone, Unavailable, Unusable

_APPLICATION_ID = 0x6865616C
"""`heal`: marks a store of healthd, different from another program's SQLite file."""
_SCHEMA_VERSION = 1
_BUSY_MS = 5_000
"""How long a write waits for another process; transactions take well under a millisecond."""
_TRIM_EVERY = 100
"""Writes between two trims of the history: deleting in batches is cheaper."""
_SCHEMA = """
CREATE TABLE object (
    plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL UNIQUE, body BLOB NOT NULL,
    PRIMARY KEY (plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE owner (
    uid TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    PRIMARY KEY (uid, plural, namespace, name)
) WITHOUT ROWID;
CREATE TABLE history (
    version INTEGER PRIMARY KEY, plural TEXT NOT NULL, namespace TEXT NOT NULL, type TEXT NOT NULL,
    body BLOB NOT NULL, before BLOB
);
INSERT INTO history VALUES (1, '', '', '', '', NULL);
"""


class UnusableStore(Unusable):
    """The file is not a store that this healthd can use; the message says why and what to do."""


class DamagedStore(UnusableStore):
    """What is in the file is not what was written there."""


class RowKey(NamedTuple):
    """The key of an object in the store."""

    plural: str
    namespace: str
    name: str


class HistoryRow(NamedTuple):
    """One row of history. *before* is the former body, stored only where a selector may match differently."""

    version: int
    type: EventType
    body: bytes
    before: bytes | None


class SqliteStore:
    """One connection to one file, or to a private store in memory (*path* None). For one thread."""

    def __init__(self, path: Path | None, *, history: int, durable: bool) -> None:
        self.is_shared = path is not None
        """True: other processes may write, too."""
        self.newest: dict[str, int] = {}
        """By plural: the newest version written through this connection."""
        self._history = max(1, history)
        self._where = str(path) if path else "the store in memory"
        self._connection = _connect(path, durable=durable)

    def close(self) -> None:
        """Close the store. Every later call raises Unavailable."""
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All writes inside are committed together when the block ends, none when it raises."""
        self._rows("BEGIN IMMEDIATE")
        try:
            yield
            self._rows("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._rows("ROLLBACK")

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads inside see the same version."""
        self._rows("BEGIN")
        try:
            yield
        finally:
            self._rows("ROLLBACK")

    def read(self, key: RowKey) -> bytes | None:
        """The body, or None."""
        rows = self._rows("SELECT body FROM object WHERE plural = ? AND namespace = ? AND name = ?", key)
        return rows[0][0] if rows else None

    def read_all(self, plural: str, namespace: str | None) -> list[bytes]:
        """The bodies of a kind, ordered by namespace and name."""
        if namespace is None:
            rows = self._rows("SELECT body FROM object WHERE plural = ? ORDER BY namespace, name", (plural,))
        else:
            sql = "SELECT body FROM object WHERE plural = ? AND namespace = ? ORDER BY name"
            rows = self._rows(sql, (plural, namespace))
        return [row[0] for row in rows]

    def head(self) -> int:
        """The newest version."""
        version: int = self._rows("SELECT max(version) FROM history")[0][0]
        return version

    def insert(self, key: RowKey, uid: str, version: int, body: bytes) -> None:
        """Store a new object."""
        self._rows("INSERT INTO object VALUES (?, ?, ?, ?, ?)", (*key, uid, body))
        self._record(key, version, EventType.ADDED, body)

    def update(self, key: RowKey, version: int, body: bytes, before: bytes | None) -> None:
        """Store a new body of an object."""
        self._rows("UPDATE object SET body = ? WHERE plural = ? AND namespace = ? AND name = ?", (body, *key))
        self._record(key, version, EventType.MODIFIED, body, before)

    def remove(self, key: RowKey, version: int, body: bytes) -> None:
        """Remove an object; *body* is its last state."""
        self._rows("DELETE FROM object WHERE plural = ? AND namespace = ? AND name = ?", key)
        self._record(key, version, EventType.DELETED, body)

    def _record(self, key: RowKey, version: int, event: EventType, body: bytes, before: bytes | None = None) -> None:
        row = (version, key.plural, key.namespace, event.value, body, before)
        self._rows("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?)", row)
        self.newest[key.plural] = version
        if version % _TRIM_EVERY == 0:
            self.trim(version - self._history)

    def trim(self, upto: int) -> None:
        """Delete changes up to and including version *upto*, but never the newest one."""
        self._rows("DELETE FROM history WHERE version <= ? AND version < (SELECT max(version) FROM history)", (upto,))

    def changes(self, plural: str, namespace: str | None, after: int, limit: int) -> tuple[list[HistoryRow], int]:
        """
        The next changes of a kind after version *after*, at most *limit*, and up to which version they are complete.

        Raises Gone when some of them are no longer in the history.
        """
        sql = """
            SELECT version, type, body, before FROM history
            WHERE version > ?1 AND plural = ?2 AND (?3 IS NULL OR namespace = ?3) ORDER BY version LIMIT ?4
        """
        with self.snapshot():
            oldest, head = self._rows("SELECT (SELECT min(version) FROM history), max(version) FROM history")[0]
            if after < oldest - 1:
                raise Gone(f"{plural}: changes after version {after} are no longer kept (oldest: {oldest}); list again")
            rows = self._rows(sql, (after, plural, namespace, limit))
        changes = [HistoryRow(version, EventType(event), body, before) for version, event, body, before in rows]
        return changes, changes[-1].version if len(changes) == limit else head

    def set_owners(self, key: RowKey, uids: Iterable[str]) -> None:
        """Store the owners of the object at *key*; no uids when it is gone."""
        self._rows("DELETE FROM owner WHERE plural = ? AND namespace = ? AND name = ?", key)
        for uid in set(uids):
            self._rows("INSERT INTO owner VALUES (?, ?, ?, ?)", (uid, *key))

    def dependents(self, uid: str) -> list[RowKey]:
        """Objects that name *uid* as an owner."""
        return [RowKey(*row) for row in self._rows("SELECT plural, namespace, name FROM owner WHERE uid = ?", (uid,))]

    def has_uid(self, uid: str) -> bool:
        """Whether an object with this uid exists."""
        return bool(self._rows("SELECT 1 FROM object WHERE uid = ?", (uid,)))

    def data_version(self) -> int:
        """Differs from its last value when another connection has committed in between."""
        version: int = self._rows("PRAGMA data_version")[0][0]
        return version

    def _rows(self, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(sql, values).fetchall()
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
            raise Unavailable(f"{self._where}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise _kind_of(error)(f"{self._where}: {error}; restore it from a copy or start with a new file") from error


def _kind_of(error: Exception) -> type[UnusableStore]:
    """What *error* means. SQLite reports damage by this very class; those below it have other reasons."""
    return DamagedStore if type(error) is sqlite3.DatabaseError else UnusableStore


def _connect(path: Path | None, *, durable: bool) -> sqlite3.Connection:
    try:
        if path is None:
            return _prepared(":memory:", durable=durable)
        with alone(path):
            _make_private(path)
            return _prepared(path, durable=durable)
    except (sqlite3.Error, OSError, Busy, UnusableStore) as error:
        raise _kind_of(error)(f"cannot use {path} as healthd's store: {error}") from error


def _make_private(path: Path) -> None:
    """
    Make the file readable only by its owner: jobs have secrets in their environment.

    An existing file is not even opened: to close it would drop the locks that this process holds on it through SQLite.
    """
    with suppress(FileExistsError):
        path.touch(mode=0o600, exist_ok=False)


def _prepared(database: Path | str, *, durable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(database, timeout=_BUSY_MS / 1000, isolation_level=None)
    try:
        _check_origin(connection)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        if not _scalar(connection, "PRAGMA user_version"):
            _lay_out(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _lay_out(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _check_origin(connection: sqlite3.Connection) -> None:
    origin, version = _scalar(connection, "PRAGMA application_id"), _scalar(connection, "PRAGMA user_version")
    is_empty = not _scalar(connection, "SELECT count(*) FROM sqlite_master")
    if origin != _APPLICATION_ID and not (is_empty and version == 0):
        raise UnusableStore("it is another program's SQLite file; name another file")
    if version > _SCHEMA_VERSION:
        raise UnusableStore(f"a newer healthd wrote it (schema {version}, known: {_SCHEMA_VERSION}); update healthd")


def _scalar(connection: sqlite3.Connection, sql: str) -> int:
    value: int = connection.execute(sql).fetchone()[0]
    return value
