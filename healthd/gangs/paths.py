"""Paths into custom objects, and signs in them: the small language of `healthd.core.config.gang_kinds`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from healthd.core.untrusted import LARGEST_NUMBER, InvalidText, shown

Json = Mapping[str, Any]
Path = tuple[str, ...]

ANY = "*"
MOST_MATCHES = 100
"""Of one path in one object: no gang has so many kinds of pods."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*|\*")
_CONDITION = re.compile(r"[A-Za-z][A-Za-z0-9./_-]*")
_MISSING = frozenset({"", "0", "false"})
"""How a value that was left out reads: writers in Go leave out what is empty."""


def parse_path(text: str) -> Path:
    """The words of *text*. Raises ValueError."""
    words = tuple(text.split("."))
    if not all(_WORD.fullmatch(word) for word in words):
        raise ValueError(f"{shown(text)} is not a path such as spec.runPolicy.suspend")
    return words


def value_at(obj: Any, path: Path) -> Any:
    """What is there; None where nothing is, or where something on the way is no map."""
    for word in path:
        obj = obj.get(word) if isinstance(obj, Mapping) else None
    return obj


def matches(obj: Any, path: Path) -> list[tuple[str, Any]]:
    """Everything at *path*, each with what the last `*` stood for. Raises InvalidText for too many."""
    found: list[tuple[str, Any]] = []
    for match in _matches(obj, path, ""):
        found.append(match)
        if len(found) > MOST_MATCHES:
            raise InvalidText(f"{'.'.join(path)} has more than {MOST_MATCHES} entries")
    return found


def _matches(obj: Any, path: Path, name: str) -> Iterator[tuple[str, Any]]:
    if not path:
        yield name, obj
    elif path[0] != ANY:
        if isinstance(obj, Mapping) and path[0] in obj:
            yield from _matches(obj[path[0]], path[1:], name)
    elif isinstance(obj, Mapping):
        for key, child in obj.items():
            yield from _matches(child, path[1:], key)
    elif isinstance(obj, list):
        for number, child in enumerate(obj):
            yield from _matches(child, path[1:], str(number))


def values_at(obj: Any, path: Path) -> list[tuple[str, Any]]:
    """As `matches`, and with None for what is missing below an entry that a `*` stands for."""
    split = max((place for place, word in enumerate(path, 1) if word == ANY), default=0)
    return [(name, value_at(found, path[split:])) for name, found in matches(obj, path[:split])]


def number_at(obj: Any, path: Path, otherwise: int) -> int:
    """The whole number at *path*; *otherwise* where there is none. Raises InvalidText for anything else."""
    value = value_at(obj, path)
    return otherwise if value is None else _number(path, value)


def numbers_at(obj: Any, path: Path) -> list[int | None]:
    """The whole numbers at *path*, in the order in which the object has them; None for one that is missing."""
    return [None if value is None else _number(path, value) for _, value in values_at(obj, path)]


def set_numbers(obj: Any, path: Path, numbers: Sequence[int | None]) -> None:
    """Write *numbers* into *obj* at *path*, as `numbers_at` gives them. Those that are None are left as they are."""
    for (_, holder), number in zip(values_at(obj, path[:-1]), numbers, strict=True):
        if number is not None:
            holder[path[-1]] = number


def _number(path: Path, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= LARGEST_NUMBER:
        raise InvalidText(f"{'.'.join(path)} is {shown(str(value))}, not a number from 0 to {LARGEST_NUMBER:,}")
    return value


def patch_at(path: Path, value: Any) -> dict[str, Any]:
    """The merge patch that sets *value* at *path*."""
    for word in reversed(path):
        value = {word: value}
    patch: dict[str, Any] = value
    return patch


@dataclass(frozen=True, slots=True)
class Sign:
    """Something that an object shows, or does not."""

    path: Path
    """Without values: the type of a condition that is True."""
    values: frozenset[str] = frozenset()
    is_negated: bool = False

    def holds(self, obj: Json) -> bool:
        """Whether *obj* shows it; with `*` in the path, anywhere."""
        if not self.values:
            return condition_of(obj, self.path[0]).get("status") == "True"
        return bool(self.evidence(obj))

    def evidence(self, obj: Json) -> list[tuple[str, Any]]:
        """The values at the path that show it, each with what the last `*` stood for. Not for a condition."""
        found = values_at(obj, self.path) or [("", None)]
        return [(name, value) for name, value in found if self._fits(_text(value)) is not self.is_negated]

    def _fits(self, text: str) -> bool:
        return text in self.values or (not text and bool(self.values & _MISSING))


def parse_sign(text: str) -> Sign:
    """`Suspended`, `status.phase=Suspended|Stopped` or `spec.cleanUp!=true`. Raises ValueError."""
    path, operator, values = re.match(r"([^=!]*)(!?=)?(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    if operator:
        return Sign(parse_path(path), frozenset(values.split("|")), operator == "!=")
    if not _CONDITION.fullmatch(text) or text.startswith(("spec.", "status.")):
        raise ValueError(f"{shown(text)} is neither the type of a condition nor a path with a value")
    return Sign((text,))


@dataclass(frozen=True, slots=True)
class Signs:
    """Alternatives, each of which is signs that show together."""

    alternatives: tuple[tuple[Sign, ...], ...]

    def holds(self, obj: Json) -> bool:
        """Whether *obj* shows all signs of one alternative."""
        return any(all(sign.holds(obj) for sign in signs) for signs in self.alternatives)


def parse_signs(text: str) -> Signs:
    """Signs with ` and ` and ` or ` between them; `and` binds more closely. Raises ValueError."""
    return Signs(tuple(tuple(map(parse_sign, each.split(" and "))) for each in text.split(" or ")))


def condition_of(obj: Json, kind: str) -> Mapping[str, Any]:
    """The condition of this type; empty where there is none."""
    conditions = value_at(obj, ("status", "conditions"))
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, Mapping) and each.get("type") == kind:
            return each
    return {}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
