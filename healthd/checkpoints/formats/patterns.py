"""
Names with `*` and a place for a number, as a person declares them; matched in time that grows with the name alone.

A regular expression from such a text may try every way to share a name among its stars. Here each literal piece is
searched for once from the left and once from the right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_DIGITS = 18
"""Of a number."""
PLACE = re.compile(r"\{(\w*)\}")
"""Of a number, and what it is called."""
_DIGITS = frozenset("0123456789")


class Pattern:
    """
    `*` stands for any letters within one part of a path; `{name}`, once at most, for a number.

    Where several numbers fit it is the last one, and all digits of it.
    """

    def __init__(self, written: str) -> None:
        self.written = written
        self._parts = [_Part(part) for part in written.split("/")]

    def match(self, name: str) -> tuple[int, ...] | None:
        """The number at its place, or nothing where it has none; None when *name* is another one."""
        parts = name.split("/")
        if len(parts) != len(self._parts):
            return None
        found: list[int] = []
        for pattern, part in zip(self._parts, parts, strict=True):
            numbers = pattern.match(part)
            if numbers is None:
                return None
            found.extend(numbers)
        return tuple(found)


class _Part:
    """Between two `/`."""

    def __init__(self, written: str) -> None:
        before, *after = PLACE.split(written)
        self._before = before.split("*")
        self._after = [piece[::-1] for piece in reversed(after[1].split("*"))] if after else None

    def match(self, text: str) -> tuple[int, ...] | None:
        starts = _ends(self._before, text)
        if self._after is None:
            return () if len(text) in starts else None
        if not starts:
            return None
        ends = sorted((len(text) - length for length in _ends(self._after, text[::-1])), reverse=True)
        return next((number for end in ends if (number := _number(text, starts, end))), None)


def _number(text: str, starts: set[int], end: int) -> tuple[int, ...]:
    """The longest number that ends at *end* and begins at one of *starts*."""
    first = end
    while first > 0 and end - first < MOST_DIGITS and text[first - 1] in _DIGITS:
        first -= 1
    start = next((start for start in range(first, end) if start in starts), None)
    return () if start is None else (int(text[start:end]),)


def _ends(pieces: Sequence[str], text: str) -> set[int]:
    """Every length of a beginning of *text* that is *pieces*, with anything between each two."""
    first, *rest = pieces
    if not text.startswith(first):
        return set()
    at = len(first)
    if not rest:
        return {at}
    for piece in rest[:-1]:
        found = text.find(piece, at)
        if found < 0:
            return set()
        at = found + len(piece)
    last = rest[-1]
    return {end for end in range(at + len(last), len(text) + 1) if text.startswith(last, end - len(last))}
