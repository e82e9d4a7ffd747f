"""
The embedded cluster: the port's verbs over a store, its rules and its watchers. `healthd.cluster.port` is the contract.

No verb awaits between its read and its commit, and every answer comes from the store: what was decoded for a list is
kept only as long as the version of the store says that nothing was written. Garbage collection removes dependents in
the same transaction as their owner.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar, cast

import msgspec

from healthd.clock import Clock
from healthd.cluster.decoding import decoded, decoded_all
from healthd.cluster.embedded import names, rules
from healthd.cluster.embedded.rules import Wire
from healthd.cluster.embedded.store import RowKey, SqliteStore
from healthd.cluster.embedded.watch import Watchers, selected
from healthd.cluster.port import AlreadyExists, Event, EventType, Fields, Invalid, Labels, Listed, NotFound, Unreadable
from healthd.cluster.selection import selectable, selection
from healthd.core.api import RESOURCES, AnyObject, Resource, Slim, to_wire

T = TypeVar("T", bound=Slim)

_WIRE: msgspec.json.Decoder[Wire] = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()
_WATCH_BATCH = 256
"""Changes that a watch reads into memory at once."""
_NAME_TRIES = 8
"""How often `generateName` tries again when a name is in use."""


class _Decoded(NamedTuple):
    """All objects of a kind in one namespace, or in all, at a version of the store."""

    version: int
    items: Sequence[Any]
    unreadable: Sequence[Unreadable]


class EmbeddedCluster:
    """A `Cluster` in one file, or in memory. For one thread and one event loop."""

    def __init__(self, store: SqliteStore, clock: Clock, new_uid: Callable[[], str], *, bookmark_every: int) -> None:
        self._store = store
        self._clock = clock
        self._new_uid = new_uid
        self._watchers = Watchers(store, clock, bookmark_every=bookmark_every)
        self._decoded: dict[tuple[type[Slim], str | None], _Decoded] = {}
        """By kind and namespace. Loops list the same objects each second, and mostly none has changed."""

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        clock: Clock,
        new_uid: Callable[[], str],
        history: int = 10_000,
        durable: bool = True,
    ) -> Self:
        """
        Open or create the store at *path*; None keeps everything in memory.

        *history* is how many changes a watch can go back. Without *durable*, a power loss may lose the newest writes;
        kill -9 never does. Raises UnusableStore.
        """
        store = SqliteStore(path, history=history, durable=durable)
        return cls(store, clock, new_uid, bookmark_every=max(1, history // 10))

    def close(self) -> None:
        """Close the store. Running watches end with Unavailable."""
        self._store.close()
        self._watchers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """The object. Raises NotFound."""
        resource = RESOURCES[kind]
        return _decoded(kind, self._body(resource, RowKey(resource.stored_as, namespace, name)))

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        """All objects that match, ordered by namespace and name, and the version at which they were read."""
        wanted = selection(kind, labels, fields)
        found = self._read_all(kind, namespace)
        return Listed([each for each in found.items if wanted.matches(each)], str(found.version), [*found.unreadable])

    def _read_all(self, kind: type[Slim], namespace: str | None) -> _Decoded:
        with self._store.snapshot():
            version, known = self._store.head(), self._decoded.get((kind, namespace))
            if known is not None and known.version == version:
                return known
            bodies = self._store.read_all(RESOURCES[kind].stored_as, namespace)
        self._decoded[kind, namespace] = found = _Decoded(version, *decoded_all(kind, bodies))
        return found

    async def watch(
        self,
        kind: type[T],
        *,
        since: str,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> AsyncIterator[Event[T]]:
        """Every change after version *since*, in order, without end. Raises Gone when history does not reach back."""
        plural, sent, wanted = RESOURCES[kind].stored_as, _parsed_version(since), selection(kind, labels, fields)
        patience = 1  # first a bookmark for all that was skipped; later only when much was
        with self._watchers.enlisted(plural, sent) as watcher:
            while True:
                watcher.bell.clear()
                changes, upto = self._store.changes(plural, namespace, watcher.position, _WATCH_BATCH)
                for change in changes:
                    if event := selected(change, wanted, kind):
                        sent = change.version
                        yield event
                watcher.position = upto
                if len(changes) == _WATCH_BATCH:
                    continue
                if upto - sent >= patience:
                    sent = upto
                    yield Event(EventType.BOOKMARK, None, str(upto))
                patience = self._watchers.bookmark_every
                await watcher.bell.wait()

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        """Create a new object; `status` is dropped where it is a subresource. Raises AlreadyExists, Invalid."""
        kind, resource = type(obj), RESOURCES[type(obj)]
        body = to_wire(cast("AnyObject", obj))
        with self._writing():
            named = self._named(resource, body)
            stored = rules.created(resource, named, uid=self._new_uid(), now=self._clock.now())
            key = _key(resource, stored)
            if self._store.read(key) is not None:
                raise AlreadyExists(f"{rules.describe(resource, stored['metadata'])} already exists")
            if dry_run:
                return _reread(kind, stored)
            made = self._insert(key, stored)
            self._adopt(key, stored)
        return _decoded(kind, made)

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
        """Apply a JSON merge patch. Raises NotFound, Conflict, Invalid."""
        resource = RESOURCES[kind]
        key = RowKey(resource.stored_as, namespace, name)
        wanted: Wire = msgspec.to_builtins(dict(patch))
        with self._writing():
            body = self._body(resource, key)
            old = _WIRE.decode(body)
            rules.check_preconditions(resource, old, uid=uid, resource_version=resource_version)
            seen = (wanted.get("metadata") or {}).get("resourceVersion") or ""
            rules.check_preconditions(resource, old, resource_version=seen)
            new = rules.patched(resource, old, wanted, subresource)
            if new is old or (rules.is_same(new, old) and _reread(kind, new) == _decoded(kind, body)):
                return _decoded(kind, body)
            _reread(kind, new)  # refuses an object that does not fit the kind, before anything is written
            return _decoded(kind, self._replace(key, old, new))

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
        """Ask for deletion, graceful where a kubelet or a finalizer must act first. Raises NotFound, Conflict."""
        resource = RESOURCES[kind]
        key = RowKey(resource.stored_as, namespace, name)
        with self._writing():
            old = _WIRE.decode(self._body(resource, key))
            rules.check_preconditions(resource, old, uid=uid, resource_version=resource_version)
            if dry_run:
                return
            blocking = self._store.dependents(old["metadata"]["uid"]) if dependents_first else []
            self._delete(key, rules.kept_by_dependents(old) if blocking else old, grace_seconds)
            for dependent in blocking:
                self._delete(dependent, _WIRE.decode(self._store.read(dependent) or b"{}"), None)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._store.transaction():
            yield
        self._watchers.wake()

    def _body(self, resource: Resource, key: RowKey) -> bytes:
        body = self._store.read(key)
        if body is None:
            raise NotFound(f"{rules.describe(resource, {'namespace': key.namespace, 'name': key.name})} not found")
        return body

    def _named(self, resource: Resource, body: Wire) -> Wire:
        """*body* with a generated name, where it has `generateName` and no name."""
        metadata = body["metadata"]
        prefix = metadata.get("generateName", "")
        if metadata.get("name") or not prefix:
            return body
        for _ in range(_NAME_TRIES):
            named = {**body, "metadata": {**metadata, "name": names.generated_name(prefix, self._new_uid())}}
            if self._store.read(_key(resource, named)) is None:
                return named
        raise AlreadyExists(f"{resource.kind}: {_NAME_TRIES} names drawn for generateName {prefix!r} were all taken")

    def _insert(self, key: RowKey, body: Wire) -> bytes:
        version, content = self._stamped(body)
        self._store.insert(key, body["metadata"]["uid"], version, content)
        return content

    def _replace(self, key: RowKey, old: Wire, new: Wire) -> bytes:
        """Write a changed object, or remove it when the change removed the last thing that kept it."""
        if rules.is_finished(new):
            return self._remove(key, new)
        may_be_selected_otherwise = selectable(new) != selectable(old)
        version, content = self._stamped(new)
        self._store.update(key, version, content, _ENCODER.encode(old) if may_be_selected_otherwise else None)
        if rules.owner_uids(new) != rules.owner_uids(old):
            self._adopt(key, new)
        return content

    def _remove(self, key: RowKey, body: Wire) -> bytes:
        version, content = self._stamped(body)
        self._store.remove(key, version, content)
        self._store.set_owners(key, ())
        self._collect(self._store.dependents(body["metadata"]["uid"]))
        for owner in body["metadata"].get("ownerReferences", ()):
            self._release(owner, key.namespace)
        return content

    def _release(self, owner: Wire, namespace: str) -> None:
        """Let *owner* go, if it is being deleted and waited for the last of its dependents."""
        named = (each for each in RESOURCES.values() if each.kind == owner["kind"])
        for resource in {each.stored_as: each for each in named}.values():
            key = RowKey(resource.stored_as, namespace if resource.namespaced else "", owner["name"])
            old = _WIRE.decode(self._store.read(key) or b"{}")
            is_it = old.get("metadata", {}).get("uid") == owner["uid"]
            if is_it and rules.is_kept_by_dependents(old) and not self._store.dependents(owner["uid"]):
                self._replace(key, old, rules.released_by_dependents(old))

    def _delete(self, key: RowKey, old: Wire, grace_seconds: int | None) -> None:
        new = rules.deleted(_by_plural(key.plural), old, now=self._clock.now(), grace_seconds=grace_seconds)
        if new is None:
            self._remove(key, old)
        elif new is not old:
            self._replace(key, old, new)

    def _adopt(self, key: RowKey, body: Wire) -> None:
        owners = rules.owner_uids(body)
        self._store.set_owners(key, owners)
        if owners:
            self._collect([key])

    def _collect(self, keys: builtins.list[RowKey]) -> None:
        """Delete the objects at *keys* whose owners are all gone."""
        for key in keys:
            body = self._store.read(key)
            if body is None:
                continue
            old = _WIRE.decode(body)
            owners = rules.owner_uids(old)
            if owners and not any(self._store.has_uid(uid) for uid in owners):
                self._delete(key, old, None)

    def _stamped(self, body: Wire) -> tuple[int, bytes]:
        """The next version, and *body* encoded with it."""
        version = self._store.head() + 1
        return version, _ENCODER.encode({**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}})


def _by_plural(plural: str) -> Resource:
    return next(each for each in RESOURCES.values() if each.stored_as == plural)


def _key(resource: Resource, body: Wire) -> RowKey:
    metadata = body["metadata"]
    return RowKey(resource.stored_as, metadata.get("namespace", ""), metadata.get("name", ""))


def _decoded(kind: type[T], body: bytes) -> T:
    obj = decoded(kind, body)
    if isinstance(obj, Unreadable):
        raise Invalid(f"{obj.kind} {obj.name}: cannot be read: {obj.reason}")
    return obj


def _reread(kind: type[T], body: Wire) -> T:
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"{rules.describe(RESOURCES[kind], body['metadata'])}: {error}") from error


def _parsed_version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise Invalid(f"resourceVersion {text!r} is not one that a list or an event has given")
    return int(text)
