"""
Programs of other versions beside those of this one, as a rolling update has them for minutes.

An older program neither reads nor writes the fields that came since; a newer one writes some that are not known here.
Both do what this version does otherwise.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from healthd.cluster.port import Listed
from healthd.core.api import (
    ANNOTATION_CLAIM,
    ANNOTATION_PROGRESS,
    ANNOTATION_QUARANTINE,
    NodeHealth,
    Recovery,
    RecoveryStatus,
    Shape,
)

_NEW_IN_STATUS: dict[type[Any], dict[str, Any]] = {
    NodeHealth: {"sources": [], "best": Shape()},
    Recovery: {"running_since": None, "running_after": ""},
}
"""Fields that the version before did not know, and what they are where they were not written."""
_NEW_IN_NOTES: dict[str, tuple[str, ...]] = {ANNOTATION_QUARANTINE: ("also", "watched")}
_RECORDS = (ANNOTATION_QUARANTINE, ANNOTATION_CLAIM, ANNOTATION_PROGRESS)
"""Annotations that hold an object."""
_UNKNOWN = {"laterField": {"of": ["a", "newer", 1]}}


class _Other:
    """A cluster as a program of another version uses it."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        """Written as that version writes it."""
        notes = patch.get("metadata", {}).get("annotations")
        if notes:
            written = {key: note if note is None else self._note(key, note) for key, note in notes.items()}
            patch = {**patch, "metadata": {**patch["metadata"], "annotations": written}}
        return await self._cluster.patch(kind, name, patch, **where)

    def _note(self, key: str, note: str) -> str:
        return note


class Newer(_Other):
    """Adds to every record what only a later version knows."""

    def _note(self, key: str, note: str) -> str:
        return json.dumps({**json.loads(note), **_UNKNOWN}) if key in _RECORDS else note


class Older(_Other):
    """Leaves out what came since, on the way there and back."""

    async def get(self, kind: type[Any], name: str, namespace: str = "") -> Any:
        """The object, as far as it is known."""
        return _known(await self._cluster.get(kind, name, namespace))

    async def list(self, kind: type[Any], **which: Any) -> Any:
        """The objects, as far as they are known."""
        listed = await self._cluster.list(kind, **which)
        if kind not in _NEW_IN_STATUS:
            return listed
        return Listed([_known(item) for item in listed.items], listed.resource_version)

    async def patch(self, kind: type[Any], name: str, patch: Mapping[str, Any], **where: Any) -> Any:
        """Without the new fields; the answer shows them as they were meant, as that version knows of nothing else."""
        new = _NEW_IN_STATUS.get(kind)
        if not new or "status" not in patch:
            return await super().patch(kind, name, patch, **where)
        fields = {_camel(field): field for field in new}
        status = {key: value for key, value in patch["status"].items() if key not in fields}
        written = await super().patch(kind, name, {**patch, "status": status}, **where)
        if kind is not Recovery:
            return written
        meant = {key: value for key, value in patch["status"].items() if key in fields and value is not None}
        whole = msgspec.convert(meant, RecoveryStatus, strict=False)
        reported = {fields[key]: getattr(whole, fields[key]) for key in meant}
        return replace(written, status=replace(written.status, **(new | reported)))

    def _note(self, key: str, note: str) -> str:
        new = _NEW_IN_NOTES.get(key)
        return json.dumps({name: value for name, value in json.loads(note).items() if name not in new}) if new else note


def version_of(dice: random.Random, cluster: Any) -> Any:
    """The *cluster* as a life of a program uses it, of whichever version that is."""
    version = dice.choice([None, Older, Newer])
    return cluster if version is None else version(cluster)


def _known(obj: Any) -> Any:
    new = _NEW_IN_STATUS.get(type(obj))
    return replace(obj, status=replace(obj.status, **new)) if new else obj


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.title() for word in rest)


__all__ = ["Newer", "Older", "version_of"]
