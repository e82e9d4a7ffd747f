"""
Between bytes and slim objects. Pure.

One object that does not fit its struct (a newer healthd may have written it) is left out of a list and told, because
thousands of others are worth more than it. Asked for by its name, it is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from healthd.cluster.port import Event, EventType, Invalid, Unavailable
from healthd.cluster.remote.answers import Status, failure
from healthd.core.objects import RESOURCES, AnyObject, Lease, Slim, to_wire

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


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    namespace: str = ""
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class Unreadable(NamedTuple):
    """An object that does not fit its struct."""

    kind: str
    namespace: str
    name: str
    reason: str


_RAW_PAGE = msgspec.json.Decoder(_RawPage)
_NAMED = msgspec.json.Decoder(_Named)
_LINE = msgspec.json.Decoder(_Line)


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


@cache
def _page_decoder(kind: type[T]) -> msgspec.json.Decoder[Page[T]]:
    return msgspec.json.Decoder(Page[kind])  # type: ignore[valid-type]  # made for each kind when it is first listed


def parse_object(kind: type[T], body: bytes) -> T:
    """Raises Invalid when it does not fit the struct, Unavailable when it is no JSON: not an API server's answer."""
    try:
        obj: T = _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        unreadable = _unreadable(kind, body, error)
        name = "/".join(part for part in (unreadable.namespace, unreadable.name) if part)
        raise Invalid(f"{unreadable.kind} {name}: cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise _foreign(body, error) from error
    return obj


def parse_page(kind: type[T], body: bytes) -> tuple[Page[T], list[Unreadable]]:
    """One page of a list, decoded in one pass, and what had to be left out. Raises Unavailable for what is no list."""
    try:
        return _page_decoder(kind).decode(body), []
    except msgspec.ValidationError:
        return _sifted(kind, body)
    except msgspec.DecodeError as error:
        raise _foreign(body, error) from error


def _sifted(kind: type[T], body: bytes) -> tuple[Page[T], list[Unreadable]]:
    try:
        page = _RAW_PAGE.decode(body)
    except msgspec.DecodeError as error:
        raise _foreign(body, error) from error
    items: list[T] = []
    unreadable: list[Unreadable] = []
    for raw in page.items or []:
        try:
            items.append(_decoder(kind).decode(raw))
        except msgspec.ValidationError as error:
            unreadable.append(_unreadable(kind, raw, error))
    return Page(page.metadata, items), unreadable


def parse_event(kind: type[T], line: bytes, where: str) -> tuple[Event[T], Unreadable | None]:
    """
    One line of a watch; an object that cannot be read becomes a bookmark of its version.

    Raises what an ERROR event stands for: Gone, or Unavailable.
    """
    try:
        told = _LINE.decode(line)
    except msgspec.DecodeError as error:
        raise _foreign(line, error) from error
    if told.type == "ERROR":
        raise failure(msgspec.json.decode(told.object, type=Status), where)
    if told.type == EventType.BOOKMARK:
        return Event(EventType.BOOKMARK, None, _version(told.object)), None
    try:
        obj: Any = _decoder(kind).decode(told.object)
    except msgspec.ValidationError as error:
        return Event(EventType.BOOKMARK, None, _version(told.object)), _unreadable(kind, told.object, error)
    return Event(EventType(told.type), obj, obj.metadata.resource_version), None


def _foreign(body: bytes, error: Exception) -> Unavailable:
    return Unavailable(f"not the answer of an API server: {error}: {body[:200].decode(errors='replace')}")


def _version(raw: msgspec.Raw) -> str:
    return _NAMED.decode(raw).metadata.resource_version


def _unreadable(kind: type[Slim], raw: msgspec.Raw | bytes, error: Exception) -> Unreadable:
    try:
        metadata = _NAMED.decode(raw).metadata
    except msgspec.MsgspecError:
        metadata = _Meta()
    return Unreadable(RESOURCES[kind].kind, metadata.namespace, metadata.name, str(error))


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
