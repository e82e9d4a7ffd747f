"""
UBJSON, read without its numbers: arrays of one type are counted and skipped. A list of many large elements is checked
one by one and not kept, so memory does not grow with the file.

Source: Universal Binary JSON, draft 12, as XGBoost writes it.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from healthd.checkpoints.tree import Damaged
from healthd.checkpoints.windows import Window

MOST_VALUES = 3_000_000
"""The limit of values: it limits the time to some seconds."""
MOST_HELD = 250_000
"""The limit of values in memory at the same time."""
MOST_LETTERS = 8 << 20
"""The limit of bytes of texts in memory at the same time."""
LONGEST_TEXT = 4096
"""Bytes. A longer text is only checked to be text."""
MOST_LEVELS = 64
_WIDTHS = {**dict.fromkeys(b"iUC", 1), **dict.fromkeys(b"I", 2), **dict.fromkeys(b"ld", 4), **dict.fromkeys(b"LD", 8)}
_INTEGERS = {ord("i"): ">b", ord("U"): ">B", ord("I"): ">h", ord("l"): ">i", ord("L"): ">q"}
_CONSTANTS = {ord("Z"): None, ord("T"): True, ord("F"): False}


class Discarded(Enum):
    """The placeholder for an element that was checked and is not kept."""

    JUDGED = 0


Judge = Callable[[int, Any], None]
"""Called with one element of a list, and its index. Raises Damaged."""


class Packed(NamedTuple):
    """An array of one type, of which only the length was read."""

    length: int
    kind: int
    at: int

    def integers(self, window: Window) -> Iterator[int]:
        """Its numbers, from the file that it was read from. Raises Damaged, and KeyError when they are reals."""
        layout = struct.Struct(_INTEGERS[self.kind])
        for chunk in window.chunks(self.at, self.length * layout.size):
            yield from (number for (number,) in layout.iter_unpack(chunk))


def read_ubjson(window: Window, judges: Mapping[str, Judge] | None = None) -> Any:
    """
    The single value of the file, with `Packed` for arrays of one type, 0 for reals, and no characters of a long text.

    Each element of a list under a name in *judges* is checked and dropped. Raises Damaged, and what judges raise.
    """
    reader = _Reader(window, judges or {})
    try:
        value = reader.value(reader.take(1)[0], 0)
    except (struct.error, UnicodeDecodeError, KeyError) as error:
        raise Damaged(f"{window.name}: no UBJSON at byte {reader.at:,}") from error
    if reader.at != window.size:
        raise Damaged(f"{window.name}: {window.size:,} bytes, where its one value ends at {reader.at:,}")
    return value


class _Reader:
    def __init__(self, window: Window, judges: Mapping[str, Judge]) -> None:
        self.window = window
        self.judges = judges
        self.at = 0
        self.count = self.held = self.letters = 0

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

    def text(self) -> str:
        size = self.length()
        if size > LONGEST_TEXT:
            self.refuse_no_text(size)
            return ""
        self.letters += size
        return self.take(size).decode()

    def refuse_no_text(self, size: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")()
        for chunk in self.window.chunks(self.at, size):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
        self.at += size

    def value(self, marker: int, level: int, name: str = "") -> Any:
        self.count += 1
        self.held += 1
        if self.count > MOST_VALUES or level > MOST_LEVELS or self.held > MOST_HELD or self.letters > MOST_LETTERS:
            raise Damaged(f"{self.window.name}: too many values, or too deep, to verify")
        match chr(marker):
            case "{":
                return self.mapping(level + 1)
            case "[":
                return self.array(level + 1, self.judges.get(name))
            case "S":
                return self.text()
            case "Z" | "T" | "F":
                return _CONSTANTS[marker]
        data = self.take(_WIDTHS[marker])
        return struct.unpack(_INTEGERS[marker], data)[0] if marker in _INTEGERS else 0

    def mapping(self, level: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.window.at(self.at, 1) != b"}":
            key = self.text()
            found[key] = self.value(self.take(1)[0], level, key)
        self.at += 1
        return found

    def array(self, level: int, judge: Judge | None) -> list[Any] | Packed:
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
            return [self.element(level, judge, number) for number in range(count)]
        found: list[Any] = []
        while self.window.at(self.at, 1) != b"]":
            found.append(self.element(level, judge, len(found)))
        self.at += 1
        return found

    def element(self, level: int, judge: Judge | None, number: int) -> Any:
        before = self.held, self.letters
        value = self.value(self.take(1)[0], level)
        if judge is None:
            return value
        judge(number, value)
        self.held, self.letters = before
        return Discarded.JUDGED
