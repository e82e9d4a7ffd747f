"""Stores of OCDBT made by hand, whose nodes may say anything."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

from healthd.checkpoints.encodings.sstables import crc32c
from tests.checkpoints.hostile.numbers import varint

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MANIFEST, NODE = bytes.fromhex("0cdb3a2a"), bytes.fromhex("0cdb20de")


def framed(magic: bytes, body: bytes, *, size: int = 0) -> bytes:
    """Compressed, with length and checksum; filled up to *size*, behind what is decompressed."""
    content = (bytes([0, 1]) + zstd.compress(body)).ljust(size - 16, b"\0")
    raw = magic + struct.pack("<Q", len(content) + 16) + content
    return raw + struct.pack("<I", crc32c(raw))


def each(*numbers: int) -> bytes:
    return b"".join(map(varint, numbers))


def files(count: int, prefix: int = 0, name: bytes = b"d/a", base: int = 0) -> bytes:
    """One data file, over and over; what comes after the first adds its last letter."""
    prefixes, suffixes = [prefix] * (count - 1), [len(name), *[len(name) - prefix] * (count - 1)]
    names = name + name[prefix:] * (count - 1)
    return each(count, *prefixes, *suffixes, *[base] * count) + names


def an_inner(height: int, keys: list[bytes], places: list[tuple[int, int]], shared: list[int] | None = None) -> bytes:
    """Children by key, with offset and length."""
    count = len(keys)
    head = bytes([height]) + files(1) + each(count, *[0] * (count - 1), *map(len, keys), *(shared or [0] * count))
    offsets, lengths = [offset for offset, _ in places], [length for _, length in places]
    return head + b"".join(keys) + each(*[0] * count, *offsets, *lengths)


def a_leaf(prefixes: list[int], keys: list[bytes]) -> bytes:
    """Empty values, in the node itself."""
    count = len(keys)
    return bytes([0]) + files(1) + each(count, *prefixes[1:], *map(len, keys)) + b"".join(keys) + bytes(2 * count)


def a_leaf_of(values: dict[bytes, bytes]) -> bytes:
    """Values in the node itself, by key in order."""
    keys, contents = list(values), list(values.values())
    head = bytes([0]) + files(1) + each(len(keys), *[0] * (len(keys) - 1), *map(len, keys)) + b"".join(keys)
    return head + each(*map(len, contents), *[0] * len(keys)) + b"".join(contents)


def a_manifest(root: tuple[int, int], height: int) -> bytes:
    """The body of one with a single version, whose root has this offset and length."""
    versions = each(1) + files(1)[1:]  # one file
    head = bytes(16) + each(0, 100, 100) + b"\0" + each(0) + versions + each(1, 1) + bytes([height])
    return head + each(0, *root) + bytes(100)


def a_store(folder: Path, *nodes: bytes, height: int, root: tuple[int, int] | None = None) -> Path:
    """A step of Orbax with one store, of which the first node is the root."""
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "a").write_bytes(b"".join(nodes))
    body = a_manifest(root or (0, len(nodes[0])), height)
    (folder / "manifest.ocdbt").write_bytes(framed(MANIFEST, body))
    (folder / "_METADATA").write_text('{"tree_metadata": {}, "use_ocdbt": true}')
    return folder
