"""
The one true cluster behind all views of it: every write that takes effect is shown to whoever keeps watch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Event, Fields, Labels, Listed, NotFound
from healthd.core.objects import Slim

T = TypeVar("T", bound=Slim)


class Write(NamedTuple):
    """One write that took effect. *before* is None for a creation, *after* for an object that is gone."""

    by: str
    kind: type[Slim]
    before: Any
    after: Any


class Reading(NamedTuple):
    """One list of all objects of a kind, as of the number of writes *at* that had been made."""

    by: str
    kind: type[Slim]
    at: int


class Truth:
    """A `Cluster` for one writer *by*; all that share *log* share the cluster."""

    def __init__(self, cluster: EmbeddedCluster, by: str, tell: Callable[[Write | Reading], None]) -> None:
        self._cluster = cluster
        self._by = by
        self._tell = tell

    def seen_by(self, name: str) -> Truth:
        """The same cluster for another writer."""
        return Truth(self._cluster, name, self._tell)

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        return await self._cluster.get(kind, name, namespace)

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        listed = await self._cluster.list(kind, namespace=namespace, labels=labels, fields=fields)
        self._tell(Reading(self._by, kind, int(listed.resource_version)))
        return listed

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

    async def create(self, obj: T) -> T:
        created = await self._cluster.create(obj)
        self._tell(Write(self._by, type(obj), None, created))
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
        before = await self._cluster.get(kind, name, namespace)
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
            self._tell(Write(self._by, kind, before, after))
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
    ) -> None:
        before = await self._cluster.get(kind, name, namespace)
        await self._cluster.delete(
            kind, name, namespace=namespace, uid=uid, resource_version=resource_version, grace_seconds=grace_seconds
        )
        try:
            after: T | None = await self._cluster.get(kind, name, namespace)
        except NotFound:
            after = None
        self._tell(Write(self._by, kind, before, after))

    async def evict(self, name: str, namespace: str, *, grace_seconds: int | None = None) -> None:
        await self._cluster.evict(name, namespace, grace_seconds=grace_seconds)
