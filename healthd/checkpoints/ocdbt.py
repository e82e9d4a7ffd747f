"""
OCDBT, the key-value store in which Orbax keeps all arrays of an item: its manifest, and the tree of the newest version.

The manifest and every node of the tree are framed by length and CRC-32C, and compressed. Values that are not in a node
lie in data files, whose checksum nobody keeps: they have to be there and long enough.
Source: the storage format in TensorStore's documentation of the driver `ocdbt`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from healthd.checkpoints.sstables import crc32c, varint
from healthd.checkpoints.tree import Damaged, Tree, folder_of, inside, read_at

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LARGEST_MANIFEST = 1 << 20
LARGEST_BODY = 64 << 20
"""Bytes of a manifest or a node when decompressed."""
MOST_NODES = 100_000
LARGEST_TREE = 512 << 20
"""Bytes of all nodes when decompressed."""
LARGEST_NAMES = 64 << 20
"""Bytes of the names in one node when written out: each is told as what it adds to the one before."""
_MANIFEST, _NODE = bytes.fromhex("0cdb3a2a"), bytes.fromhex("0cdb20de")
_FRAME = 17
"""Bytes around the content: magic, length, version, and the checksum at the end."""
_ZSTD = 1
_IDENTIFIER = 16


class _Place(NamedTuple):
    """Where a node or a value lies: path within the store, and the part of it that goes for what is below."""

    path: str
    base: str
    offset: int
    length: int


class _Body:
    """The decompressed content of a manifest or a node, read from front to end."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    def take(self, size: int) -> bytes:
        """Raises ValueError at the end."""
        begin, self._at = self._at, self._at + size
        if self._at > len(self._raw):
            raise ValueError
        return self._raw[begin : self._at]

    def number(self) -> int:
        """Raises IndexError and ValueError at the end."""
        value, self._at = varint(self._raw, self._at)
        return value

    def numbers(self, count: int) -> list[int]:
        """*count* of them. Raises IndexError and ValueError."""
        if count > len(self._raw):
            raise ValueError
        return [self.number() for _ in range(count)]


def verify_manifest(raw: bytes, name: str) -> bytes:
    """The content of *raw*. Raises Damaged unless it is one whole manifest of OCDBT."""
    return _unframe(raw, _MANIFEST, name)


def read_keys(tree: Tree, manifest: str) -> set[str]:
    """
    The keys of the newest version of the store with this *manifest*; all that they need is there. Raises Damaged.
    """
    content = verify_manifest(tree.read(manifest, at_most=LARGEST_MANIFEST), manifest)
    try:
        root, height = _newest_root(content, manifest)
        if not root.length:
            return set()
        return set(_walk(tree, folder_of(manifest), root, height))
    except (IndexError, ValueError) as error:
        raise Damaged(f"{manifest}: an index that is garbled") from error


def _unframe(raw: bytes, magic: bytes, name: str) -> bytes:
    if len(raw) < _FRAME or raw[:4] != magic:
        what = "empty file" if not raw else "not a manifest of OCDBT" if magic == _MANIFEST else "no node of OCDBT"
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
    machine = zstd.ZstdDecompressor()
    try:
        body = machine.decompress(content, max_length=LARGEST_BODY)
    except zstd.ZstdError as error:
        raise Damaged(f"{name}: its index cannot be decompressed") from error
    if not machine.eof:
        raise Damaged(f"{name}: an index of more than {LARGEST_BODY:,} bytes")
    return bytes(body)


def _newest_root(content: bytes, name: str) -> tuple[_Place, int]:
    """Where the root of the newest version lies, and its height."""
    body = _Body(content)
    body.take(_IDENTIFIER)
    if body.number():
        raise Damaged(f"{name}: a store with numbered manifests, which cannot be verified")
    body.numbers(2)  # how large what is may be
    body.take(1)
    if body.number():
        body.take(4)
    files = _read_files(body, "")
    versions = body.number()
    body.numbers(versions)
    heights = body.take(versions)
    ids, offsets, lengths = (body.numbers(versions) for _ in range(3))
    if not versions:
        raise ValueError
    path, base = files[ids[-1]]
    return _Place(path, base, offsets[-1], lengths[-1]), heights[-1]


def _read_files(body: _Body, above: str) -> list[tuple[str, str]]:
    """The data files that a node names: path, and the part of it that goes for the nodes below."""
    count = body.number()
    prefixes = [0, *body.numbers(count - 1)] if count else []
    suffixes, bases = body.numbers(count), body.numbers(count)
    found: list[tuple[str, str]] = []
    path, left = b"", LARGEST_NAMES
    for prefix, suffix, base in zip(prefixes, suffixes, bases, strict=True):
        path = path[:prefix] + body.take(suffix)
        left -= len(above) + len(path)
        if left < 0:
            raise ValueError
        found.append((above + path.decode(), above + path[:base].decode()))
    return found


def _walk(tree: Tree, folder: str, root: _Place, height: int) -> Iterator[str]:
    waiting, seen, left = [(root, height, b"")], 0, LARGEST_TREE
    while waiting:
        place, height, prefix = waiting.pop()
        name, raw = _read(tree, folder, place)
        content = _unframe(raw, _NODE, f"{name} at byte {place.offset:,}")
        seen, left = seen + 1, left - len(content)
        if seen > MOST_NODES or left < 0:
            raise Damaged(f"{name}: an index of too many nodes, or too large, to verify")
        body = _Body(content)
        if body.take(1)[0] != height:
            raise Damaged(f"{name}: a node of another level at byte {place.offset:,}")
        files = _read_files(body, place.base)
        count = body.number()
        if height:
            waiting += [(child, height - 1, prefix + key) for child, key in _children(body, files, count)]
        else:
            for key in _leaves(tree, folder, body, files, count):
                yield (prefix + key).decode("utf-8", "replace")


def _read(tree: Tree, folder: str, place: _Place) -> tuple[str, bytes]:
    name = _require(tree, folder, place)
    if place.length > LARGEST_BODY:
        raise Damaged(f"{name}: a node of {place.length:,} bytes")
    with tree.open(name) as file:
        return name, read_at(file, name, offset=place.offset, size=place.length)


def _require(tree: Tree, folder: str, place: _Place) -> str:
    name = inside(folder, place.path, told_by=f"{folder}/manifest.ocdbt".lstrip("/"))
    size, end = tree.size(name), place.offset + place.length
    if size < end:
        raise Damaged(f"{name}: {size:,} of at least {end:,} bytes (torn write)")
    return name


def _read_keys(body: _Body, count: int, *, inner: bool) -> list[tuple[bytes, int]]:
    """Keys relative to the node, each with how much of it all keys below share."""
    prefixes = [0, *body.numbers(count - 1)] if count else []
    suffixes = body.numbers(count)
    shared = body.numbers(count) if inner else [0] * count
    keys: list[tuple[bytes, int]] = []
    key, left = b"", LARGEST_NAMES
    for prefix, suffix, common in zip(prefixes, suffixes, shared, strict=True):
        key = key[:prefix] + body.take(suffix)
        left -= len(key)
        if left < 0:
            raise ValueError
        keys.append((key, common))
    if any(one >= other for (one, _), (other, _) in pairwise(keys)):
        raise ValueError
    return keys


def _children(body: _Body, files: list[tuple[str, str]], count: int) -> Iterator[tuple[_Place, bytes]]:
    keys = _read_keys(body, count, inner=True)
    ids, offsets, lengths = (body.numbers(count) for _ in range(3))
    for (key, common), file, offset, length in zip(keys, ids, offsets, lengths, strict=True):
        yield _Place(*files[file], offset, length), key[:common]


def _leaves(tree: Tree, folder: str, body: _Body, files: list[tuple[str, str]], count: int) -> Iterator[bytes]:
    keys = _read_keys(body, count, inner=False)
    sizes, kinds = body.numbers(count), body.numbers(count)
    outside = [size for size, kind in zip(sizes, kinds, strict=True) if kind]
    ids, offsets = body.numbers(len(outside)), body.numbers(len(outside))
    for size, file, offset in zip(outside, ids, offsets, strict=True):
        _require(tree, folder, _Place(*files[file], offset, size))
    yield from (key for key, _ in keys)
