"""
What a manifest and a node of OCDBT are made of: a frame with length and CRC-32C, in it, compressed, numbers and names.

All that is read from it has a bound over the whole tree, for a few bytes may tell of millions of keys.
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
"""Bytes of a manifest or a node when decompressed; the library makes nodes of half as much."""
MOST_NODES = 100_000
LARGEST_TREE = 512 << 20
"""Bytes of all nodes when decompressed, and of all keys when written out."""
MOST_NUMBERS = 16_000_000
"""In all nodes, of which each key has four to six: bounds the time to some seconds."""
MOST_IN_A_NODE = 1_000_000
"""Keys, or files."""
LARGEST_NAMES = 64 << 20
"""Bytes of the names in all inner nodes when written out, for each is told as what it adds to the one before, and of
those that are kept."""
LONGEST_NAME = 1 << 16
_WINDOW = 25
"""Of the compression, as a power of two: how much of it is in memory."""
_EACH_KEPT = 100
"""Bytes that a name takes besides its letters."""
MANIFEST, NODE = bytes.fromhex("0cdb3a2a"), bytes.fromhex("0cdb20de")
_FRAME = 17
"""Bytes around the content: magic, length, version, and the checksum at the end."""
_ZSTD = 1


class TreeBudget:
    """What is left of the bounds of one tree."""

    def __init__(self) -> None:
        self.nodes = MOST_NODES
        self.bytes = LARGEST_TREE
        self.numbers = MOST_NUMBERS
        self.names = LARGEST_NAMES

    def refuse_excess(self, name: str) -> None:
        """Raise Damaged when any of it is used up."""
        if min(self.nodes, self.bytes, self.numbers, self.names) < 0:
            raise Damaged(f"{name}: an index of too many nodes or keys, or too large, to verify")


class Body:
    """The decompressed content of a manifest or a node, read from front to end."""

    def __init__(self, raw: bytes, name: str, room: TreeBudget) -> None:
        self._raw = raw
        self._at = 0
        self._name = name
        self._room = room

    def take(self, size: int) -> bytes:
        """Raises ValueError at the end."""
        begin, self._at = self._at, self._at + size
        if self._at > len(self._raw):
            raise ValueError
        return self._raw[begin : self._at]

    def again(self, *, since: int) -> Body:
        """The same, to be read once more from there on."""
        same = Body(self._raw, self._name, TreeBudget())
        same._at = since
        return same

    @property
    def place(self) -> int:
        """How much of it was read."""
        return self._at

    def number(self) -> int:
        """Raises IndexError and ValueError at the end."""
        value, self._at = varint(self._raw, self._at)
        return value

    def numbers(self, count: int) -> array[int]:
        """*count* of them. Raises IndexError, ValueError and OverflowError, and Damaged for too many."""
        if count > min(len(self._raw), MOST_IN_A_NODE):
            raise ValueError
        self._room.numbers -= count
        self._room.refuse_excess(self._name)
        found, raw, at = array("Q"), self._raw, self._at
        for _ in range(count):
            value = raw[at]
            if value < 0x80:  # most of them
                at += 1
            else:
                value, at = varint(raw, at)
            found.append(value)
        self._at = at
        return found

    def writes_out(self, size: int) -> None:
        """A name of so many bytes is put together. Raises Damaged when it was too much of that."""
        self._room.bytes -= size
        if self._room.bytes < 0:
            self._room.refuse_excess(self._name)

    def holds(self, size: int) -> None:
        """Names of so many bytes are held in memory. Raises Damaged when they are too many."""
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
    """The data files that a node names: path, and the part of it that goes for the nodes below."""
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
    """Keys relative to the node, in order, each with how much of it all keys below share. Raises ValueError."""
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
