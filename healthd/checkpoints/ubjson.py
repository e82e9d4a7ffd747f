"""
UBJSON, read without its numbers: arrays of one type are counted and stepped over, so memory does not grow with them.

Source: Universal Binary JSON, draft 12, as XGBoost writes it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from healthd.checkpoints.tree import Damaged
from healthd.checkpoints.windows import Window

MOST_VALUES = 2_000_000
MOST_LEVELS = 64
_WIDTHS = {**dict.fromkeys(b"iUC", 1), **dict.fromkeys(b"I", 2), **dict.fromkeys(b"ld", 4), **dict.fromkeys(b"LD", 8)}
_INTEGERS = {ord("i"): ">b", ord("U"): ">B", ord("I"): ">h", ord("l"): ">i", ord("L"): ">q"}
_CONSTANTS = {ord("Z"): None, ord("T"): True, ord("F"): False}


class Packed(NamedTuple):
    """An array of one type, of which only the length was looked at."""

    length: int
    kind: int
    at: int

    def integers(self, window: Window) -> Iterator[int]:
        """Its numbers, of the file that it was read from. Raises Damaged and KeyError when they are reals."""
        layout = struct.Struct(_INTEGERS[self.kind])
        for chunk in window.chunks(self.at, self.length * layout.size):
            yield from (number for (number,) in layout.iter_unpack(chunk))


def read_ubjson(window: Window) -> Any:
    """The one value that the file is, with `Packed` for arrays of one type and 0 for reals. Raises Damaged."""
    reader = _Reader(window)
    try:
        value = reader.value(reader.take(1)[0], 0)
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise Damaged(f"{window.name}: no UBJSON at byte {reader.at:,}") from error
    if reader.at != window.size:
        raise Damaged(f"{window.name}: {window.size:,} bytes, where its one value ends at {reader.at:,}")
    return value


class _Reader:
    def __init__(self, window: Window) -> None:
        self.window = window
        self.at = 0
        self.count = 0

    def take(self, size: int) -> bytes:
        data = self.window.at(self.at, size)
        self.at += size
        return data

    def skip(self, size: int) -> None:
        if size < 0 or self.at + size > self.window.size:
            raise Damaged(f"{self.window.name}: {self.window.size:,} of at least {self.at + size:,} bytes (torn write)")
        self.at += size

    def length(self) -> int:
        layout = _INTEGERS[self.take(1)[0]]
        (length,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        if not 0 <= length <= self.window.size:
            raise Damaged(f"{self.window.name}: claims {length:,} of something at byte {self.at:,}")
        return int(length)

    def value(self, marker: int, level: int) -> Any:
        self.count += 1
        if self.count > MOST_VALUES or level > MOST_LEVELS:
            raise Damaged(f"{self.window.name}: too many values, or too deep, to verify")
        match chr(marker):
            case "{":
                return self.mapping(level + 1)
            case "[":
                return self.array(level + 1)
            case "S":
                return self.take(self.length()).decode()
            case "Z" | "T" | "F":
                return _CONSTANTS[marker]
        data = self.take(_WIDTHS[marker])
        return struct.unpack(_INTEGERS[marker], data)[0] if marker in _INTEGERS else 0

    def mapping(self, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.window.at(self.at, 1) != b"}":
            key = self.take(self.length()).decode()
            found[key] = self.value(self.take(1)[0], level)
        self.at += 1
        return found

    def array(self, level: int) -> list[Any] | Packed:
        kind = 0
        if self.window.at(self.at, 1) == b"$":
            kind = self.take(2)[1]
        if self.window.at(self.at, 1) == b"#":
            self.at += 1
            count = self.length()
            if kind:
                begin = self.at
                self.skip(count * _WIDTHS[kind])
                return Packed(count, kind, begin)
            return [self.value(self.take(1)[0], level) for _ in range(count)]
        found = []
        while self.window.at(self.at, 1) != b"]":
            found.append(self.value(self.take(1)[0], level))
        self.at += 1
        return found
