"""
Which objects a selector matches. Pure. The embedded cluster and the informer use it; an API server selects by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from healthd.cluster.port import Fields, Invalid, Labels
from healthd.core.api import Pod, Slim

_FIELDS: dict[str, Callable[[Any], str]] = {
    "metadata.name": lambda obj: str(obj.metadata.name),
    "metadata.namespace": lambda obj: str(obj.metadata.namespace),
}
_POD_FIELDS: dict[str, Callable[[Any], str]] = {
    **_FIELDS,
    "spec.nodeName": lambda pod: str(pod.spec.node_name),
    "status.phase": lambda pod: str(pod.status.phase),
}


@dataclass(frozen=True, slots=True)
class Selection:
    """Objects that carry all *labels* (None: with any value) and have all *fields*. Empty: every object."""

    labels: Labels = field(default_factory=dict)
    fields: Fields = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: Slim) -> bool:
        """Whether the selection matches *obj*."""
        meant: Any = obj
        own = _labels(meant)
        if any(key not in own or value not in (None, own[key]) for key, value in self.labels.items()):
            return False
        known = _known(type(obj))
        return all(known[name](meant) == value for name, value in self.fields.items())


EVERYTHING = Selection()


def selection(kind: type[Slim], labels: Labels | None, fields: Fields | None) -> Selection:
    """The selection for *kind*. Raises Invalid for a field by which no API server selects this kind."""
    if not labels and not fields:
        return EVERYTHING
    unknown = sorted(set(fields or ()) - set(_known(kind)))
    if unknown:
        raise Invalid(f"{kind.__name__}: field selector {unknown[0]!r} is not supported")
    return Selection(labels or {}, fields or {})


def selectable(body: dict[str, Any]) -> tuple[Any, ...]:
    """All fields of a wire object that a selector can match and a write can change."""
    return (
        body["metadata"].get("labels"),
        body.get("spec", {}).get("nodeName") if body["kind"] == "Pod" else None,
        body.get("status", {}).get("phase") if body["kind"] == "Pod" else None,
    )


def _labels(obj: Any) -> dict[str, str]:
    """The labels of any stored object."""
    labels: dict[str, str] = obj.metadata.labels
    return labels


def _known(kind: type[Slim]) -> dict[str, Callable[[Any], str]]:
    return _POD_FIELDS if kind is Pod else _FIELDS
