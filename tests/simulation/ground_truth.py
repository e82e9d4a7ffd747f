"""
The one true cluster behind all views of it: every write that takes effect is shown to each watch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from healthd.cluster.decoding import decoded
from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Event, Fields, Labels, Listed, NotFound, Unreadable
from healthd.cluster.selection import selection
from healthd.core.api import RESOURCES, Slim
from tests.cluster.fakes import compact

T = TypeVar("T", bound=Slim)

_KINDS: dict[str, list[type[Slim]]] = defaultdict(list)
"""By plural: every struct of it. Some kinds have another that holds all of the object."""
for _kind, _resource in RESOURCES.items():
    _KINDS[_resource.plural].append(_kind)


class Write(NamedTuple):
    """One write that took effect. *before* is None for a creation, *after* for an object that is gone."""

    by: str
    kind: type[Slim]
    before: Any
    after: Any


class Listing(NamedTuple):
    """One list of all objects of a kind, as of the number of writes *at* that had been made."""

    by: str
    kind: type[Slim]
    at: int


class Lists:
    """All objects of each kind, decoded once. Most reads change nothing, and a write changes one object of many."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._store = cluster._store
        self._known: dict[type[Slim], tuple[dict[tuple[str, str], Any], str]] = {}
        self._listed: dict[type[Slim], Listed[Any]] = {}
        self._decoded: dict[type[Slim], dict[bytes, Any]] = defaultdict(dict)
        """By kind: what was last found in the store, by its bytes, which have the version in them."""

    def of(self, kind: type[T]) -> tuple[dict[tuple[str, str], T], str]:
        """All objects of *kind* by namespace and name, and the version that they were read at."""
        if kind not in self._known:
            before = self._decoded[kind]
            bodies = self._store.read_all(RESOURCES[kind].plural, None)
            now = {body: before.get(body) or decoded(kind, body) for body in bodies}
            self._decoded[kind] = now
            readable = (item for item in now.values() if not isinstance(item, Unreadable))
            self._known[kind] = {_where(item): item for item in readable}, str(self._store.head())
        return self._known[kind]

    def all(self, kind: type[T]) -> Listed[T]:
        """All objects of *kind*. Every reader gets the same list: readers change none."""
        if kind not in self._known or kind not in self._listed:
            there, version = self.of(kind)
            self._listed[kind] = Listed(list(there.values()), version)
        return self._listed[kind]

    def forget(self, write: Write) -> None:
        """What a write may have changed. With an object that is deleted others go."""
        if write.after is None or write.after.metadata.deletion_timestamp is not None:
            self._known.clear()
            self._listed.clear()
        for kind in (write.kind, *_KINDS[RESOURCES[write.kind].plural]):
            self._known.pop(kind, None)
            self._listed.pop(kind, None)


class GroundTruth:
    """A `Cluster` for one writer *by*; all that are *seen_by* others share the cluster, and *tell* the same."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        by: str,
        tell: Callable[[Write | Listing], None],
        lists: Lists | None = None,
    ) -> None:
        self._cluster = cluster
        self._by = by
        self._reported = tell
        self._lists = lists or Lists(cluster)

    def seen_by(self, name: str, kind: type[GroundTruth] | None = None) -> GroundTruth:
        """The same cluster for another writer, by another *kind* of view if given."""
        return (kind or GroundTruth)(self._cluster, name, self._reported, self._lists)

    def world(self, kinds: Iterable[type[Any]]) -> dict[type[Slim], list[Any]]:
        """All objects of *kinds*, for those who watch over all."""
        return {kind: self._lists.all(kind).items for kind in kinds}

    def _notify(self, write: Write) -> None:
        self._lists.forget(write)
        self._reported(write)

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return self._lists.of(kind)[0].get((namespace, name)) or await self._cluster.get(kind, name, namespace)

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        listed = self._lists.all(kind)
        self._reported(Listing(self._by, kind, int(listed.resource_version)))
        if namespace is None and not labels and not fields:
            return listed
        wanted, (there, version) = selection(kind, labels, fields), self._lists.of(kind)
        found = [each for (space, _), each in there.items() if namespace in (None, space)]
        return Listed([each for each in found if wanted.matches(each)] if wanted else found, version)

    def watch(
        self,
        kind: type[T],
        *,
        since: str,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> AsyncIterator[Event[T]]:
        return self._cluster.watch(kind, since=since, namespace=namespace, labels=labels, fields=fields)

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        created = await self._cluster.create(obj, dry_run=dry_run)
        if dry_run:
            return created
        self._notify(Write(self._by, type(obj), None, created))
        return created

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
        before = await self.get(kind, name, namespace)
        after = await self._cluster.patch(
            kind,
            name,
            patch,
            namespace=namespace,
            subresource=subresource,
            resource_version=resource_version,
            uid=uid,
        )
        if after != before:
            self._notify(Write(self._by, kind, before, after))
        return after

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
        before = await self.get(kind, name, namespace)
        await self._cluster.delete(
            kind,
            name,
            namespace=namespace,
            uid=uid,
            resource_version=resource_version,
            grace_seconds=grace_seconds,
            dependents_first=dependents_first,
            dry_run=dry_run,
        )
        if dry_run:
            return
        try:
            after: T | None = await self._cluster.get(kind, name, namespace)
        except NotFound:
            after = None
        self._notify(Write(self._by, kind, before, after))

    def compact(self, before: str) -> None:
        compact(self._cluster, before)


def _where(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
