"""
The interface to Kubernetes: a few verbs on slim typed objects, and the errors that they raise.

Every implementation behaves as an API server does; `tests/contract` states that behaviour. A write that times out
may or may not have taken effect: callers read again and rely on preconditions, never on an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from healthd.core.api import Slim

T = TypeVar("T", bound=Slim)


class ClusterError(Exception):
    """
    Something went wrong at the cluster.

        ClusterError
        ├── NotFound         404
        ├── AlreadyExists    409 on create
        ├── Conflict         409: a precondition (resourceVersion, uid) did not hold
        ├── Gone             410: the watch history no longer reaches back that far; list again
        ├── Refused          it had no effect, and would have none at once again
        │   ├── Invalid        400, 422: the object, patch or selector is not acceptable; says which field and why
        │   ├── Forbidden      403: the caller may not do this; says who, what and where
        │   └── WebhookFailed  500: an admission webhook of the cluster does not answer, and nothing passes without it
        ├── TooManyRequests  429: an overloaded server
        ├── Unavailable      no answer, or a time-out: a write may or may not have taken effect
        └── Unusable         it will never answer again: the process that gets it must end
    """


class NotFound(ClusterError): ...


class AlreadyExists(ClusterError): ...


class Conflict(ClusterError): ...


class Gone(ClusterError): ...


class Refused(ClusterError): ...


class Invalid(Refused): ...


class Forbidden(Refused): ...


class WebhookFailed(Refused): ...


class TooManyRequests(ClusterError): ...


class Unavailable(ClusterError): ...


class Unusable(ClusterError): ...


class EventType(StrEnum):
    """What a watch event says about its object."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    """No object changed: the watch is alive, and has sent everything up to `resource_version`."""


class Unreadable(NamedTuple):
    """An object that exists and does not fit its struct."""

    kind: str
    namespace: str
    name: str
    reason: str


class Event(msgspec.Struct, Generic[T], frozen=True):
    """One change. `obj` is None on a bookmark; on DELETED it is the last state."""

    type: EventType
    obj: T | None
    resource_version: str
    unreadable: Unreadable | None = None
    """On a bookmark: the event is a change of this object."""
    is_gone: bool = False
    """The unreadable object was deleted."""


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """What `list` returns: a consistent snapshot, and the version to watch from."""

    items: list[T]
    resource_version: str
    unreadable: list[Unreadable] = []
    """Objects that match and are not among the items."""


Labels = Mapping[str, str | None]
"""Selects objects that carry all these labels with these values; None: with any value."""
Fields = Mapping[str, str]
"""
Selects objects by `metadata.name` and `metadata.namespace`, pods also by `spec.nodeName` and `status.phase`.

An API server knows no other fields; it refuses them with Invalid.
"""


class Reader(Protocol):
    """
    The verbs that read at one moment: decisions use these.

    *namespace* is empty for kinds of cluster scope; for `list` None means all namespaces.
    """

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T:
        """The object. Raises NotFound."""
        ...

    async def list(
        self, kind: type[T], *, namespace: str | None = None, labels: Labels | None = None, fields: Fields | None = None
    ) -> Listed[T]:
        """All objects that match, ordered by namespace and name."""
        ...


class Cluster(Reader, Protocol):
    """All verbs. *namespace* is empty for kinds of cluster scope; for `list` and `watch` None means all namespaces."""

    def watch(
        self,
        kind: type[T],
        *,
        since: str,
        namespace: str | None = None,
        labels: Labels | None = None,
        fields: Fields | None = None,
    ) -> AsyncIterator[Event[T]]:
        """Every change after version *since*, in order, without end. Raises Gone when history does not reach back."""
        ...

    async def create(self, obj: T, *, dry_run: bool = False) -> T:
        """
        Create a new object; `status` is dropped where it is a subresource. Raises AlreadyExists, Invalid.

        With *dry_run* nothing is written: the answer says whether it would be. AlreadyExists is then the last of all
        checks, so it also says that all others passed.
        """
        ...

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
        """
        Apply a JSON merge patch (RFC 7386: None deletes a key, a list replaces the list) in wire spelling.

        With *subresource* `status` only `status` changes; without it `status` is left alone. A patch that changes
        nothing keeps the resource version. Raises NotFound, Conflict, Invalid.
        """
        ...

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
        """
        Ask for deletion. A pod that was bound to a node gets a deletionTimestamp and stays until its kubelet deletes
        it with *grace_seconds* 0; an object with finalizers stays until the last one is patched away.
        Raises NotFound, Conflict.

        What it owns is deleted after it. With *dependents_first* it stays, being deleted, until all of them are gone
        that block their owner's deletion. With *dry_run* nothing is written.
        """
        ...


class KindAccess(NamedTuple):
    """Whether the caller can work with a kind."""

    is_served: bool
    """Whether the API server knows the kind."""
    missing: tuple[str, ...] = ()
    """The verbs that the caller lacks, of those that were asked about."""


class AccessReader(Protocol):
    """Tells a kind that is not installed from one that the caller may not use: a list says Forbidden for both."""

    async def access_to(self, kind: type[Slim], verbs: Sequence[str]) -> KindAccess:
        """What the caller can do with all objects of *kind*. Raises ClusterError where it may not be asked."""
        ...
