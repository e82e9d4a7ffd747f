"""Signs in the object that a hand writes: a condition with its status, or a field below `status`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_SIGN = re.compile(r"(?P<path>[A-Za-z][A-Za-z0-9./_-]*)(=(?P<value>[A-Za-z0-9 ._|-]+))?")


class Sign(NamedTuple):
    """*path* is the type of a condition, or begins with `status.`; one of *values* must be there."""

    path: str
    values: tuple[str, ...]


def parse_signs(text: str) -> tuple[Sign, ...]:
    """
    Signs as an operator writes them, commas between: `Complete`, `Succeeded=False`, `status.phase=Failed`,
    `NodeReady=False, SignalSent=False`. Empty: none. Raises ValueError.
    """
    return tuple(_parsed(each.strip()) for each in text.split(",")) if text else ()


def _parsed(text: str) -> Sign:
    match = _SIGN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a sign such as Complete=True or status.phase=Succeeded")
    return Sign(match["path"], tuple((match["value"] or "True").split("|")))


def first_shown(manifest: Mapping[str, Any], signs: Iterable[Sign]) -> Sign | None:
    """The first of *signs* that *manifest* shows. What has another shape than expected shows nothing."""
    return next((sign for sign in signs if _shows(manifest, sign)), None)


def _shows(manifest: Mapping[str, Any], sign: Sign) -> bool:
    if sign.path.startswith("status."):
        return str(value_at(manifest, sign.path)) in sign.values
    return any(_status_of(each, sign.path) in sign.values for each in conditions_of(manifest))


def value_at(manifest: Mapping[str, Any], path: str) -> Any:
    """What is at *path*, words with dots between, numbers from 0 in a list; None where nothing is."""
    value: Any = manifest
    for word in path.split("."):
        value = _below(value, word)
    return value


def _below(value: Any, word: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(word)
    is_in_list = isinstance(value, list) and word.isdecimal() and len(word) < 6 and int(word) < len(value)
    return value[int(word)] if is_in_list else None


def conditions_of(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The conditions in its status, those that are none left out."""
    conditions = value_at(manifest, "status.conditions")
    return [each for each in conditions if isinstance(each, Mapping)] if isinstance(conditions, list) else []


def message_of(manifest: Mapping[str, Any], sign: Sign, says: Iterable[str] = ()) -> str:
    """What the object says of *sign*, for a person: the first text at the paths *says*, or its condition's own."""
    for path in says:
        if (text := value_at(manifest, path)) and isinstance(text, str):
            return text
    for each in conditions_of(manifest):
        if _status_of(each, sign.path) in sign.values:
            return str(each.get("message") or each.get("reason") or sign.path)
    return f"{sign.path} is {value_at(manifest, sign.path)}"


def _status_of(condition: Mapping[str, Any], kind: str) -> str:
    return str(condition.get("status")) if condition.get("type") == kind else ""
