"""
The parts of an OCDBT manifest and node: a frame with length and CRC-32C, and in it, compressed, numbers and names.

All reads have a limit over the whole tree, because a few bytes may declare millions of keys.
Source: the storage format in TensorStore's documentation of the driver `ocdbt`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator

from healthd.checkpoints.encodings.sstables import crc32c, varint
from healthd.checkpoints.tree import Damaged

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LARGEST_BODY = 16 << 20
"""The limit of bytes of a decompressed manifest or node. The library makes nodes of half that size."""
MOST_NODES = 100_000
LARGEST_TREE = 512 << 20
"""The limit of bytes of all decompressed nodes, and of all keys when written out."""
MOST_NUMBERS = 16_000_000
"""The limit over all nodes. Each key has four to six numbers. It limits the time to some seconds."""
MOST_IN_A_NODE = 1_000_000
"""The limit of keys, or of files."""
LARGEST_NAMES = 64 << 20
"""
The limit of bytes of the names in all inner nodes when written out, and of the names that are kept. Each name is
stored as its difference to the name before.
"""
LONGEST_NAME = 1 << 16
_WINDOW = 25
"""Window of the compression as a power of two: how much of it is in memory."""
_EACH_KEPT = 100
"""Bytes of memory for a name besides its characters."""
MANIFEST, NODE = bytes.fromhex("0cdb3a2a"), bytes.fromhex("0cdb20de")
_FRAME = 17
"""Bytes around the content: magic, length, version, and the checksum at the end."""
_ZSTD = 1


class TreeBudget:
    """The remaining limits of one tree."""

    def __init__(self) -> None:
        self.nodes = MOST_NODES
        self.bytes = LARGEST_TREE
        self.numbers = MOST_NUMBERS
        self.names = LARGEST_NAMES

    def refuse_excess(self, name: str) -> None:
        """Raise Damaged when one of the limits is used up."""
        if min(self.nodes, self.bytes, self.numbers, self.names) < 0:
            raise Damaged(f"{name}: an index of too many nodes or keys, or too large, to verify")


class Body:
    """The decompressed content of a manifest or a node, read from start to end."""

    def __init__(self, raw: bytes, name: str, room: TreeBudget) -> None:
        self._raw = raw
        self._at = 0
        self._name = name
        self._room = room

    def take(self, size: int) -> bytes:
        """The next *size* bytes. Raises ValueError at the end."""
        begin, self._at = self._at, self._at + size
        if self._at > len(self._raw):
            raise ValueError
        return self._raw[begin : self._at]

    def again(self, *, since: int) -> Body:
        """A second reader of the same content, starting at *since*."""
        same = Body(self._raw, self._name, TreeBudget())
        same._at = since
        return same

    @property
    def place(self) -> int:
        """The number of bytes read."""
        return self._at

    def number(self) -> int:
        """The next number. Raises IndexError and ValueError at the end."""
        value, self._at = varint(self._raw, self._at)
        return value

    def numbers(self, count: int) -> array[int]:
        """The next *count* numbers. Raises IndexError, ValueError and OverflowError, and Damaged for too many."""
        if count > min(len(self._raw), MOST_IN_A_NODE):
            raise ValueError
        self._room.numbers -= count
        self._room.refuse_excess(self._name)
        found, raw, at = array("Q"), self._raw, self._at
        for _ in range(count):
            value = raw[at]
            if value < 0x80:  # most numbers
                at += 1
            else:
                value, at = varint(raw, at)
            found.append(value)
        self._at = at
        return found

    def writes_out(self, size: int) -> None:
        """Count a name of *size* bytes that is written out. Raises Damaged when the total is too large."""
        self._room.bytes -= size
        if self._room.bytes < 0:
            self._room.refuse_excess(self._name)

    def holds(self, size: int) -> None:
        """Count a name of *size* bytes that is kept in memory. Raises Damaged when the total is too large."""
        self._room.names -= size + _EACH_KEPT
        self._room.refuse_excess(self._name)


def unframe(raw: bytes, magic: bytes, name: str) -> bytes:
    if len(raw) < _FRAME or raw[:4] != magic:
        what = "empty file" if not raw else "not a manifest of OCDBT" if magic == MANIFEST else "no node of OCDBT"
        raise Damaged(f"{name}: {what}{' (torn write)' if raw else ''}")
    length = int.from_bytes(raw[4:12], "little")
    if length != len(raw):
        raise Damaged(f"{name}: {len(raw):,} of {length:,} bytes (torn write)")
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise Damaged(f"{name}: its checksum does not match its {length:,} bytes")
    version, compression, content = raw[12], raw[13], raw[14:-4]
    if version or compression > _ZSTD:
        raise Damaged(f"{name}: version {version} of OCDBT, which is not known")
    return _decompress(content, name) if compression else content


def _decompress(content: bytes, name: str) -> bytes:
    machine = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    try:
        body = machine.decompress(content, max_length=LARGEST_BODY)
    except zstd.ZstdError as error:
        raise Damaged(f"{name}: its index cannot be decompressed") from error
    if not machine.eof:
        raise Damaged(f"{name}: an index of more than {LARGEST_BODY:,} bytes")
    return bytes(body)


def read_files(body: Body, above: str) -> list[tuple[str, str]]:
    """The data files that a node names: the path, and the part of it that is the base for the nodes below."""
    count = body.number()
    prefixes = array("Q", [0]) + body.numbers(count - 1) if count else array("Q")
    suffixes, bases = body.numbers(count), body.numbers(count)
    found: list[tuple[str, str]] = []
    path = b""
    for prefix, suffix, base in zip(prefixes, suffixes, bases, strict=True):
        path = path[:prefix] + body.take(suffix)
        if len(above) + len(path) > LONGEST_NAME:
            raise ValueError
        body.holds(len(above) + len(path))
        found.append((above + path.decode(), above + path[:base].decode()))
    return found


def read_node_keys(body: Body, count: int, *, inner: bool) -> Iterator[tuple[bytes, int]]:
    """
    Keys relative to the node, in order, each with the length of the prefix shared by all keys below. Raises
    ValueError.
    """
    prefixes = array("Q", [0]) + body.numbers(count - 1) if count else array("Q")
    suffixes = body.numbers(count)
    shared = body.numbers(count) if inner else array("Q", bytes(8 * count))
    before: bytes | None = None
    for prefix, suffix, common in zip(prefixes, suffixes, shared, strict=True):
        key = (before or b"")[:prefix] + body.take(suffix)
        if len(key) > LONGEST_NAME or (before is not None and key <= before):
            raise ValueError
        body.writes_out(len(key))
        before = key
        yield key, common
