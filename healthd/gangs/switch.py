"""How a gang of a described kind is stopped and started: a boolean, or numbers that are 0 while it is stopped. Pure."""

from __future__ import annotations

import copy
from typing import Any

from healthd.core.api import ANNOTATION_REPLICAS, ObjectMeta
from healthd.core.config.gang_kinds import KindDescription
from healthd.core.untrusted import LARGEST_GANG, InvalidText, read_number, shown
from healthd.gangs.paths import ANY, Json, number_at, numbers_at, parse_path, patch_at, set_numbers, value_at

_BETWEEN = ","
_LONGEST_NOTE = 4096
"""Characters."""


class Switch:
    """Of the kind *description*. Numbers are stored as `healthd.dev/replicas` while they are 0, in the order of the
    paths, with nothing for one that is missing: `4,4,`."""

    def __init__(self, description: KindDescription) -> None:
        self._suspend = parse_path(description.suspend) if description.suspend else ()
        self._replicas = parse_path(description.replicas) if description.replicas else ()
        self._paths = [self._replicas, *map(parse_path, description.minimums)] if self._replicas else []

    def is_off(self, whole: Json) -> bool:
        """Whether the spec asks for no members."""
        if self._suspend:
            return value_at(whole, self._suspend) is True
        found = numbers_at(whole, self._replicas)
        return bool(found) and all(number == 0 for number in found)

    def multiple(self, whole: Json) -> int:
        """How many times the object *whole* has each of its parts."""
        return number_at(whole, self._replicas, 1) if self._replicas and ANY not in self._replicas else 1

    def note(self, meta: ObjectMeta, whole: Json) -> str | None:
        """What to store when it is stopped; None for a kind that is suspended. Raises InvalidText."""
        if not self._paths:
            return None
        running = self.as_running(meta, whole)
        found = [number for path in self._paths for number in self._numbers(running, path)]
        return _BETWEEN.join("" if number is None else str(number) for number in found)

    def as_running(self, meta: ObjectMeta, whole: Json) -> Json:
        """*whole* with the numbers that it had before healthd stopped it: a copy, if it differs. Raises InvalidText."""
        text = meta.annotations.get(ANNOTATION_REPLICAS)
        if not self._paths or text is None or not self.is_off(whole):
            return whole
        running = copy.deepcopy(dict(whole))
        stored = iter(_read(text, sum(len(numbers_at(running, path)) for path in self._paths)))
        for path in self._paths:
            set_numbers(running, path, [_as_stored(next(stored), number) for number in numbers_at(running, path)])
        return running

    def stopped(self, whole: Json) -> dict[str, Any]:
        """*whole* as it is when it is stopped. A copy. Raises InvalidText."""
        off = copy.deepcopy(dict(whole))
        for path in self._paths:
            set_numbers(off, path, [None if number is None else 0 for number in self._numbers(off, path)])
        return off

    def suspending(self, is_off: bool) -> dict[str, Any]:
        """The patch that suspends it or lets it run; empty for a kind that has numbers."""
        return patch_at(self._suspend, is_off) if self._suspend else {}

    def _numbers(self, whole: Json, path: tuple[str, ...]) -> list[int | None]:
        """Replicas that are left out are one."""
        return [1 if number is None and path is self._replicas else number for number in numbers_at(whole, path)]


def _as_stored(stored: int | None, now: int | None) -> int | None:
    if stored is None and now is not None:
        raise InvalidText(f"{ANNOTATION_REPLICAS}: a number is missing")
    return stored


def _read(text: str, count: int) -> list[int | None]:
    words = text.split(_BETWEEN, count)
    if len(text) > _LONGEST_NOTE or len(words) != count:
        raise InvalidText(f"{ANNOTATION_REPLICAS}: {shown(text)} is not {count} numbers")
    try:
        return [read_number(word, most=LARGEST_GANG) if word or count == 1 else None for word in words]
    except InvalidText as error:
        raise InvalidText(f"{ANNOTATION_REPLICAS}: {error}") from None
