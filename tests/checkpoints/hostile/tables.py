"""Tables of TensorFlow made by hand, with right checksums around anything."""

from __future__ import annotations

import struct

from healthd.checkpoints.encodings.sstables import FOOTER, MAGIC, crc32c
from tests.checkpoints.hostile.numbers import varint


def a_table(*blocks: bytes, index: bytes | None = None) -> bytes:
    """A table of these blocks; with an *index* of its own, or one that names each block once."""
    places, raw = b"", b""
    for number, block in enumerate(blocks):
        places += an_entry(0, b"k%06d" % number, varint(len(raw)) + varint(len(block)))
        raw += framed(block)
    at, index = len(raw), a_block(places) if index is None else index
    handles = varint(0) + varint(0) + varint(at) + varint(len(index))
    return raw + framed(index) + handles.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC


def framed(block: bytes) -> bytes:
    crc = crc32c(block + b"\0")
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return block + b"\0" + struct.pack("<I", masked)


def a_block(entries: bytes) -> bytes:
    return entries + struct.pack("<I", 0)


def an_entry(shared: int, key: bytes, value: bytes) -> bytes:
    return varint(shared) + varint(len(key)) + varint(len(value)) + key + value
