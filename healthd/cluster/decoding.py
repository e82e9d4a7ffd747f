"""
Objects from bytes. Pure.

One object that does not fit its struct (a newer healthd may have written it, or somebody who means harm) is told and
left out, because thousands of others are worth more than it.
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
    """The object in *raw*, or why it is none. Raises msgspec.DecodeError for what is no JSON."""
    try:
        obj: T = _decoder(kind).decode(raw)
    except (msgspec.ValidationError, RecursionError) as error:
        meta = _meta(raw)
        return Unreadable(RESOURCES[kind].kind, meta.namespace, meta.name, str(error))
    return obj


def decoded_all(kind: type[T], bodies: Iterable[msgspec.Raw | bytes]) -> tuple[list[T], list[Unreadable]]:
    """The objects in *bodies*, and those that are none."""
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
    """The version of an object that need not be readable otherwise; empty where not even that is."""
    return _meta(raw).resource_version


def _meta(raw: msgspec.Raw | bytes) -> _Meta:
    try:
        return _NAMED.decode(raw).metadata
    except (msgspec.MsgspecError, RecursionError):
        return _Meta()
