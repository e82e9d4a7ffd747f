"""
Between the bytes of an API server and slim objects. Pure.

An object that does not fit its struct is left out of a list, and told (`healthd.cluster.decoding`). Asked for by its
name, it is an error.
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
    """Of one page of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """Some objects of a list."""

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
def _page_decoder(kind: type[T]) -> msgspec.json.Decoder[Page[T]]:
    return msgspec.json.Decoder(Page[kind])  # type: ignore[valid-type]  # made for each kind when it is first listed


def parse_object(kind: type[T], body: bytes) -> T:
    """Raises Invalid when it does not fit the struct, Unavailable when it is no JSON: not an API server's answer."""
    try:
        obj = decoded(kind, body)
    except msgspec.DecodeError as error:
        raise _foreign(body, error) from error
    if isinstance(obj, Unreadable):
        name = "/".join(part for part in (obj.namespace, obj.name) if part)
        raise Invalid(f"{obj.kind} {name}: cannot be read: {obj.reason}")
    return obj


def parse_page(kind: type[T], body: bytes) -> tuple[Page[T], list[Unreadable]]:
    """One page of a list, decoded in one pass, and what had to be left out. Raises Unavailable for what is no list."""
    try:
        return _page_decoder(kind).decode(body), []
    except (msgspec.ValidationError, RecursionError):
        return _sifted(kind, body)
    except msgspec.DecodeError as error:
        raise _foreign(body, error) from error


def _sifted(kind: type[T], body: bytes) -> tuple[Page[T], list[Unreadable]]:
    try:
        page = _RAW_PAGE.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _foreign(body, error) from error
    items, unreadable = decoded_all(kind, page.items or [])
    return Page(page.metadata, items), unreadable


def parse_event(kind: type[T], line: bytes, where: str) -> Event[T]:
    """
    One line of a watch; an object that cannot be read becomes a bookmark of its version.

    Raises what an ERROR event stands for: Gone, or Unavailable.
    """
    try:
        told = _LINE.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _foreign(line, error) from error
    if told.type == "ERROR":
        raise failure(msgspec.json.decode(told.object, type=Status), where)
    if told.type == EventType.BOOKMARK:
        return Event(EventType.BOOKMARK, None, version_in(told.object))
    obj: Any = decoded(kind, told.object)
    if isinstance(obj, Unreadable):
        return Event(EventType.BOOKMARK, None, version_in(told.object), obj, told.type == EventType.DELETED)
    return Event(EventType(told.type), obj, obj.metadata.resource_version)


def _foreign(body: bytes, error: Exception) -> Unavailable:
    return Unavailable(f"not the answer of an API server: {error}: {body[:200].decode(errors='replace')}")


def new_body(obj: Slim) -> bytes:
    """The body that creates *obj*. Raises Invalid for one with a version: a server would blame itself."""
    metadata: Any = obj.metadata  # type: ignore[attr-defined]  # every kind that is kept has it
    if metadata.resource_version:
        kind = RESOURCES[type(obj)].kind
        raise Invalid(f"{kind} {metadata.name}: metadata.resourceVersion: must not be set on an object to be created")
    return _ENCODER.encode(_with_exact_times(type(obj), to_wire(cast("AnyObject", obj))))


def patch_body(kind: type[Slim], patch: Mapping[str, Any], *, resource_version: str, uid: str) -> bytes:
    """A merge patch that holds only for this version and uid: its metadata names them."""
    seen = {"resourceVersion": resource_version, "uid": uid}
    metadata = {**(patch.get("metadata") or {}), **{key: value for key, value in seen.items() if value}}
    whole = {**patch, "metadata": metadata} if metadata else dict(patch)
    return _ENCODER.encode(_with_exact_times(kind, msgspec.to_builtins(whole)))


def deletion_body(*, uid: str, resource_version: str, grace_seconds: int | None) -> bytes:
    """Options of a deletion. Dependents go in the server's own time."""
    preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    options: dict[str, Any] = {"propagationPolicy": "Background"}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return _ENCODER.encode(options)


def eviction_body(name: str, namespace: str, *, grace_seconds: int | None) -> bytes:
    """An eviction, by the rules of deletion."""
    options = {} if grace_seconds is None else {"deleteOptions": {"gracePeriodSeconds": grace_seconds}}
    metadata = {"name": name, "namespace": namespace}
    return _ENCODER.encode({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, **options})


def _with_exact_times(kind: type[Slim], body: dict[str, Any]) -> dict[str, Any]:
    """A Lease's times are of another type than all others: the server reads them only with their microseconds."""
    spec = body.get("spec")
    if kind is not Lease or not isinstance(spec, dict):
        return body
    exact = {
        key: spec[key].replace("Z", ".000000Z")
        for key in ("acquireTime", "renewTime")
        if isinstance(spec.get(key), str) and "." not in spec[key]
    }
    return {**body, "spec": {**spec, **exact}}
