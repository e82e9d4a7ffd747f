"""
States of Flax in MessagePack: `checkpoint_500` and `*.msgpack`, one file each, renamed into place.

The file is walked, not decoded: it must be one complete value, keys must be texts, and each array must have the length
that its type and shape give. The format has no checksums: changed bytes inside an array are not detected.
Source: flax/serialization.py (`msgpack_serialize`) and the MessagePack specification.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial

import msgspec

from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, filename_of
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import for_each

MOST_VALUES = 5_000_000
"""The limit of values: it limits the time to some seconds."""
MOST_LEVELS = 500
MOST_DIMENSIONS = 64
LONGEST_TYPE = 64
_SUFFIX = ".msgpack"
_LEGACY = re.compile(r"checkpoint_\d{1,18}")
_AGGREGATE = "checkpoint"
"""The file of Orbax without OCDBT for all values that are not arrays. TensorFlow's text file has the same name."""
_ARRAY, _SCALAR = 1, 3
"""The numbers of Flax's extensions."""
_TYPE_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "int4", "uint4", "V1"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16", "V2"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


class Flax:
    """Each file is one complete value, and its arrays have all their bytes."""

    name = "flax"

    def owns(self, filename: str) -> bool:
        """By suffix, or by the name that `save_checkpoint` gives."""
        return filename.endswith(_SUFFIX) or _LEGACY.fullmatch(filename) is not None

    def detect(self, tree: Tree) -> bool:
        """Any file with the suffix, or a file without it that starts like a map. Raises Damaged."""
        return next(_states(tree), None) is not None

    def verify(self, tree: Tree, level: VerifyLevel) -> None:  # noqa: ARG002 - there is nothing more to read
        """The same at both levels, because there are no checksums. Raises Damaged."""
        for_each(partial(_verify_file, tree), sorted(_states(tree)), at_once=tree.at_once)


def _states(tree: Tree) -> Iterator[str]:
    for name in tree.entries:
        filename = filename_of(name)
        may_be_one = _LEGACY.fullmatch(filename) or filename == _AGGREGATE
        if filename.endswith(_SUFFIX) or (may_be_one and _begins_like_a_state(tree, name)):
            yield name


def _begins_like_a_state(tree: Tree, name: str) -> bool:
    """Whether the file starts like a map, or with a zero that was never overwritten."""
    entry = tree.entries[name]
    if entry.not_a_file or not entry.stamp.size:
        return False
    with open_window(tree, name) as window:
        return _is_map(window) or not window.at(0, 1)[0]


def _is_map(window: Window) -> bool:
    return _head(window, 0)[0] == "map"


def _verify_file(tree: Tree, name: str) -> None:
    with open_window(tree, name) as window:
        walk = _Walk(window)
        try:
            end = walk.value(0)
        except UnicodeDecodeError as error:
            raise Damaged(f"{name}: a text that is none at byte {walk.at:,}") from error
        if end != window.size:
            raise Damaged(f"{name}: {window.size:,} bytes, where its one value ends at {end:,}")
        if not _is_map(window):
            raise Damaged(f"{name}: not a state of Flax: it has no names")


class _Walk:
    """A walk over all values of one file, each only once, so the file size limits time and memory."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.at = 0

    def value(self, at: int) -> int:
        """The offset of the end of the value at *at*. Raises Damaged and UnicodeDecodeError."""
        self.at = at
        open_values = [(1, False)]
        for _ in range(MOST_VALUES):
            while open_values and not open_values[-1][0]:
                open_values.pop()
            if not open_values:
                return self.at
            left, is_map = open_values[-1]
            open_values[-1] = left - 1, is_map
            self._take(open_values, is_key=is_map and left % 2 == 0)
        raise Damaged(f"{self.window.name}: more than {MOST_VALUES:,} values, too many to verify")

    def _take(self, open_values: list[tuple[int, bool]], *, is_key: bool) -> None:
        kind, head, count = _head(self.window, self.at)
        if is_key and kind not in {"text", "bytes"}:
            raise Damaged(f"{self.window.name}: a key that is no text at byte {self.at:,}")
        begin = self.at + head
        if kind in {"map", "array"}:
            if count > self.window.size - begin or len(open_values) > MOST_LEVELS:
                raise Damaged(f"{self.window.name}: {count:,} values at byte {self.at:,}, more than there can be")
            open_values.append((2 * count, True) if kind == "map" else (count, False))
            self.at = begin
            return
        if begin + count > self.window.size:
            raise Damaged(f"{self.window.name}: {self.window.size:,} of at least {begin + count:,} bytes (torn write)")
        if kind == "text":
            self.window.at(begin, count).decode()
        elif kind == "extension":
            _verify_extension(self.window, begin, count)
        self.at = begin + count


def _head(window: Window, at: int) -> tuple[str, int, int]:
    """
    The kind of the value at *at*, the length of its head, and how many bytes or values follow. Raises Damaged.
    """
    code = window.at(at, 1)[0]
    if code <= 0x7F or code >= 0xE0:
        return "number", 1, 0
    if code <= 0x8F:
        return "map", 1, code & 15
    if code <= 0x9F:
        return "array", 1, code & 15
    if code <= 0xBF:
        return "text", 1, code & 31
    if code not in _HEADS:
        raise Damaged(f"{window.name}: no MessagePack at byte {at:,}")
    kind, width, fixed = _HEADS[code]
    count = int.from_bytes(window.at(at + 1, width), "big") if width else fixed
    return kind, 1 + width, count + (kind == "extension")


_HEADS: dict[int, tuple[str, int, int]] = {
    **{0xC0 + i: ("number", 0, 0) for i in (0, 2, 3)},
    **{0xC4 + i: ("bytes", 1 << i, 0) for i in range(3)},
    **{0xC7 + i: ("extension", 1 << i, 0) for i in range(3)},
    **{code: ("number", 0, size) for code, size in ((0xCA, 4), (0xCB, 8))},
    **{0xCC + i: ("number", 0, 1 << i) for i in range(4)},
    **{0xD0 + i: ("number", 0, 1 << i) for i in range(4)},
    **{0xD4 + i: ("extension", 0, 1 << i) for i in range(5)},
    **{0xD9 + i: ("text", 1 << i, 0) for i in range(3)},
    **{0xDC + i: ("array", 2 << i, 0) for i in range(2)},
    **{0xDE + i: ("map", 2 << i, 0) for i in range(2)},
}
"""By first byte: the kind of content, the bytes of its length, or its length when that is fixed."""


def _verify_extension(window: Window, at: int, count: int) -> None:
    """A NumPy array or scalar: shape, type name, bytes. *count* includes the byte of the extension's number."""
    if window.at(at, 1)[0] not in {_ARRAY, _SCALAR}:
        return
    begin, end = at + 1, at + count
    places = []
    for kinds in (("array", 3), ("array", MOST_DIMENSIONS), ("text", LONGEST_TYPE), ("bytes", end)):
        kind, head, parts = _head(window, begin)
        if kind != kinds[0] or parts > kinds[1]:
            raise Damaged(f"{window.name}: no array at byte {at:,}, where one should be")
        places.append((begin, parts))
        begin += head + parts * (kind == "text")
        if len(places) == 2:
            begin = _after_numbers(window, begin, parts)
    (_, three), (shape_at, _), (type_at, _), (data_at, size) = places
    try:
        shape = msgspec.msgpack.decode(window.at(shape_at, type_at - shape_at), type=list[int])
        dtype = msgspec.msgpack.decode(window.at(type_at, data_at - type_at), type=str)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Damaged(f"{window.name}: no shape and type of an array at byte {at:,}") from error
    if three != 3 or dtype not in _TYPE_BYTES or min(shape, default=0) < 0:
        raise Damaged(f"{window.name}: an array of type {dtype[:20]!r} and shape {shape[:8]} at byte {at:,}")
    expected = math.prod(shape) * _TYPE_BYTES[dtype]
    if size != expected or begin + size != end:
        raise Damaged(f"{window.name}: an array of {size:,} bytes at byte {at:,}, its type and shape need {expected:,}")


def _after_numbers(window: Window, at: int, count: int) -> int:
    """The offset after *count* numbers. Raises Damaged when they are not numbers."""
    for _ in range(count):
        kind, head, size = _head(window, at)
        if kind != "number":
            raise Damaged(f"{window.name}: no shape of an array at byte {at:,}")
        at += head + size
    return at
