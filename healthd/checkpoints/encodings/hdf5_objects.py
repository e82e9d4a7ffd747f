"""
The objects of an HDF5 file in the older layout: groups with their trees and names, datasets, attributes.

Everything has a limit, and each object is read once, because a file may be made to lead in circles.
Source: the HDF5 File Format Specification, version 3.0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from healthd.checkpoints.tree import Damaged
from healthd.checkpoints.windows import Window

MOST_OBJECTS = 200_000
"""The limit of groups, datasets and tree nodes together."""
MOST_PARTS = 1_000_000
"""The limit of header messages, members, dataset pieces and heap texts together: it limits the time to some seconds."""
MOST_STRUCTURE = 512 << 20
"""The limit of bytes read for all these."""
LONGEST_NAME = 1 << 16
LONGEST_TEXT = 8 << 20
"""The limit of bytes of a text in an attribute. `model_config` of a large model has some hundred thousand."""
_UNDEFINED = 0xFFFFFFFFFFFFFFFF
_GROUP, _CHUNKS = 0, 1
"""Kinds of tree."""
_DATASPACE, _DATATYPE, _LAYOUT, _ATTRIBUTE, _CONTINUED, _MEMBERS = 1, 3, 8, 12, 16, 17
"""Kinds of message in an object header."""
_COMPACT, _CONTIGUOUS, _CHUNKED = 0, 1, 2
_OF_ANY_LENGTH = 9
_JSON_NAME = b"_config"
"""Keras keeps JSON in `model_config` and `training_config`."""


class _Message(NamedTuple):
    kind: int
    data: bytes


def verify_objects(window: Window, root: int) -> None:
    """
    Raise Damaged unless every object from the header at *root* on is complete.

    A garbled structure also raises struct.error, IndexError and ValueError.
    """
    _Walk(window).run(root)


class _Walk:
    """A walk over the objects of one file."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.seen: set[int] = set()
        self.left = MOST_STRUCTURE
        self.parts_left = MOST_PARTS

    def run(self, root: int) -> None:
        """Verify every object from the header at *root* on. Raises Damaged, struct.error, IndexError, ValueError."""
        waiting = [root]
        while waiting:
            address = waiting.pop()
            if self._is_new(address):
                waiting += self._object(address)

    def _at(self, offset: int, size: int) -> bytes:
        """Bytes of the structure. They may be referenced repeatedly, but only up to a limit. Raises Damaged."""
        self.left -= size
        if self.left < 0:
            raise Damaged(f"{self.window.name}: more than {MOST_STRUCTURE:,} bytes of structure, too much to verify")
        return self.window.at(offset, size)

    def _count(self, parts: int) -> None:
        """Count *parts*. Raises Damaged when the total is too large."""
        self.parts_left -= parts
        if self.parts_left < 0:
            raise Damaged(f"{self.window.name}: more than {MOST_PARTS:,} parts of its structure, too many to verify")

    def _is_new(self, address: int) -> bool:
        if len(self.seen) > MOST_OBJECTS:
            raise Damaged(f"{self.window.name}: more than {MOST_OBJECTS:,} objects, too many to verify")
        is_new = address not in self.seen
        self.seen.add(address)
        return is_new

    def _object(self, address: int) -> list[int]:
        """Verify one group or dataset. Returns the headers of its members."""
        found: dict[int, bytes] = {}
        for message in self._messages(address):
            if message.kind == _ATTRIBUTE:
                self._attribute(message.data)
            else:
                found[message.kind] = message.data
        if _MEMBERS in found:
            tree, heap = struct.unpack_from("<2Q", found[_MEMBERS])
            return list(self._members(tree, self._heap(heap)))
        if _LAYOUT in found:
            if _DATASPACE not in found or _DATATYPE not in found:
                raise Damaged(f"{self.window.name}: a dataset without type or shape at byte {address:,}")
            self._dataset(found[_LAYOUT], _elements(found[_DATASPACE]) * _item_bytes(found[_DATATYPE]), address)
            return []
        raise Damaged(f"{self.window.name}: neither a group nor a dataset at byte {address:,}")

    def _messages(self, address: int) -> Iterator[_Message]:
        version, _, count, _, size = struct.unpack("<BBHII", self._at(address, 12))
        if version != 1:
            raise Damaged(f"{self.window.name}: no object at byte {address:,}, where one should be")
        blocks, found = [(address + 16, size)], 0
        while blocks:
            begin, size = blocks.pop(0)
            block, at = self._at(begin, size), 0
            while at + 8 <= size:
                kind, length = struct.unpack_from("<HH", block, at)
                data = block[at + 8 : at + 8 + length]
                if len(data) < length or kind > 0x19:
                    raise ValueError
                at, found = at + 8 + length, found + 1
                if found > count:
                    raise Damaged(f"{self.window.name}: more than {count:,} parts of the object at byte {address:,}")
                self._count(1)
                if kind == _CONTINUED and self._is_new(struct.unpack_from("<Q", data)[0]):
                    blocks.append(struct.unpack_from("<2Q", data))
                yield _Message(kind, data)
        if found != count:
            raise Damaged(f"{self.window.name}: {found:,} of {count:,} parts of the object at byte {address:,}")

    def _heap(self, address: int) -> bytes:
        """The names of a group's members."""
        signature, size, _, data = struct.unpack("<4s4x3Q", self._at(address, 32))
        if signature != b"HEAP":
            raise Damaged(f"{self.window.name}: the names of a group should be at byte {address:,}")
        return self._at(data, size)

    def _members(self, tree: int, names: bytes) -> Iterator[int]:
        before = b""
        for node in self._leaves(tree, _GROUP, 8):
            signature, _, _, count = struct.unpack("<4sBBH", self._at(node, 8))
            if signature != b"SNOD":
                raise Damaged(f"{self.window.name}: the members of a group should be at byte {node:,}")
            entries = self._at(node + 8, 40 * count)
            self._count(count)
            for at in range(0, 40 * count, 40):
                offset, header, cache = struct.unpack_from("<2QI", entries, at)
                if cache > 2:
                    raise ValueError
                name = names[offset : names.index(b"\0", offset, offset + LONGEST_NAME)]
                self.left -= len(name)  # members may share their characters
                if name <= before:  # the library finds names by binary search
                    raise Damaged(f"{self.window.name}: a group with its members out of order")
                before = name
                name.decode()
                yield header

    def _leaves(self, root: int, kind: int, key: int) -> Iterator[int]:
        """The leaf addresses of a tree whose keys have *key* bytes, in order."""
        waiting = [root]
        while waiting:
            address = waiting.pop()
            if not self._is_new(address):
                raise Damaged(f"{self.window.name}: a tree that comes back to byte {address:,}")
            signature, node_type, level, count = struct.unpack("<4sBBH", self._at(address, 8))
            if signature != b"TREE" or node_type != kind:
                raise Damaged(f"{self.window.name}: no tree at byte {address:,}, where one should be")
            entries = self._at(address + 24, count * (key + 8) + key)
            self._count(count)
            children = [struct.unpack_from("<Q", entries, at + key)[0] for at in range(0, count * (key + 8), key + 8)]
            if level:
                waiting += reversed(children)
            elif kind == _GROUP:
                yield from children
            else:
                sizes = [struct.unpack_from("<I", entries, at)[0] for at in range(0, count * (key + 8), key + 8)]
                for child, size in zip(children, sizes, strict=True):
                    self._require(child, size, "a piece of a dataset")
                yield from children

    def _dataset(self, layout: bytes, expected: int, address: int) -> None:
        if layout[0] != 3:
            raise Damaged(f"{self.window.name}: a dataset in version {layout[0]} of the layout, which is not known")
        if layout[1] == _CONTIGUOUS:
            begin, size = struct.unpack_from("<2Q", layout, 2)
            if begin != _UNDEFINED:  # allocated but not filled: it reads as zeros
                self._require(begin, max(size, expected), "a dataset")
            if size != expected:
                raise Damaged(f"{self.window.name}: a dataset of {size:,} bytes, its type and shape need {expected:,}")
        elif layout[1] == _CHUNKED:
            (tree,) = struct.unpack_from("<Q", layout, 3)
            if tree != _UNDEFINED:
                for _ in self._leaves(tree, _CHUNKS, 8 + 8 * layout[2]):
                    pass
        elif layout[1] != _COMPACT or struct.unpack_from("<H", layout, 2)[0] != expected:
            raise Damaged(f"{self.window.name}: a dataset that lies nowhere, at byte {address:,}")

    def _attribute(self, data: bytes) -> None:
        """Check type, shape and value. Texts of variable length are in a separate heap, which must exist."""
        version, _, name, datatype, dataspace = struct.unpack_from("<BBHHH", data)
        if version not in {1, 2, 3}:
            raise ValueError
        at = 8 + (version == 3)
        sizes = [-(-size // 8) * 8 if version == 1 else size for size in (name, datatype, dataspace)]
        type_at, space_at, value_at = at + sizes[0], at + sum(sizes[:2]), at + sum(sizes)
        kind, count = data[type_at:space_at], _elements(data[space_at:value_at])
        value = data[value_at:]
        if len(value) < count * _item_bytes(kind):
            raise Damaged(f"{self.window.name}: an attribute with {len(value):,} bytes, which is too few")
        if kind[0] & 15 == _OF_ANY_LENGTH:
            for place in range(0, count * 16, 16):
                length, heap, index = struct.unpack_from("<IQI", value, place)
                text = self._text(heap, index, length) if length else b""
                if data[at : at + name].rstrip(b"\0").endswith(_JSON_NAME):
                    _refuse_no_json(text, self.window.name)

    def _text(self, heap: int, index: int, length: int) -> bytes:
        """One text of a heap that several attributes share."""
        if length > LONGEST_TEXT:
            raise Damaged(f"{self.window.name}: a text of {length:,} bytes in an attribute, too long to verify")
        signature, size = struct.unpack("<4s4xQ", self._at(heap, 16))
        block = self._at(heap, size) if signature == b"GCOL" else b""
        at = 16
        while at + 16 <= len(block):
            here, room = struct.unpack_from("<H6xQ", block, at)
            self._count(1)
            if here == index and length <= room <= len(block) - at - 16:
                return block[at + 16 : at + 16 + length]
            at += 16 + -(-room // 8) * 8
        raise Damaged(f"{self.window.name}: the text of an attribute should be at byte {heap:,}")

    def _require(self, begin: int, size: int, what: str) -> None:
        if begin + size > self.window.size:
            raise Damaged(f"{self.window.name}: {self.window.size:,} bytes, {what} is at {begin:,} to {begin + size:,}")


def _elements(dataspace: bytes) -> int:
    """The number of elements by the shape. 1 for a scalar."""
    version, rank, _, kind = dataspace[:4]
    if version not in {1, 2} or rank > 32:
        raise ValueError
    if version == 2 and kind == 2:
        return 0
    return math.prod(struct.unpack_from(f"<{rank}Q", dataspace, 8 if version == 1 else 4))


def _item_bytes(datatype: bytes) -> int:
    kind, size = datatype[0], int.from_bytes(datatype[4:8], "little")
    if not 1 <= kind >> 4 <= 4 or kind & 15 > 10 or not size:
        raise ValueError
    return size


def _refuse_no_json(text: bytes, name: str) -> None:
    try:
        text.decode()
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(f"{name}: a configuration that is not whole JSON") from error
