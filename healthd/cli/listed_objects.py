"""A list of each kind, read once: what adapters ask about a gang is answered from it, with no request for each gang."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from healthd.cluster.port import ClusterError, Fields, Labels, Listed, NotFound, Reader
from healthd.cluster.selection import selection
from healthd.cluster.store import Key, Store, Watched
from healthd.controller.cache.informers import INDEXED, label_values
from healthd.core.api import RESOURCES, Slim

T = TypeVar("T", bound=Slim)


class ListedObjects:
    """A `Reader` of what was listed. It raises for a kind what the list of that kind raised."""

    def __init__(self, cluster: Reader) -> None:
        self._cluster = cluster
        self._stores: dict[type[Slim], tuple[Store[Any], str]] = {}
        self._errors: dict[type[Slim], ClusterError] = {}

    async def read(self, kind: type[T], namespace: str | None, labels: Labels | None) -> Listed[T]:
        """List a kind and keep it. Raises ClusterError."""
        try:
            listed = await self._cluster.list(kind, namespace=namespace, labels=labels)
        except ClusterError as error:
            self._errors[kind] = error
            raise
        indexes = {label: partial(label_values, label) for of, label in INDEXED if of is kind}
        store: Store[Any] = Store(Watched(kind=kind, indexes=indexes))
        store.replace(listed.items, listed.resource_version)
        self._stores[kind] = store, listed.resource_version
        return listed

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """The object as it was listed. Raises NotFound."""
        found: T | None = self._of(kind)[0].get(Key(namespace, name))
        if found is None:
            raise NotFound(f"there is no {RESOURCES[kind].kind} {name} in {namespace}")
        return found

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        """All that match, ordered by namespace and name."""
        store, version = self._of(kind)
        return Listed(store.select(namespace, selection(kind, labels, fields)), version)

    def _of(self, kind: type[Slim]) -> tuple[Store[Any], str]:
        if kind not in self._stores:
            raise self._errors.get(kind) or NotFound(f"{RESOURCES[kind].plural} were not listed")
        return self._stores[kind]
