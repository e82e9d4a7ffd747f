"""
Decode objects from bytes. Pure.

An object that does not fit its struct (written by a newer healthd, or by an attacker) is reported and left out: it must
not block thousands of others.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TypeVar

import msgspec

from healthd.cluster.port import Unreadable
from healthd.core.api import RESOURCES, Slim

T = TypeVar("T", bound=Slim)


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    namespace: str = ""
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_NAMED = msgspec.json.Decoder(_Named)


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def decoded(kind: type[T], raw: msgspec.Raw | bytes) -> T | Unreadable:
    """The object in *raw*, or why it is unreadable. Raises msgspec.DecodeError when *raw* is not JSON."""
    try:
        obj: T = _decoder(kind).decode(raw)
    except (msgspec.ValidationError, RecursionError) as error:
        meta = _meta(raw)
        return Unreadable(RESOURCES[kind].kind, meta.namespace, meta.name, str(error))
    return obj


def decoded_all(kind: type[T], bodies: Iterable[msgspec.Raw | bytes]) -> tuple[list[T], list[Unreadable]]:
    """The readable objects in *bodies*, and the unreadable ones."""
    items: list[T] = []
    left_out: list[Unreadable] = []
    for body in bodies:
        each = decoded(kind, body)
        if isinstance(each, Unreadable):
            left_out.append(each)
        else:
            items.append(each)
    return items, left_out


def version_in(raw: msgspec.Raw | bytes) -> str:
    """The resource version of an object, also of an unreadable one; empty when it cannot be read either."""
    return _meta(raw).resource_version


def _meta(raw: msgspec.Raw | bytes) -> _Meta:
    try:
        return _NAMED.decode(raw).metadata
    except (msgspec.MsgspecError, RecursionError):
        return _Meta()
