"""
Sorted tables of LevelDB, uncompressed: TensorFlow's index of a checkpoint is one.

The footer is last, so a torn write has no footer. Every block has a CRC-32C. The blocks in the index are read in
order, and all reads have a limit. Source: the table format document of LevelDB, and tensorflow/core/lib/io/format.cc.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c

from healthd.checkpoints.tree import Damaged

LARGEST_TABLE = 32 << 20
"""The limit of bytes of the file, and of all keys when written out."""
MOST_ENTRIES = 250_000
"""The limit of entries, and of blocks."""
MAGIC = bytes.fromhex("57fb808b247547db")
FOOTER = 48
_TRAILER = 5
"""After each block: its compression, and its checksum."""


class _TooMuch(Exception): ...


class _Room:
    """The remaining limits. Each key is stored as its difference to the key before."""

    def __init__(self) -> None:
        self.entries = MOST_ENTRIES
        self.bytes = LARGEST_TABLE

    def take(self, size: int) -> None:
        """Count one entry of *size* bytes. Raises _TooMuch."""
        self.entries -= 1
        self.bytes -= size
        if self.entries < 0 or self.bytes < 0:
            raise _TooMuch


class _Handle(NamedTuple):
    offset: int
    size: int


def read_table(raw: bytes, name: str) -> list[tuple[bytes, bytes]]:
    """All keys and values of the table, in order. Raises Damaged."""
    if len(raw) < FOOTER or raw[-len(MAGIC) :] != MAGIC:
        raise Damaged(f"{name}: has no end of an index in {len(raw):,} bytes (torn write)")
    try:
        at, _ = _handle(raw, len(raw) - FOOTER)
        _, index = _handle(raw, at)
        entries: list[tuple[bytes, bytes]] = []
        left, room = len(raw), _Room()
        for _, value in _entries(_block(raw, index, name), _Room()):
            handle = _handle(value, 0)[1]
            left -= handle.size
            if left < 0:  # blocks that are referenced repeatedly
                raise ValueError
            entries += _entries(_block(raw, handle, name), room)
        return entries
    except _TooMuch as error:
        raise Damaged(f"{name}: an index of too many keys, or too long ones, to verify") from error
    except (IndexError, ValueError) as error:
        raise Damaged(f"{name}: its index is garbled") from error


def varint(raw: bytes, at: int) -> tuple[int, int]:
    """The number at *at*, in bytes of seven bits, and the offset of its end. Raises IndexError and ValueError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32 (Castagnoli), continued from *crc*."""
    return int(google_crc32c.extend(crc, data))


def unmask(masked: int) -> int:
    """The original of a checksum that was stored rotated and shifted, so that a checksum of checksums stays good."""
    turned = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return (turned >> 17 | turned << 15) & 0xFFFFFFFF


def _handle(raw: bytes, at: int) -> tuple[int, _Handle]:
    offset, at = varint(raw, at)
    size, at = varint(raw, at)
    return at, _Handle(offset, size)


def _block(raw: bytes, handle: _Handle, name: str) -> bytes:
    end = handle.offset + handle.size
    if end + _TRAILER > len(raw):
        raise Damaged(f"{name}: {len(raw):,} of at least {end + _TRAILER:,} bytes (torn write)")
    if crc32c(raw[handle.offset : end + 1]) != unmask(int.from_bytes(raw[end + 1 : end + _TRAILER], "little")):
        raise Damaged(f"{name}: the checksum of a block does not match its {handle.size:,} bytes")
    if raw[end]:
        raise Damaged(f"{name}: compressed, which cannot be verified")
    return raw[handle.offset : end]


def _entries(block: bytes, room: _Room) -> Iterator[tuple[bytes, bytes]]:
    """
    The entries of a block. Each key shares its prefix with the key before. The restart points are counted at the end.
    """
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    if end < 0:
        raise ValueError
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        new, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or at + new + length > end:
            raise ValueError
        key = key[:shared] + block[at : at + new]
        at += new + length
        room.take(len(key))
        yield key, block[at - length : at]
