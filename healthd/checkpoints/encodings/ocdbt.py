"""
OCDBT, the key-value store in which Orbax keeps all arrays of an item: its manifest, and the tree of the newest
version.

The manifest and every tree node are framed by length and CRC-32C, and compressed. Values outside the nodes are in data
files, which have no stored checksum: the files must exist and be long enough.
Source: the storage format in TensorStore's documentation of the driver `ocdbt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from healthd.checkpoints.encodings.ocdbt_bodies import (
    LARGEST_BODY,
    LONGEST_NAME,
    MANIFEST,
    MOST_NODES,
    NODE,
    Body,
    TreeBudget,
    read_files,
    read_node_keys,
    unframe,
)
from healthd.checkpoints.tree import Damaged, Tree, folder_of, inside, read_at

LARGEST_MANIFEST = 1 << 20
_LONGEST_ENDING = 64
_IDENTIFIER = 16


class _Place(NamedTuple):
    """
    The location of a node or a value: its path within the store, and the part of the path that is the base for its
    children.
    """

    path: str
    base: str
    offset: int
    length: int


def verify_manifest(raw: bytes, name: str) -> bytes:
    """The content of *raw*. Raises Damaged unless it is one complete OCDBT manifest."""
    return unframe(raw, MANIFEST, name)


class ValueLocation(NamedTuple):
    """The location of one key's value: inline, or in a file."""

    key: str
    inline: bytes | None
    """None for a value in a file."""
    file: str
    offset: int
    length: int


def read_values(
    tree: Tree, manifest: str, *, ending: tuple[str, ...] = ("",), keeps: bool = False
) -> Iterator[ValueLocation]:
    """
    The values of the newest version of the store with this *manifest*, for keys with such an *ending*, in no order.

    Each file that any key needs exists. *keeps* limits the total bytes of all keys. Raises Damaged.
    """
    return _Walk(tree, folder_of(manifest), ending, keeps=keeps).run(manifest)


def _newest_root(content: bytes, name: str) -> tuple[_Place, int]:
    """The location of the root of the newest version, and its height."""
    body = Body(content, name, TreeBudget())
    body.take(_IDENTIFIER)
    if body.number():
        raise Damaged(f"{name}: a store with numbered manifests, which cannot be verified")
    body.numbers(2)  # limits of sizes
    body.take(1)
    if body.number():
        body.take(4)
    files = read_files(body, "")
    versions = body.number()
    body.numbers(versions)
    heights = body.take(versions)
    ids, offsets, lengths = (body.numbers(versions) for _ in range(3))
    if not versions:
        raise ValueError
    path, base = files[ids[-1]]
    return _Place(path, base, offsets[-1], lengths[-1]), heights[-1]


class _Node(NamedTuple):
    """A node that is still to be read."""

    place: _Place
    height: int
    prefix: bytes
    """The common prefix of all keys in it."""


class _Walk:
    """A walk over all nodes of one tree, each node once."""

    def __init__(self, tree: Tree, folder: str, ending: tuple[str, ...], *, keeps: bool) -> None:
        self._tree = tree
        self._folder = folder
        self._endings = tuple(each.encode() for each in ending)
        self._keeps = keeps
        """Whether the keys of all nodes are in memory at the same time."""
        self._room = TreeBudget()

    def run(self, manifest: str) -> Iterator[ValueLocation]:
        """The values of the newest version. Raises Damaged."""
        content = verify_manifest(self._tree.read(manifest, at_most=LARGEST_MANIFEST), manifest)
        try:
            root, height = _newest_root(content, manifest)
            if root.length:
                yield from self._below(root, height)
        except (IndexError, ValueError, OverflowError) as error:
            raise Damaged(f"{manifest}: an index that is garbled") from error

    def _below(self, root: _Place, height: int) -> Iterator[ValueLocation]:
        """The values below *root*. Raises Damaged, IndexError, ValueError and OverflowError."""
        waiting, seen = [_Node(root, height, b"")], set()
        while waiting:
            node = waiting.pop()
            if node.place in seen:
                raise Damaged(f"{node.place.path}: a tree that comes back to byte {node.place.offset:,}")
            seen.add(node.place)
            body = self._read(node)
            files = read_files(body, node.place.base)
            if node.height:
                waiting += self._children(body, files, node)
            else:
                yield from self._leaves(body, files, node.prefix)

    def _read(self, node: _Node) -> Body:
        place = node.place
        name = self._require(place.path, place.offset + place.length)
        if place.length > LARGEST_BODY:
            raise Damaged(f"{name}: a node of {place.length:,} bytes")
        with self._tree.open(name) as file:
            raw = read_at(file, name, offset=place.offset, size=place.length)
        content = unframe(raw, NODE, f"{name} at byte {place.offset:,}")
        self._room.nodes -= 1
        self._room.bytes -= len(content)
        self._room.refuse_excess(name)
        body = Body(content, name, self._room)
        if body.take(1)[0] != node.height:
            raise Damaged(f"{name}: a node of another level at byte {place.offset:,}")
        return body

    def _require(self, path: str, end: int) -> str:
        name = inside(self._folder, path, named_by=f"{self._folder}/manifest.ocdbt".lstrip("/"))
        size = self._tree.size(name)
        if size < end:
            raise Damaged(f"{name}: {size:,} of at least {end:,} bytes (torn write)")
        return name

    def _children(self, body: Body, files: list[tuple[str, str]], above: _Node) -> Iterator[_Node]:
        count = body.number()
        if count > MOST_NODES:
            raise ValueError
        keys = []
        for key, common in read_node_keys(body, count, inner=True):
            keys.append(above.prefix + key[:common])
            body.holds(len(keys[-1]))
            if len(keys[-1]) > LONGEST_NAME:
                raise ValueError
        ids, offsets, lengths = (body.numbers(count) for _ in range(3))
        for key, file, offset, length in zip(keys, ids, offsets, lengths, strict=True):
            yield _Node(_Place(*files[file], offset, length), above.height - 1, key)

    def _leaves(self, body: Body, files: list[tuple[str, str]], prefix: bytes) -> Iterator[ValueLocation]:
        """
        The values of one node. Each is inline, or inside a file that exists. Keys are read twice, not kept in memory.
        """
        count = body.number()
        keys_at, end_of_prefix = body.place, prefix[-_LONGEST_ENDING:]
        is_wanted = False
        for key, _ in read_node_keys(body, count, inner=False):
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
            read_node_keys(body.again(since=keys_at), count, inner=False), sizes, kinds, strict=True
        ):
            file, offset = next(places) if kind else (0, 0)
            content = None if kind else body.take(size)
            if (end_of_prefix + key).endswith(self._endings):
                body.writes_out(len(prefix))
                if self._keeps:
                    body.holds(len(prefix) + len(key))
                yield ValueLocation(_text(prefix + key), content, names[file] if kind else "", offset, size)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")
