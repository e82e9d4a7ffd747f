"""
Checkpoints of TensorFlow: `ckpt-5.index` with `ckpt-5.data-00000-of-00002` beside it, also within a SavedModel.

The index is renamed into place after the data. It has the type, shape, shard, position, size and CRC-32C of each
tensor. Several steps are in one folder. The text file `checkpoint` beside them names the latest: a hint that is not
followed. Source: tensorflow/core/protobuf/tensor_bundle.proto and tensorflow/core/util/tensor_bundle.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from healthd.checkpoints.encodings.sstables import FOOTER, LARGEST_TABLE, MAGIC, crc32c, read_table, unmask, varint
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.tree import Damaged, Tree, filename_of, read_at
from healthd.checkpoints.windows import Window, open_window
from healthd.checkpoints.workers import for_each

_DATA = re.compile(r"(?P<prefix>.*)\.data-\d{5,}-of-\d{5,}")
_INDEX = ".index"
_STRING, _RESOURCE, _VARIANT = 7, 20, 21
_TYPE_BYTES = {
    **dict.fromkeys((4, 6, 10, 11, 12, 24, 25, 26, 27), 1),
    **dict.fromkeys((5, 14, 15, 16, 17, 19), 2),
    **dict.fromkeys((1, 3, 13, 22), 4),
    **dict.fromkeys((2, 8, 9, 23), 8),
    18: 16,
}
"""Bytes of one element, by number of the DataType. Other types are not compared with their shape."""
_MOST_TEXT = 1_000_000
"""The limit of texts in one tensor. With more, their lengths are not compared."""


class _Piece(NamedTuple):
    """One tensor, or one slice of a tensor."""

    key: str
    kind: int
    elements: int
    shard: int
    offset: int
    size: int
    crc: int


class TensorFlow:
    """Every index is complete, every shard that it counts exists, and every tensor is inside its shard."""

    name = "tensorflow"

    def owns(self, filename: str) -> bool:
        """Shards of data and indexes."""
        return filename.endswith(_INDEX) or _DATA.fullmatch(filename) is not None

    def detect(self, tree: Tree) -> bool:
        """Any shard of data, or an index that ends like a table of TensorFlow. Raises Damaged."""
        return any(_DATA.fullmatch(filename_of(name)) for name in tree.entries) or any(
            name.endswith(_INDEX) and _is_table(tree, name) for name in tree.entries
        )

    def verify(self, tree: Tree, level: VerifyLevel) -> None:
        """QUICK reads the indexes. FULL reads every tensor. Raises Damaged."""
        prefixes = {match["prefix"] for name in tree.entries if (match := _DATA.fullmatch(name))}
        prefixes |= {n.removesuffix(_INDEX) for n in tree.entries if n.endswith(_INDEX) and _is_table(tree, n)}
        for prefix in sorted(prefixes):
            if prefix + _INDEX not in tree.entries:
                raise Damaged(f"{prefix}{_INDEX}: missing; it is written last (save not finished)")
            _verify_bundle(tree, level, prefix)


def read_index(tree: Tree, name: str) -> tuple[int, list[_Piece]]:
    """The number of shards, and the tensors. Raises Damaged."""
    entries = read_table(tree.read(name, at_most=LARGEST_TABLE), name)
    if not entries or entries[0][0]:
        raise Damaged(f"{name}: an index without a header")
    try:
        header = dict(_fields(entries[0][1]))
        shards = _whole(header.get(1, 1))
        pieces = [piece for key, value in entries[1:] if (piece := _parse_piece(key, value))]
    except (IndexError, ValueError) as error:
        raise Damaged(f"{name}: its index is garbled") from error
    if header.get(2, 0):
        raise Damaged(f"{name}: written on a big-endian machine, which cannot be verified")
    return shards, pieces


def shard_name(prefix: str, shard: int, shards: int) -> str:
    """The name that TensorFlow gives a shard."""
    return f"{prefix}.data-{shard:05}-of-{shards:05}"


def _is_table(tree: Tree, name: str) -> bool:
    entry = tree.entries[name]
    if entry.not_a_file or entry.stamp.size < FOOTER:
        return False
    with tree.open(name) as file:
        return read_at(file, name, offset=entry.stamp.size - len(MAGIC), size=len(MAGIC)) == MAGIC


def _verify_bundle(tree: Tree, level: VerifyLevel, prefix: str) -> None:
    shards, pieces = read_index(tree, prefix + _INDEX)
    by_shard: dict[int, list[_Piece]] = defaultdict(list)
    for piece in pieces:
        by_shard[piece.shard].append(piece)
    if shards < 1 or max(by_shard, default=0) >= shards:
        raise Damaged(f"{prefix}{_INDEX}: declares {shards:,} shards, and of data in others")
    for shard in range(shards):  # ends at the first missing shard
        tree.require(shard_name(prefix, shard, shards))
    files = [(shard_name(prefix, shard, shards), found) for shard, found in sorted(by_shard.items())]
    for_each(partial(_verify_shard, tree, level), files, at_once=tree.at_once)


def _verify_shard(tree: Tree, level: VerifyLevel, item: tuple[str, list[_Piece]]) -> None:
    name, pieces = item
    size, end = tree.size(name), 0
    for piece in sorted(pieces, key=lambda piece: piece.offset):
        if piece.offset < end:
            raise Damaged(f"{name}: {piece.key!r:.80} begins at byte {piece.offset:,}, over what is before it")
        end = piece.offset + piece.size
        if end > size:
            raise Damaged(f"{name}: {size:,} bytes, {piece.key!r:.80} is at {piece.offset:,} to {end:,} (torn write)")
        width = _TYPE_BYTES.get(piece.kind)
        if width and piece.size != width * piece.elements:
            raise Damaged(f"{name}: {piece.key!r:.80} has {piece.size:,} bytes, which is not its type times shape")
    if level is VerifyLevel.FULL and pieces:
        with open_window(tree, name) as window:
            for piece in pieces:
                _verify_piece(window, piece)


def _verify_piece(window: Window, piece: _Piece) -> None:
    if piece.kind in {_RESOURCE, _VARIANT} or (piece.kind == _STRING and piece.elements > _MOST_TEXT):
        return
    crc = 0
    for chunk in _checksummed(window, piece):
        crc = crc32c(chunk, crc)
    if crc != unmask(piece.crc):
        raise Damaged(f"{window.name}: the checksum of {piece.key!r:.80} does not match its {piece.size:,} bytes")


def _checksummed(window: Window, piece: _Piece) -> Iterator[bytes]:
    """The bytes under the checksum: the tensor's bytes, but for texts their lengths as integers."""
    if piece.kind != _STRING:
        yield from window.chunks(piece.offset, piece.size)
        return
    raw = window.at(piece.offset, min(piece.size, 10 * piece.elements))
    at, lengths = 0, []
    try:
        for _ in range(piece.elements):
            length, at = varint(raw, at)
            lengths.append(length)
    except (IndexError, ValueError) as error:
        raise Damaged(f"{window.name}: the lengths of the texts in {piece.key!r:.80} are garbled") from error
    if at + 4 + sum(lengths) != piece.size:
        raise Damaged(f"{window.name}: the texts in {piece.key!r:.80} are not as long as they should be")
    for length in lengths:
        yield length.to_bytes(4 if length <= 0xFFFFFFFF else 8, "little")
    yield from window.chunks(piece.offset + at, piece.size - at)


def _parse_piece(key: bytes, value: bytes) -> _Piece | None:
    """One entry of the index. None for a tensor whose slices have their own entries. Raises ValueError."""
    fields = list(_fields(value))
    if any(number == 7 for number, _ in fields):
        return None
    entry = dict(fields)
    shape = entry.get(2, b"")
    return _Piece(
        key=key.decode("utf-8", "replace"),
        kind=_whole(entry.get(1, 0)),
        elements=_count(shape if isinstance(shape, bytes) else b""),
        shard=_whole(entry.get(3, 0)),
        offset=_whole(entry.get(4, 0)),
        size=_whole(entry.get(5, 0)),
        crc=_whole(entry.get(6, 0)),
    )


def _count(shape: bytes) -> int:
    """The number of elements of a TensorShapeProto."""
    dims = [dict(_fields(dim)).get(1, 0) for number, dim in _fields(shape) if number == 2 and isinstance(dim, bytes)]
    return math.prod(_whole(dim) for dim in dims[:64])


def _whole(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise ValueError
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field numbers and values of a Protocol Buffers message. Raises IndexError and ValueError."""
    at = 0
    while at < len(raw):
        tag, at = varint(raw, at)
        value: int | bytes
        match tag & 7:
            case 0:
                value, at = varint(raw, at)
            case 2:
                size, at = varint(raw, at)
                value, at = raw[at : at + size], at + size
            case 5:
                value, at = int.from_bytes(raw[at : at + 4], "little"), at + 4
            case 1:
                value, at = int.from_bytes(raw[at : at + 8], "little"), at + 8
            case _:
                raise ValueError
        if at > len(raw):
            raise ValueError
        yield tag >> 3, value
