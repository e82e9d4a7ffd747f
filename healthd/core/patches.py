"""JSON merge patches (RFC 7386): what to send so that one wire object becomes another."""

from __future__ import annotations

from collections.abc import Mapping
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
