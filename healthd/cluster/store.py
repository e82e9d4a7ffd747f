"""
The objects of one kind in memory: in order, indexed, and the last states of those that are gone. No I/O, no clock.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from healthd.cluster.port import Fields, Labels
from healthd.cluster.selection import Selection
from healthd.core.api import ObjectMeta, Slim

T = TypeVar("T", bound=Slim)

_FOR_LIFE = {"metadata.name", "metadata.namespace", "spec.nodeName"}
"""An object that was selected by these stays selected until it is deleted."""


class Key(NamedTuple):
    """Where an object is found; keys sort as a list is ordered."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched(Generic[T]):
    """Which objects of a kind to keep, and how to find them."""

    kind: type[T]
    namespace: str | None = None
    labels: Labels | None = None
    fields: Fields | None = None
    indexes: Mapping[str, Callable[[T], Iterable[str]]] = field(default_factory=dict)
    """By name of the index: the values under which an object is found in it."""
    trim: Callable[[T], T] | None = None
    """Takes away what nobody here reads, before an object is kept."""
    remember: int = 0
    """So many last states of departed objects are kept at most."""
    remember_for: timedelta = timedelta(hours=1)
    """And no longer than this."""

    @property
    def is_for_life(self) -> bool:
        """What was selected once leaves only by deletion."""
        return not self.labels and _FOR_LIFE.issuperset(self.fields or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone(Generic[T]):
    """An object that is gone, in its last known state."""

    obj: T
    at: datetime
    """When it was noticed."""
    seen_deleted: bool
    """The watch told of the deletion. False: it was missing in a later list, or it may only have lost its labels."""


class Store(Generic[T]):
    """Holds what one watch shows."""

    def __init__(self, watched: Watched[T]) -> None:
        self.watched = watched
        self._objects: dict[Key, T] = {}
        self._order: list[Key] = []
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {name: defaultdict(dict) for name in watched.indexes}
        self._departed: OrderedDict[str, Tombstone[T]] = OrderedDict()
        self._departed_by: dict[str, dict[str, dict[str, T]]] = {name: defaultdict(dict) for name in watched.indexes}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        """The object, or None."""
        return self._objects.get(key)

    def select(self, namespace: str | None, selection: Selection) -> list[T]:
        """
        What matches, ordered by namespace and name. Looks at everything in the namespace, unless there is an index that
        is called as a label of the selection.
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

    def tombstone(self, uid: str) -> Tombstone[T] | None:
        """The last state of an object that is gone, if it is remembered."""
        return self._departed.get(uid)

    def departed_of(self, index: str, value: str) -> list[Tombstone[T]]:
        """The last states under *value* of an index, of those that are remembered; the first to go first."""
        return [self._departed[uid] for uid in self._departed_by[index].get(value, {})]

    def put(self, obj: T, now: datetime) -> Key:
        """Keep the newest state of an object. A namesake in its place has departed unseen."""
        obj = self.watched.trim(obj) if self.watched.trim else obj
        key = key_of(obj)
        former = self._objects.get(key)
        if former is None:
            insort(self._order, key)
        else:
            self._unindex(key, former)
            if _meta(former).uid != _meta(obj).uid:
                self._remember(former, now, seen_deleted=False)
        self._objects[key] = obj
        for index, values in self.watched.indexes.items():
            for value in values(obj):
                self._indexes[index][value][key] = obj
        return key

    def drop(self, obj: T, now: datetime) -> Key:
        """The watch told that *obj*, in its last state, is gone."""
        obj = self.watched.trim(obj) if self.watched.trim else obj
        key = key_of(obj)
        self._remove(key)
        self._remember(obj, now, seen_deleted=self.watched.is_for_life)
        return key

    def replace(self, items: Iterable[T], now: datetime, *, unreadable: Collection[Key] = ()) -> list[Key]:
        """
        A new list: what vanished has departed unseen. Answers the keys of all that is not as it was.

        What is *unreadable* is there, and stays as it was last seen.
        """
        fresh = {key_of(obj): obj for obj in items}
        vanished = [key for key in self._objects if key not in fresh and key not in unreadable]
        for key in vanished:
            self._remember(self._objects[key], now, seen_deleted=False)
            self._remove(key)
        changed = [key for key, obj in fresh.items() if not self._has(key, obj)]
        for key in changed:
            self.put(fresh[key], now)
        return vanished + changed

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

    def _remember(self, obj: T, now: datetime, *, seen_deleted: bool) -> None:
        if not self.watched.remember:
            return
        uid = _meta(obj).uid
        self._forget(uid)
        self._departed[uid] = Tombstone(obj=obj, at=now, seen_deleted=seen_deleted)
        for index, values in self.watched.indexes.items():
            for value in values(obj):
                self._departed_by[index][value][uid] = obj
        self.forget_old(now)

    def forget_old(self, now: datetime) -> None:
        """Keep the memory of the departed within its bounds."""
        while self._departed:
            uid, first = next(iter(self._departed.items()))
            if len(self._departed) <= self.watched.remember and now - first.at <= self.watched.remember_for:
                return
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        former = self._departed.pop(uid, None)
        if former is not None:
            for index, values in self.watched.indexes.items():
                for value in values(former.obj):
                    _discard(self._departed_by[index], value, uid)


def key_of(obj: Slim) -> Key:
    """Where *obj* is found."""
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
