"""
Names with `*` and a placeholder for a number, as a user declares them. The matching time depends only on the name.

A regular expression from such a text could try every way to divide a name among its stars. Here each literal part is
searched for once from the left and once from the right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MOST_DIGITS = 18
"""The longest number, in digits."""
PLACE = re.compile(r"\{(\w*)\}")
"""The placeholder of a number, and its name."""
_DIGITS = frozenset("0123456789")


class Pattern:
    """
    `*` matches any characters within one part of a path. `{name}`, at most once, matches a number.

    When several numbers fit, it is the last one, with all its digits.
    """

    def __init__(self, written: str) -> None:
        self.written = written
        self._parts = [_Part(part) for part in written.split("/")]

    def match(self, name: str) -> tuple[int, ...] | None:
        """The number at its placeholder; an empty tuple without a placeholder; None when *name* does not match."""
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
    """The pattern between two `/`."""

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
    """The longest number that ends at *end* and starts at one of *starts*."""
    first = end
    while first > 0 and end - first < MOST_DIGITS and text[first - 1] in _DIGITS:
        first -= 1
    start = next((start for start in range(first, end) if start in starts), None)
    return () if start is None else (int(text[start:end]),)


def _ends(pieces: Sequence[str], text: str) -> set[int]:
    """Every length of a prefix of *text* that matches *pieces*, with any characters between them."""
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
