"""
Zarr arrays as TensorStore writes them, versions 2 and 3: their metadata, the names of all their pieces (chunks), and
whether a piece is complete.

A piece has no checksum. But as a rule it is compressed by Zstandard. A frame with a lost or unwritten part does not
come to its end. A complete frame must have the length that type and shape give. In version 3 a piece may be a shard:
parts, then an index of them with a CRC-32C. For other compressions, only the names of the pieces are checked. Source:
the specifications of Zarr 2 and 3.
"""

from __future__ import annotations

import math
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

import msgspec

from healthd.checkpoints.encodings.sstables import crc32c
from healthd.checkpoints.tree import Damaged
from healthd.checkpoints.windows import Window

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

METADATA = (".zarray", "zarr.json")
"""The metadata file in the folder of an array, by version."""
LARGEST_METADATA = 1 << 20
_WINDOW = 25
"""Window of the decompression as a power of two: at least this part of a piece is in memory."""
_AT_ONCE = 4 << 20
"""Bytes that are decompressed at a time."""
MOST_PARTS = 1_000_000
"""The limit of parts of a shard."""
MOST_TIMES = 64
ALWAYS = 64 << 30
"""Zeros compress to almost nothing, so the limit has to allow some more bytes."""
_ENTRY = struct.Struct("<QQ")
_CHECKSUM = 4
"""Bytes."""
_ABSENT = (1 << 64) - 1
_NUMBERED = re.compile(r"[<>|][biufc](\d{1,3})|(?:bfloat|float|u?int|complex)(\d{1,3})(?:_e\w+)?")
_GARBLED = re.compile(r"[<>|](?![biufcmMSUV]\d{1,9}(?:\[\w+\])?$).*")
_ONE_BYTE = ("bool", "int4", "uint4", "int2", "uint2")
_ZSTD = "zstd"


class ArrayInfo(NamedTuple):
    """What the metadata of one array says about its pieces."""

    grid: tuple[int, ...]
    """The number of pieces along each dimension."""
    piece_bytes: int
    """
    The decompressed bytes of each piece, or of each part of it, also at the edges. 0 when unknown.
    """
    compression: str
    """`zstd`, empty for no compression, `?` for a compression that is not supported."""
    prefix: str
    separator: str
    parts: int = 0
    """The number of parts of each piece, when the pieces are shards."""

    @property
    def how_many(self) -> int:
        """The number of pieces."""
        return math.prod(self.grid)

    def has(self, piece: str) -> bool:
        """Whether *piece*, relative to the array, is the name of one of its pieces."""
        if not self.grid:
            return piece == (self.prefix.rstrip("/") or "0")
        places = piece.removeprefix(self.prefix).split(self.separator)
        return (
            piece.startswith(self.prefix)
            and len(places) == len(self.grid)
            and all(
                place.isdecimal() and (place == "0" or place[0] != "0") and len(place) < 19 and int(place) < most
                for place, most in zip(places, self.grid, strict=True)
            )
        )


class ReadBudget:
    """
    How much may be read and decompressed in one checkpoint. More claims are made only to waste time.
    """

    def __init__(self, stored: int) -> None:
        self._left = MOST_TIMES * stored + ALWAYS

    def take(self, size: int, name: str) -> None:
        """Count *size* more bytes. Raises Damaged when the total is too large."""
        self._left -= size
        if self._left < 0:
            raise Damaged(f"{name}: arrays of many times the bytes that are stored, too many to verify")


class _Compressor(msgspec.Struct):
    id: str


class _Version2(msgspec.Struct):
    shape: list[int]
    chunks: list[int]
    dtype: Any
    compressor: _Compressor | None
    filters: list[Any] | None
    order: Literal["C", "F"]
    fill_value: Any
    zarr_format: Literal[2]
    dimension_separator: Literal[".", "/"] = "."


class _Separator(msgspec.Struct):
    separator: str | None = None


class _Keys(msgspec.Struct):
    name: str
    configuration: _Separator = msgspec.field(default_factory=_Separator)


class _Chunks(msgspec.Struct):
    chunk_shape: list[int]


class _Grid(msgspec.Struct):
    configuration: _Chunks


class _Codec(msgspec.Struct):
    name: str
    configuration: msgspec.Raw = msgspec.Raw(b"{}")


class _Shards(msgspec.Struct):
    chunk_shape: list[int]
    codecs: list[_Codec]
    index_codecs: list[_Codec]
    index_location: str = "end"


class _Version3(msgspec.Struct):
    shape: list[int]
    data_type: Any
    chunk_grid: _Grid
    chunk_key_encoding: _Keys
    codecs: list[_Codec]
    fill_value: Any
    zarr_format: Literal[3]
    node_type: Literal["array"]


def parse_array(raw: bytes, name: str) -> ArrayInfo:
    """The content of *raw*, the metadata of the array *name*. Raises Damaged."""
    try:
        if name.endswith(METADATA[0]):
            return _of_version_2(msgspec.json.decode(raw, type=_Version2))
        return _of_version_3(msgspec.json.decode(raw, type=_Version3))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Damaged(f"{name}: not the whole metadata of an array (torn write)") from error


def _of_version_2(metadata: _Version2) -> ArrayInfo:
    compression = metadata.compressor.id if metadata.compressor else ""
    return ArrayInfo(
        grid=_grid(metadata.shape, metadata.chunks),
        piece_bytes=_item_bytes(metadata.dtype) * math.prod(metadata.chunks),
        compression="?" if metadata.filters or compression not in {"", _ZSTD} else compression,
        prefix="",
        separator=metadata.dimension_separator,
    )


def _of_version_3(metadata: _Version3) -> ArrayInfo:
    keys, pieces = metadata.chunk_key_encoding, metadata.chunk_grid.configuration.chunk_shape
    is_default = keys.name == "default"
    codecs, shape, parts = metadata.codecs, pieces, 0
    if [codec.name for codec in codecs] == ["sharding_indexed"]:
        shards = msgspec.json.decode(codecs[0].configuration, type=_Shards)
        is_usual = [codec.name for codec in shards.index_codecs] == ["bytes", "crc32c"]
        if is_usual and shards.index_location == "end":
            codecs, shape, parts = shards.codecs, shards.chunk_shape, math.prod(_grid(pieces, shards.chunk_shape))
    names = tuple(codec.name for codec in codecs if codec.name != "transpose")
    return ArrayInfo(
        grid=_grid(metadata.shape, pieces),
        piece_bytes=_item_bytes(metadata.data_type) * math.prod(shape),
        compression={("bytes",): "", ("bytes", _ZSTD): _ZSTD}.get(names, "?"),
        prefix="c/" if is_default else "",
        separator=keys.configuration.separator or ("/" if is_default else "."),
        parts=parts,
    )


def _grid(shape: list[int], chunks: list[int]) -> tuple[int, ...]:
    """The number of pieces along each dimension. Raises ValueError."""
    if len(shape) != len(chunks) or min(chunks, default=1) < 1 or min(shape, default=0) < 0:
        raise ValueError
    return tuple(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))


def _item_bytes(dtype: object) -> int:
    """Bytes of one element. 0 when the type is not supported. Raises ValueError when it is no type."""
    if not isinstance(dtype, str):
        return 0
    if _GARBLED.fullmatch(dtype):
        raise ValueError
    if dtype in _ONE_BYTE:
        return 1
    match = _NUMBERED.fullmatch(dtype)
    if match is None:
        return 0
    return int(match[1]) if match[1] else int(match[2]) // 8


def verify_piece(window: Window, offset: int, size: int, info: ArrayInfo, name: str, room: ReadBudget) -> None:
    """Raise Damaged unless the *size* bytes from *offset* on are one complete piece. *name* is for messages."""
    if not info.piece_bytes or info.compression == "?":
        return
    for begin, length in _parts(window, offset, size, info, name) if info.parts else [(offset, size)]:
        room.take(length + info.piece_bytes, name)
        here = _decompressed(window.chunks(begin, length), info.piece_bytes, name) if info.compression else length
        if here != info.piece_bytes:
            raise Damaged(f"{name}: a piece of {here:,} bytes, its type and shape need {info.piece_bytes:,}")


def _parts(window: Window, offset: int, size: int, info: ArrayInfo, name: str) -> Iterator[tuple[int, int]]:
    """The start and length of each part of a shard, by the index at its end. Raises Damaged."""
    index = _ENTRY.size * info.parts
    end = size - index - _CHECKSUM
    if end < 0 or info.parts > MOST_PARTS:
        raise Damaged(f"{name}: {size:,} bytes, less than the index of its {info.parts:,} parts needs (torn write)")
    raw = window.at(offset + end, index + _CHECKSUM)
    if crc32c(raw[:index]) != int.from_bytes(raw[index:], "little"):
        raise Damaged(f"{name}: the checksum of its index does not match (torn write)")
    for begin, length in _ENTRY.iter_unpack(raw[:index]):
        if begin == length == _ABSENT:
            continue
        if begin + length > end:
            raise Damaged(f"{name}: a part at byte {begin:,} to {begin + length:,} of {end:,}")
        yield offset + begin, length


def _decompressed(chunks: Iterable[bytes], most: int, name: str) -> int:
    """The number of decompressed bytes, up to a few more than *most*. Raises Damaged."""
    machine = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    length = 0
    try:
        for chunk in chunks:
            if machine.eof:
                raise Damaged(f"{name}: goes on where its compression ends")
            length += len(machine.decompress(chunk, max_length=_AT_ONCE))
            while not machine.eof and not machine.needs_input and length <= most:
                length += len(machine.decompress(b"", max_length=_AT_ONCE))
            if length > most:
                return length
    except zstd.ZstdError as error:
        raise Damaged(f"{name}: cannot be decompressed (torn write, or changed bytes)") from error
    if not machine.eof or machine.unused_data:
        raise Damaged(f"{name}: does not end where its compression does (torn write)")
    return length
