"""The objects of one kind in memory, in order and indexed. No I/O, no clock."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from healthd.cluster.port import Fields, Labels
from healthd.cluster.selection import Selection
from healthd.core.api import ObjectMeta, Slim

T = TypeVar("T", bound=Slim)


class Key(NamedTuple):
    """Namespace and name of an object; keys sort in the order of a list."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(Generic[T]):
    """Which objects of a kind to cache, and how to index them."""

    kind: type[T]
    namespace: str | None = None
    labels: Labels | None = None
    fields: Fields | None = None
    indexes: Mapping[str, Callable[[T], Iterable[str]]] = field(default_factory=dict)
    """By name of the index: the values under which the index has an object."""
    trim: Callable[[T], T] | None = None
    """Removes fields that are never read here, before an object is stored."""


class Change(NamedTuple):
    """An object that was added, changed or deleted, as a watch or a new list showed it."""

    kind: type[Slim]
    key: Key
    obj: Any
    """Its state now; None: it is gone."""
    last: Any
    """The last known state of an object that is gone: it was deleted, or another of the same name has replaced it."""
    version: str
    """The resource version of this change."""


class Store(Generic[T]):
    """Stores the objects of one watch."""

    def __init__(self, watched: Watched[T]) -> None:
        self.watched = watched
        self._objects: dict[Key, T] = {}
        self._order: list[Key] = []
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {name: defaultdict(dict) for name in watched.indexes}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def select(self, namespace: str | None, selection: Selection) -> list[T]:
        """
        All that match, ordered by namespace and name. This reads every object in the namespace, unless an index has the
        name of a label of the selection.
        """
        for label, value in selection.labels.items():
            if label in self._indexes and value is not None:
                found = self.indexed(label, value)
                return [obj for obj in found if namespace in (None, key_of(obj).namespace) and selection.matches(obj)]
        keys = self._order
        if namespace is not None:
            first, end = bisect_left(keys, Key(namespace, "")), bisect_left(keys, Key(namespace + "\0", ""))
            keys = keys[first:end]
        objects = [self._objects[key] for key in keys]
        return [obj for obj in objects if selection.matches(obj)] if selection else objects

    def indexed(self, index: str, value: str) -> list[T]:
        """The objects under *value* of an index, ordered by namespace and name."""
        return [obj for _, obj in sorted(self._indexes[index].get(value, {}).items(), key=lambda item: item[0])]

    def put(self, obj: T, version: str) -> Change:
        """Store the newest state of an object. With another uid under the same name, the old object was deleted."""
        obj = self.watched.trim(obj) if self.watched.trim else obj
        key = key_of(obj)
        former = self._objects.get(key)
        if former is None:
            insort(self._order, key)
        else:
            self._unindex(key, former)
        self._objects[key] = obj
        for index, values in self.watched.indexes.items():
            for value in values(obj):
                self._indexes[index][value][key] = obj
        is_another = former is not None and _meta(former).uid != _meta(obj).uid
        return Change(self.watched.kind, key, obj, former if is_another else None, version)

    def drop(self, obj: T, version: str) -> Change:
        """Remove *obj*, which is gone; *obj* is its last state."""
        obj = self.watched.trim(obj) if self.watched.trim else obj
        self._remove(key_of(obj))
        return Change(self.watched.kind, key_of(obj), None, obj, version)

    def replace(self, items: Iterable[T], version: str, *, unreadable: Collection[Key] = ()) -> list[Change]:
        """
        Replace all objects with *items*. Returns what changed; a missing object was deleted between two watch events.

        An *unreadable* object exists, and stays as it was last seen.
        """
        fresh = {key_of(obj): obj for obj in items}
        vanished = [obj for key, obj in self._objects.items() if key not in fresh and key not in unreadable]
        gone = [self.drop(obj, version) for obj in vanished]
        return gone + [self.put(obj, version) for key, obj in fresh.items() if not self._has(key, obj)]

    def _has(self, key: Key, obj: T) -> bool:
        held = self._objects.get(key)
        return held is not None and _meta(held).resource_version == _meta(obj).resource_version

    def _remove(self, key: Key) -> None:
        held = self._objects.pop(key, None)
        if held is not None:
            self._unindex(key, held)
            del self._order[bisect_left(self._order, key)]

    def _unindex(self, key: Key, obj: T) -> None:
        for index, values in self.watched.indexes.items():
            for value in values(obj):
                _discard(self._indexes[index], value, key)


def key_of(obj: Slim) -> Key:
    """The key of *obj*."""
    meta = _meta(obj)
    return Key(meta.namespace, meta.name)


def _meta(obj: Any) -> ObjectMeta:
    meta: ObjectMeta = obj.metadata
    return meta


def _discard(index: dict[str, dict[Any, T]], value: str, key: Any) -> None:
    held = index.get(value)
    if held is not None:
        held.pop(key, None)
        if not held:
            del index[value]
