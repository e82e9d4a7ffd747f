"""The parts of a gang of a described kind: how many pods each has, their indexes, the claims they mount. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from healthd.core.api import PodSpec
from healthd.core.config.gang_kinds import KindDescription, PodsDescription
from healthd.core.recovery.gang import ClaimMount, Numbered
from healthd.core.untrusted import InvalidText, read_text, shown
from healthd.gangs.annotations import LONGEST_NAME, checked_world
from healthd.gangs.paths import Json, matches, number_at, parse_path, value_at
from healthd.gangs.volumes import read_mounts


class Part(NamedTuple):
    """So many *members* of one kind."""

    members: int
    numbered: Numbered | None
    """Their indexes; None where they have none."""
    mounts: tuple[ClaimMount, ...]


def read_parts(kind: KindDescription, whole: Json, replicas: int) -> list[Part]:
    """The parts of the object *whole*, each of them *replicas* times. Raises InvalidText."""
    return [
        _part(kind, pods, found, name, replicas)
        for pods in kind.pods
        for name, found in matches(whole, parse_path(pods.at))
    ]


def templates(kind: KindDescription, whole: Json) -> Iterator[dict[str, Any]]:
    """Every pod template in the object *whole*; not a copy."""
    for pods in kind.pods:
        for _, found in matches(whole, parse_path(pods.at)):
            for path in pods.template:
                template = value_at(found, parse_path(path))
                if isinstance(template, dict):
                    yield template


def _part(kind: KindDescription, pods: PodsDescription, found: Any, key: str, replicas: int) -> Part:
    count = 1
    for path in pods.count:
        count = checked_world(count * number_at(found, parse_path(path), 1))
    name = value_at(found, parse_path(pods.name)) if pods.name else key
    if not isinstance(name, str):
        raise InvalidText(f"a part of it is called {shown(str(name))}")
    sizes = (replicas, count) if kind.replicas and len(kind.index_labels) > 1 else (checked_world(replicas * count),)
    part = read_text(name, LONGEST_NAME).lower() if kind.part_label else ""
    return Part(
        members=checked_world(replicas * count),
        numbered=Numbered(part, sizes) if pods.numbered and kind.index_labels else None,
        mounts=tuple(mount for path in pods.template for mount in _mounts(value_at(found, parse_path(path)))),
    )


def _mounts(template: Any) -> tuple[ClaimMount, ...]:
    spec = template.get("spec") if isinstance(template, dict) else None
    try:
        return read_mounts(msgspec.convert(spec or {}, PodSpec))
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidText(f"a pod template of it cannot be read: {shown(str(error))}") from error
