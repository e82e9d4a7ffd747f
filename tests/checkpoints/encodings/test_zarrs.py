"""Arrays of Zarr: their metadata, the names of their pieces, and pieces that are not whole."""

from __future__ import annotations

import json
import struct
import sys

import pytest

from healthd.checkpoints.encodings.sstables import crc32c
from healthd.checkpoints.encodings.zarrs import ArrayInfo, ReadBudget, parse_array, verify_piece
from healthd.checkpoints.tree import Damaged
from healthd.checkpoints.windows import Window

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CONTENT = bytes(range(256)) * 2
"""Of a piece of 16 times 8 numbers of four bytes."""


def version_2(**changed: object) -> bytes:
    reported = {"shape": [30, 8], "chunks": [16, 8], "dtype": "<f4", "compressor": {"id": "zstd"}, "filters": None}
    rest = {"order": "C", "fill_value": None, "zarr_format": 2}
    return json.dumps({**reported, **rest, **changed}).encode()


def version_3(*codecs: object, shape: tuple[int, ...] = (30, 8), chunks: tuple[int, ...] = (16, 8)) -> bytes:
    reported = {
        "shape": shape,
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "zarr_format": 3,
        "node_type": "array",
        "codecs": codecs or [{"name": "bytes"}, {"name": "zstd"}],
    }
    return json.dumps(reported).encode()


SHARDS = {
    "name": "sharding_indexed",
    "configuration": {
        "chunk_shape": [16, 8],
        "codecs": [{"name": "bytes"}, {"name": "zstd"}],
        "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}],
    },
}


def why(piece: bytes, info: ArrayInfo, *, room: ReadBudget | None = None) -> str:
    """What is wrong with the piece; empty when nothing is."""
    window = Window(lambda begin, size: piece[begin : begin + size], "w/0.0", len(piece))
    try:
        verify_piece(window, 0, len(piece), info, "w/0.0", room or ReadBudget(0))
    except Damaged as damage:
        return str(damage)
    return ""


def a_shard(*parts: bytes) -> bytes:
    """Parts with their index; an empty one is absent."""
    index, body = b"", b""
    for part in parts:
        index += struct.pack("<QQ", len(body), len(part)) if part else b"\xff" * 16
        body += part
    return body + index + crc32c(index).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("raw", "name", "pieces"),
    [
        (version_2(), ".zarray", ["0.0", "1.0"]),
        (version_2(dimension_separator="/"), ".zarray", ["0/0", "1/0"]),
        (version_2(shape=[], chunks=[]), ".zarray", ["0"]),
        (version_2(shape=[0, 8]), ".zarray", []),
        (version_3(), "zarr.json", ["c/0/0", "c/1/0"]),
        (version_3(shape=(), chunks=()), "zarr.json", ["c"]),
    ],
)
def test_the_metadata_reports_the_names_of_all_pieces(raw: bytes, name: str, pieces: list[str]) -> None:
    info = parse_array(raw, name)
    others = ["0.1", "2.0", "00.0", "0", "c/0.0", "c/2/0", "0/0/0", "x.0", "-1.0", "²", ".", "", "c/"]

    assert info.how_many == len(pieces)
    assert all(map(info.has, pieces))
    assert [other for other in others if other not in pieces and info.has(other)] == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        version_2()[:-1],
        version_2(chunks=[0, 8]),
        version_2(chunks=[16]),
        version_2(shape=[-1, 8]),
        version_2(dtype="<I8"),
        version_2(dtype="<f$"),
        version_2(order="c"),
        version_2(zarr_format=3),
        version_2().replace(b"fill", b"file"),
    ],
)
def test_what_is_no_metadata_is_refused(raw: bytes) -> None:
    with pytest.raises(Damaged, match="not the whole metadata of an array"):
        parse_array(raw, ".zarray")


@pytest.mark.parametrize(("raw", "name"), [(version_2(), ".zarray"), (version_3(), "zarr.json")])
def test_a_compressed_piece_holds_only_when_it_comes_to_its_end(raw: bytes, name: str) -> None:
    info = parse_array(raw, name)
    whole = zstd.compress(CONTENT)

    assert why(whole, info) == ""
    assert [length for length in range(1, len(whole)) if not why(whole[:length], info)] == []
    assert "does not end where its compression does" in why(whole + b"more", info)
    assert why(bytes(len(whole)), info) == "w/0.0: cannot be decompressed (torn write, or changed bytes)"


def test_a_piece_of_another_length_than_its_shape_needs_is_refused() -> None:
    info = parse_array(version_2(), ".zarray")

    assert why(zstd.compress(CONTENT[:-4]), info) == "w/0.0: a piece of 508 bytes, its type and shape need 512"
    assert why(zstd.compress(bytes(64 << 20)), info).endswith("its type and shape need 512")


def test_what_is_not_compressed_is_measured() -> None:
    info = parse_array(version_2(compressor=None), ".zarray")

    assert why(CONTENT, info) == ""
    assert "a piece of 511 bytes" in why(CONTENT[:-1], info)


@pytest.mark.parametrize("changed", [{"compressor": {"id": "blosc"}}, {"dtype": [["x", "<f4"]]}, {"filters": [{}]}])
def test_what_is_not_known_is_not_refused(changed: dict[str, object]) -> None:
    assert why(b"anything", parse_array(version_2(**changed), ".zarray")) == ""


def test_of_a_shard_every_part_has_to_hold() -> None:
    info = parse_array(version_3(SHARDS, chunks=(32, 8)), "zarr.json")
    part = zstd.compress(CONTENT)
    whole = a_shard(part, part)

    assert why(whole, info) == ""
    assert why(a_shard(part, b""), info) == ""
    assert "cannot be decompressed" in why(a_shard(part, bytes(len(part))), info)
    assert [length for length in range(1, len(whole)) if not why(whole[:length], info)] == []


def test_a_part_outside_of_its_shard_is_refused() -> None:
    index = struct.pack("<QQ", 0, 100)
    info = parse_array(version_3(SHARDS), "zarr.json")

    assert "a part at byte 0 to 100 of 0" in why(index + crc32c(index).to_bytes(4, "little"), info)


def test_what_claims_many_times_its_bytes_ends() -> None:
    info = parse_array(version_2(chunks=[1 << 40, 8], shape=[1 << 40, 8]), ".zarray")

    assert "too many to verify" in why(zstd.compress(bytes(1000)), info)
