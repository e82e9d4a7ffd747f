"""JSON merge patches (RFC 7386): what to send so that one wire object becomes another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


def diff(old: msgspec.Struct, new: msgspec.Struct) -> dict[str, Any]:
    """The merge patch from *old* to *new*; empty when nothing changed. A changed list is sent as a whole."""
    return changes(msgspec.to_builtins(old), msgspec.to_builtins(new))


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The same for objects that are already encoded as mappings."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before == value:
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = changes(before, value)
        else:
            patch[key] = value
    return patch


def merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """*old* after *patch*, as an API server would apply it. Neither is changed."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, Mapping):
            before = new.get(key)
            new[key] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            new[key] = value
    return new


def with_unknown_fields(items: Iterable[Any], stored: Iterable[Any], kind: type[msgspec.Struct]) -> list[Any]:
    """
    *items* of a list that a patch replaces, each as it is *stored* where nothing of it changes.

    A later version of Kubernetes may have added fields that *kind* does not name. They stay. Items are compared by the
    fields that *kind* names. Raises ValidationError for a stored item that is no *kind*.
    """
    unchanged = [(msgspec.convert(item, kind), item) for item in stored]
    found = []
    for item in items:
        wanted = msgspec.convert(item, kind)
        found.append(next((whole for known, whole in unchanged if known == wanted), item))
    return found
