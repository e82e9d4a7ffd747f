"""The parts of a gang of a described kind: how many pods each has, their indexes, the claims they mount. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from healthd.core.api import PodSpec
from healthd.core.config.gang_kinds import ElasticDescription, KindDescription, PodsDescription
from healthd.core.recovery.gang import ClaimMount, Elastic, Numbered
from healthd.core.untrusted import InvalidText, read_text, shown
from healthd.gangs.annotations import LONGEST_NAME, checked_world
from healthd.gangs.paths import Json, Path, matches, number_at, parse_path, parse_sign, set_numbers, value_at
from healthd.gangs.volumes import read_mounts

_FROM_TOP = "spec."


class Part(NamedTuple):
    """So many *members* of one kind."""

    members: int
    numbered: Numbered | None
    """Their indexes; None where they have none."""
    mounts: tuple[ClaimMount, ...]
    is_of_elastic_kind: bool
    """Whether healthd may change how many there are, as far as its kind is concerned."""
    elastic: Elastic | None
    """Within which limits; None: its owner allows one number alone."""
    written: Any
    """Where the object describes them; not a copy."""
    number: Path
    """The path below it to their number."""


def read_parts(kind: KindDescription, whole: Json, replicas: int) -> list[Part]:
    """The parts of the object *whole*, each of them *replicas* times. Raises InvalidText."""
    return [
        _part(kind, pods, whole, found, name, replicas)
        for pods in kind.pods
        for name, found in matches(whole, parse_path(pods.at))
    ]


def elastic_part(parts: Iterable[Part]) -> Part | None:
    """The one whose number may change. None beside others like it: it may not be known which of them lost members."""
    found = [part for part in parts if part.is_of_elastic_kind]
    return found[0] if len(found) == 1 and found[0].elastic else None


def resize(parts: Iterable[Part], members: int) -> None:
    """Write so many *members* into the object that *parts* were read from."""
    part = elastic_part(parts)
    if part is not None:
        set_numbers(part.written, part.number, [members])


def templates(kind: KindDescription, whole: Json) -> Iterator[dict[str, Any]]:
    """Every pod template in the object *whole*; not a copy."""
    for pods in kind.pods:
        for _, found in matches(whole, parse_path(pods.at)):
            for path in pods.template:
                template = value_at(found, parse_path(path))
                if isinstance(template, dict):
                    yield template


def _part(kind: KindDescription, pods: PodsDescription, whole: Json, found: Any, key: str, replicas: int) -> Part:
    paths, count = [parse_path(path) for path in pods.count], 1
    for path in paths:
        count = checked_world(count * number_at(found, path, 1))
    name = value_at(found, parse_path(pods.name)) if pods.name else key
    if not isinstance(name, str):
        raise InvalidText(f"a part of it is called {shown(str(name))}")
    sizes = (replicas, count) if kind.replicas and len(kind.index_labels) > 1 else (checked_world(replicas * count),)
    part = read_text(name, LONGEST_NAME).lower() if kind.part_label else ""
    members, number = checked_world(replicas * count), paths[0] if paths else ()
    elastic = pods.elastic if pods.elastic and name in (pods.elastic.names or {name}) else None
    is_alone = bool(number) and members == number_at(found, number, 1)
    return Part(
        members=members,
        numbered=Numbered(part, sizes) if pods.numbered and kind.index_labels else None,
        mounts=tuple(mount for path in pods.template for mount in _mounts(value_at(found, parse_path(path)))),
        is_of_elastic_kind=elastic is not None,
        elastic=_within_limits(Elastic(members, part), elastic, whole, found) if elastic and is_alone else None,
        written=found,
        number=number,
    )


def _within_limits(usual: Elastic, elastic: ElasticDescription, whole: Json, found: Any) -> Elastic | None:
    """*usual* within the limits of its owner; None where another number is not allowed."""
    if any(parse_sign(text).holds(whole) for text in elastic.unless):
        return None

    def limit(path: str, otherwise: int) -> int:
        if not path:
            return otherwise
        return number_at(whole if path.startswith(_FROM_TOP) else found, parse_path(path), otherwise)

    least, most = max(usual.least, limit(elastic.least, 0)), min(usual.most, limit(elastic.most, usual.most))
    return usual._replace(least=least, most=most) if least < most else None


def _mounts(template: Any) -> tuple[ClaimMount, ...]:
    spec = template.get("spec") if isinstance(template, dict) else None
    try:
        return read_mounts(msgspec.convert(spec or {}, PodSpec))
    except (msgspec.ValidationError, RecursionError) as error:
        raise InvalidText(f"a pod template of it cannot be read: {shown(str(error))}") from error
