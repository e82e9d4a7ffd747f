"""
Convert between the bytes of an API server and slim objects. Pure.

An object that does not fit its struct is left out of a list, and reported (`healthd.cluster.decoding`). A read of such
an object by name is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from healthd.cluster.decoding import decoded, decoded_all, version_in
from healthd.cluster.port import Event, EventType, Invalid, Unavailable, Unreadable
from healthd.cluster.remote.answers import Status, failure
from healthd.core.api import RESOURCES, AnyObject, Lease, Slim, to_wire

T = TypeVar("T", bound=Slim)

_ENCODER = msgspec.json.Encoder()


class PageMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of one page of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: PageMeta
    items: list[T] | None = None


class _RawPage(msgspec.Struct, frozen=True):
    metadata: PageMeta
    items: list[msgspec.Raw] | None = None


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


_RAW_PAGE = msgspec.json.Decoder(_RawPage)
_LINE = msgspec.json.Decoder(_Line)


@cache
def _page_decoder(kind: type[T]) -> msgspec.json.Decoder[ListPage[T]]:
    return msgspec.json.Decoder(ListPage[kind])  # type: ignore[valid-type]  # created for each kind at its first list


def parse_object(kind: type[T], body: bytes) -> T:
    """The object. Raises Invalid when it does not fit the struct, Unavailable when *body* is not an answer in JSON."""
    try:
        obj = decoded(kind, body)
    except msgspec.DecodeError as error:
        raise _foreign(body, error) from error
    if isinstance(obj, Unreadable):
        name = "/".join(part for part in (obj.namespace, obj.name) if part)
        raise Invalid(f"{obj.kind} {name}: cannot be read: {obj.reason}")
    return obj


def parse_page(kind: type[T], body: bytes) -> tuple[ListPage[T], list[Unreadable]]:
    """One page of a list, decoded in one pass, and the objects left out. Raises Unavailable when it is not a list."""
    try:
        return _page_decoder(kind).decode(body), []
    except (msgspec.ValidationError, RecursionError):
        return _sifted(kind, body)
    except msgspec.DecodeError as error:
        raise _foreign(body, error) from error


def _sifted(kind: type[T], body: bytes) -> tuple[ListPage[T], list[Unreadable]]:
    try:
        page = _RAW_PAGE.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _foreign(body, error) from error
    items, unreadable = decoded_all(kind, page.items or [])
    return ListPage(page.metadata, items), unreadable


def parse_event(kind: type[T], line: bytes, where: str) -> Event[T]:
    """
    One line of a watch; an unreadable object becomes a bookmark of its version.

    Raises the error in an ERROR event: Gone, or Unavailable.
    """
    try:
        event = _LINE.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _foreign(line, error) from error
    if event.type == "ERROR":
        raise failure(msgspec.json.decode(event.object, type=Status), where)
    if event.type == EventType.BOOKMARK:
        return Event(EventType.BOOKMARK, None, version_in(event.object))
    obj: Any = decoded(kind, event.object)
    if isinstance(obj, Unreadable):
        return Event(EventType.BOOKMARK, None, version_in(event.object), obj, event.type == EventType.DELETED)
    return Event(EventType(event.type), obj, obj.metadata.resource_version)


def _foreign(body: bytes, error: Exception) -> Unavailable:
    return Unavailable(f"not the answer of an API server: {error}: {body[:200].decode(errors='replace')}")


def new_body(obj: Slim) -> bytes:
    """The body that creates *obj*. Raises Invalid if it has a version: a server answers that with a server error."""
    metadata: Any = obj.metadata  # type: ignore[attr-defined]  # every kind that is kept has it
    if metadata.resource_version:
        kind = RESOURCES[type(obj)].kind
        raise Invalid(f"{kind} {metadata.name}: metadata.resourceVersion: must not be set on an object to be created")
    return _ENCODER.encode(_with_exact_times(type(obj), to_wire(cast("AnyObject", obj))))


def patch_body(kind: type[Slim], patch: Mapping[str, Any], *, resource_version: str, uid: str) -> bytes:
    """A merge patch with preconditions: its metadata has the version and uid that the object must have."""
    seen = {"resourceVersion": resource_version, "uid": uid}
    metadata = {**(patch.get("metadata") or {}), **{key: value for key, value in seen.items() if value}}
    whole = {**patch, "metadata": metadata} if metadata else dict(patch)
    return _ENCODER.encode(_with_exact_times(kind, msgspec.to_builtins(whole)))


def deletion_body(
    *,
    uid: str,
    resource_version: str,
    grace_seconds: int | None,
    dependents_first: bool = False,
    dry_run: bool = False,
) -> bytes:
    """
    Options of a deletion. The server deletes dependents in the background, or before the object itself.

    That it is a dry run has to be said here: where a deletion has a body, the server takes no notice of its query.
    """
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options: dict[str, Any] = {"propagationPolicy": "Foreground" if dependents_first else "Background"}
    if preconditions:
        options["preconditions"] = preconditions
    if dry_run:
        options["dryRun"] = ["All"]
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return _ENCODER.encode(options)


def _with_exact_times(kind: type[Slim], body: dict[str, Any]) -> dict[str, Any]:
    """The times of a Lease have a type of their own: the server reads them only with microseconds."""
    spec = body.get("spec")
    if kind is not Lease or not isinstance(spec, dict):
        return body
    exact = {
        key: spec[key].replace("Z", ".000000Z")
        for key in ("acquireTime", "renewTime")
        if isinstance(spec.get(key), str) and "." not in spec[key]
    }
    return {**body, "spec": {**spec, **exact}}
