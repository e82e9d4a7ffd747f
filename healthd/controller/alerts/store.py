"""
The incidents as objects in healthd's namespace: one for each, with the record of what each alert service has of it.

One object for each incident, and not one list of all: `kubectl get incidents` shows them, a write is about one
incident, and no size limit is near. An incident costs one write when it is opened and one for each answer that is
recorded; answers that come together are one write. The leader is the only writer, and reads the objects once, when it
begins.
"""

from __future__ import annotations

import asyncio
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from healthd.clock import Clock
from healthd.cluster.port import AlreadyExists, Cluster, ClusterError, Conflict, NotFound, Unusable
from healthd.cluster.waiting import within
from healthd.core.alerts.delivery import NOTHING
from healthd.core.alerts.grouping import Tracked
from healthd.core.alerts.problem import Shared
from healthd.core.api import RESOURCES, Delivery, IncidentRecord, IncidentStatus, ObjectMeta, ObjectReference
from healthd.core.patches import changes

log = structlog.get_logger()

MOST_KEPT = 500
"""Incidents that are over and that are kept, whatever their age: the newest."""
AT_ONCE = 20
"""Old incidents that are deleted in one go."""
WRITES = 16
"""Incidents that are stored at the same time."""
STORE_WITHIN = timedelta(seconds=1)
"""How long a message waits for its incident to be stored."""
TRIES = 3
"""Writes of one incident in a row, where another leader has written in between."""
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(slots=True)
class Entry:
    """One incident in memory, and what is stored of it."""

    tracked: Tracked
    deliveries: Mapping[str, Delivery] = field(default_factory=dict)
    """By sink. Replaced as a whole, never changed in place."""
    uid: str = ""
    version: str = ""
    """Of the stored object; empty: there is none yet."""
    saved: IncidentRecord | None = None
    """What is stored, as far as is known."""
    tried: bool = False
    """It was written, or could not be: either way it is sent now."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def key(self) -> str:
        """The key of the incident."""
        return self.tracked.incident.key

    def delivery(self, sink: str) -> Delivery:
        """What *sink* has of it."""
        return self.deliveries.get(sink, NOTHING)

    def as_record(self, namespace: str) -> IncidentRecord:
        """The object as it is to be stored."""
        tracked = self.tracked
        status = IncidentStatus(
            shared=tracked.shared, scope=tracked.scope, began=tracked.began, deliveries=dict(self.deliveries)
        )
        meta = ObjectMeta(name=name_of(self.key), namespace=namespace)
        return IncidentRecord(metadata=meta, spec=tracked.incident, status=status)


class IncidentStore:
    """All incidents that are stored in *namespace*. For one leader: it forgets nothing and reads nothing again."""

    def __init__(self, cluster: Cluster, clock: Clock, namespace: str) -> None:
        self.entries: dict[str, Entry] = {}
        self._cluster = cluster
        self._clock = clock
        self._namespace = namespace

    async def load(self) -> None:
        """Read what is stored. Raises ClusterError."""
        listed = await self._cluster.list(IncidentRecord, namespace=self._namespace)
        self.entries = {record.spec.key: _entry(record) for record in listed.items}
        for unreadable in listed.unreadable:
            log.warning("incident.unreadable", incident=unreadable.name, why=unreadable.reason)

    def take(self, tracked: Tracked) -> Entry:
        """The entry of an incident, with its newest state. Not stored yet."""
        entry = self.entries.get(tracked.incident.key)
        if entry is None:
            entry = self.entries[tracked.incident.key] = Entry(tracked)
        entry.tracked, entry.tried = tracked, False
        return entry

    async def save(self, entry: Entry) -> None:
        """Store what changed since the last write; without a change, nothing. Raises ClusterError."""
        async with entry.lock:
            for _ in range(TRIES):
                wanted = entry.as_record(self._namespace)
                if entry.saved is None:
                    await self._create(entry, wanted)
                elif patch := _difference(entry.saved, wanted):
                    await self._patch(entry, patch, wanted)
                else:
                    return

    async def save_all(self, entries: Iterable[Entry], after: Callable[[Entry], None] = lambda _: None) -> None:
        """
        Store *entries* in this order, several at a time, and call *after* for each when it is stored or could not be
        within a second: a page matters more than its record, and the next write brings what is missing. Raises
        Unusable.
        """
        queue = iter(entries)

        async def work() -> None:
            for entry in queue:
                try:
                    await within(self._clock, STORE_WITHIN, self.save(entry))
                except Unusable:
                    raise
                except (ClusterError, TimeoutError) as error:
                    log.warning("incident.not_stored", incident=entry.key, error=str(error))
                after(entry)

        await asyncio.gather(*(work() for _ in range(WRITES)))

    def unsaved(self) -> list[Entry]:
        """Incidents of which nothing could be stored yet."""
        return [entry for entry in self.entries.values() if entry.saved is None]

    async def delete_old(self, settled: Iterable[Entry], keep_for: timedelta, now: datetime) -> None:
        """Delete those of the *settled* that are old, or too many. Raises ClusterError."""
        newest_first = sorted(settled, key=lambda each: each.tracked.incident.resolved or now, reverse=True)
        old = [each for each in newest_first[:MOST_KEPT] if now - (each.tracked.incident.resolved or now) >= keep_for]
        for entry in [*newest_first[MOST_KEPT:], *old][-AT_ONCE:]:
            async with entry.lock:
                await self._delete(entry)

    def reference(self, entry: Entry) -> ObjectReference:
        """The object, for an Event."""
        resource = RESOURCES[IncidentRecord]
        return ObjectReference(
            api_version=resource.api_version,
            kind=resource.kind,
            namespace=self._namespace,
            name=name_of(entry.key),
            uid=entry.uid,
        )

    async def _create(self, entry: Entry, wanted: IncidentRecord) -> None:
        try:
            made = await self._cluster.create(wanted)
        except AlreadyExists:
            await self._adopt(entry)
        else:
            _note(entry, wanted, made)

    async def _patch(self, entry: Entry, patch: dict[str, Any], wanted: IncidentRecord) -> None:
        name = wanted.metadata.name
        try:
            made = await self._cluster.patch(
                IncidentRecord, name, patch, namespace=self._namespace, resource_version=entry.version
            )
        except NotFound:  # a person deleted it: what is still wrong is sent again, under the same key
            entry.saved, entry.version, entry.deliveries = None, "", {}
        except Conflict:
            await self._adopt(entry)
        else:
            _note(entry, wanted, made)

    async def _adopt(self, entry: Entry) -> None:
        """Another leader has stored it: what it recorded as accepted counts. Our own changes are stored with the next
        write."""
        theirs = await self._cluster.get(IncidentRecord, name_of(entry.key), self._namespace)
        entry.uid, entry.version, entry.saved = theirs.metadata.uid, theirs.metadata.resource_version, theirs
        ours, stored = entry.tracked.incident, theirs.spec
        if stored.revision >= ours.revision and stored != ours:
            entry.tracked = _tracked(theirs)
        elif stored.dedup_key != ours.dedup_key:  # services may know it by the key that is stored
            kept = msgspec.structs.replace(ours, cluster=stored.cluster, labels=stored.labels, opened=stored.opened)
            entry.tracked = replace(entry.tracked, incident=kept)
        merged = dict(theirs.status.deliveries)
        for sink, delivery in entry.deliveries.items():
            if delivery.revision > merged.get(sink, NOTHING).revision:
                merged[sink] = delivery
        entry.deliveries = merged

    async def _delete(self, entry: Entry) -> None:
        try:
            if entry.version:
                await self._cluster.delete(
                    IncidentRecord, name_of(entry.key), namespace=self._namespace, resource_version=entry.version
                )
        except (NotFound, Conflict):
            pass
        self.entries.pop(entry.key, None)


def name_of(key: str) -> str:
    """The name of the object of an incident: readable, and different for different keys."""
    words = _NOT_IN_NAMES.sub("-", key.lower()).strip("-")
    return f"{words[:200].strip('-')}-{zlib.crc32(key.encode()):08x}"


def _entry(record: IncidentRecord) -> Entry:
    meta = record.metadata
    return Entry(_tracked(record), record.status.deliveries, meta.uid, meta.resource_version, saved=record, tried=True)


def _tracked(record: IncidentRecord) -> Tracked:
    status = record.status
    known = status.shared in set(Shared)
    shared = Shared(status.shared) if known else Shared.NONE
    return Tracked(incident=record.spec, shared=shared, scope=status.scope, began=status.began)


def _note(entry: Entry, wanted: IncidentRecord, made: IncidentRecord) -> None:
    """Keeps what was sent, not what came back: its texts are shared with the incident in memory."""
    entry.uid, entry.version, entry.saved = made.metadata.uid, made.metadata.resource_version, wanted


def _difference(saved: IncidentRecord, wanted: IncidentRecord) -> dict[str, Any]:
    parts = {"spec": (saved.spec, wanted.spec), "status": (saved.status, wanted.status)}
    patch = {
        name: changes(msgspec.to_builtins(old), msgspec.to_builtins(new))
        for name, (old, new) in parts.items()
        if old is not new and old != new
    }
    return {name: part for name, part in patch.items() if part}
