"""
OCDBT, the key-value store in which Orbax keeps all arrays of an item: its manifest, and the tree of the newest version.

The manifest and every node of the tree are framed by length and CRC-32C, and compressed. Values that are not in a node
lie in data files, whose checksum nobody keeps: they have to be there and long enough.
Source: the storage format in TensorStore's documentation of the driver `ocdbt`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from healthd.checkpoints.sstables import crc32c, varint
from healthd.checkpoints.tree import Damaged, Tree, folder_of, inside, read_at

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LARGEST_MANIFEST = 1 << 20
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
_LONGEST_ENDING = 64
_EACH_KEPT = 100
"""Bytes that a name takes besides its letters."""
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


class _Room:
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


class _Body:
    """The decompressed content of a manifest or a node, read from front to end."""

    def __init__(self, raw: bytes, name: str, room: _Room) -> None:
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

    def again(self, *, since: int) -> _Body:
        """The same, to be read once more from there on."""
        same = _Body(self._raw, self._name, _Room())
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


def verify_manifest(raw: bytes, name: str) -> bytes:
    """The content of *raw*. Raises Damaged unless it is one whole manifest of OCDBT."""
    return _unframe(raw, _MANIFEST, name)


class Value(NamedTuple):
    """Where the value of one key is: here, or in a file."""

    key: str
    inline: bytes | None
    """None for what is in a file."""
    file: str
    offset: int
    length: int


def read_values(tree: Tree, manifest: str, *, ending: tuple[str, ...] = ("",), keeps: bool = False) -> Iterator[Value]:
    """
    The values of the newest version of the store with this *manifest*, of the keys that end so, in no order.

    All that any key needs is there. With *keeps* there is an end to the bytes of all keys. Raises Damaged.
    """
    return _Walk(tree, folder_of(manifest), ending, keeps=keeps).run(manifest)


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
    machine = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    try:
        body = machine.decompress(content, max_length=LARGEST_BODY)
    except zstd.ZstdError as error:
        raise Damaged(f"{name}: its index cannot be decompressed") from error
    if not machine.eof:
        raise Damaged(f"{name}: an index of more than {LARGEST_BODY:,} bytes")
    return bytes(body)


def _newest_root(content: bytes, name: str) -> tuple[_Place, int]:
    """Where the root of the newest version lies, and its height."""
    body = _Body(content, name, _Room())
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


class _Node(NamedTuple):
    """One that is still to be read."""

    place: _Place
    height: int
    prefix: bytes
    """What all keys in it begin with."""


class _Walk:
    """Over all nodes of one tree, each once."""

    def __init__(self, tree: Tree, folder: str, ending: tuple[str, ...], *, keeps: bool) -> None:
        self._tree = tree
        self._folder = folder
        self._endings = tuple(each.encode() for each in ending)
        self._keeps = keeps
        """Whether the keys of all nodes are held at once."""
        self._room = _Room()

    def run(self, manifest: str) -> Iterator[Value]:
        """The values of the newest version. Raises Damaged."""
        content = verify_manifest(self._tree.read(manifest, at_most=LARGEST_MANIFEST), manifest)
        try:
            root, height = _newest_root(content, manifest)
            if root.length:
                yield from self._below(root, height)
        except (IndexError, ValueError, OverflowError) as error:
            raise Damaged(f"{manifest}: an index that is garbled") from error

    def _below(self, root: _Place, height: int) -> Iterator[Value]:
        """Raises Damaged, IndexError, ValueError and OverflowError."""
        waiting, seen = [_Node(root, height, b"")], set()
        while waiting:
            node = waiting.pop()
            if node.place in seen:
                raise Damaged(f"{node.place.path}: a tree that comes back to byte {node.place.offset:,}")
            seen.add(node.place)
            body = self._read(node)
            files = _read_files(body, node.place.base)
            if node.height:
                waiting += self._children(body, files, node)
            else:
                yield from self._leaves(body, files, node.prefix)

    def _read(self, node: _Node) -> _Body:
        place = node.place
        name = self._require(place.path, place.offset + place.length)
        if place.length > LARGEST_BODY:
            raise Damaged(f"{name}: a node of {place.length:,} bytes")
        with self._tree.open(name) as file:
            raw = read_at(file, name, offset=place.offset, size=place.length)
        content = _unframe(raw, _NODE, f"{name} at byte {place.offset:,}")
        self._room.nodes -= 1
        self._room.bytes -= len(content)
        self._room.refuse_excess(name)
        body = _Body(content, name, self._room)
        if body.take(1)[0] != node.height:
            raise Damaged(f"{name}: a node of another level at byte {place.offset:,}")
        return body

    def _require(self, path: str, end: int) -> str:
        name = inside(self._folder, path, told_by=f"{self._folder}/manifest.ocdbt".lstrip("/"))
        size = self._tree.size(name)
        if size < end:
            raise Damaged(f"{name}: {size:,} of at least {end:,} bytes (torn write)")
        return name

    def _children(self, body: _Body, files: list[tuple[str, str]], above: _Node) -> Iterator[_Node]:
        count = body.number()
        if count > MOST_NODES:
            raise ValueError
        keys = []
        for key, common in _keys(body, count, inner=True):
            keys.append(above.prefix + key[:common])
            body.holds(len(keys[-1]))
            if len(keys[-1]) > LONGEST_NAME:
                raise ValueError
        ids, offsets, lengths = (body.numbers(count) for _ in range(3))
        for key, file, offset, length in zip(keys, ids, offsets, lengths, strict=True):
            yield _Node(_Place(*files[file], offset, length), above.height - 1, key)

    def _leaves(self, body: _Body, files: list[tuple[str, str]], prefix: bytes) -> Iterator[Value]:
        """The values of one node, which are in it or inside of files that are there. Keys are read twice, not held."""
        count = body.number()
        keys_at, end_of_prefix = body.place, prefix[-_LONGEST_ENDING:]
        is_wanted = False
        for key, _ in _keys(body, count, inner=False):
            is_wanted = is_wanted or (end_of_prefix + key).endswith(self._endings)
        sizes, kinds = body.numbers(count), body.numbers(count)
        outside = sum(map(bool, kinds))
        ids, offsets = body.numbers(outside), body.numbers(outside)
        ends: dict[int, int] = {}
        lengths = (size for size, kind in zip(sizes, kinds, strict=True) if kind)
        for file, offset, length in zip(ids, offsets, lengths, strict=True):
            ends[file] = max(ends.get(file, 0), offset + length)
        names = {file: self._require(files[file][0], end) for file, end in ends.items()}
        if not is_wanted:
            return
        places = zip(ids, offsets, strict=True)
        for (key, _), size, kind in zip(
            _keys(body.again(since=keys_at), count, inner=False), sizes, kinds, strict=True
        ):
            file, offset = next(places) if kind else (0, 0)
            content = None if kind else body.take(size)
            if (end_of_prefix + key).endswith(self._endings):
                if self._keeps:
                    body.holds(len(prefix) + len(key))
                yield Value(_text(prefix + key), content, names[file] if kind else "", offset, size)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def _keys(body: _Body, count: int, *, inner: bool) -> Iterator[tuple[bytes, int]]:
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
