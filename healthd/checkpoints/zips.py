"""
Zip archives, checked in place: the directory at the end, each member's place, and its CRC-32.

Unlike `zipfile` this reads an archive that is a slice of a larger file, and has a bound on everything that the archive
itself claims. Only stored members are taken, for torch compresses none, unless the caller lets deflated ones through:
those are inflated piece by piece and kept nowhere, and a bomb is refused by what its directory claims.
Source: APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.14 to 4.3.16.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from healthd.checkpoints.tree import Damaged, File, read_at

LARGEST_DIRECTORY = 64 << 20
"""Bytes; about 700,000 members."""
MOST_INFLATED = 64
"""Times the archive's own size, and 1 GiB more: real numbers shrink to no less than a half or so."""
_CHUNK = 1 << 20
_SMALL = 1 << 16

_END = struct.Struct("<4s4H2IH")
_END_64_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_ENCRYPTED = 0x2061
"""Flag bits for encryption, strong encryption, masked headers and patches: all that torch refuses."""
_STORED, _DEFLATED = 0, 8
_MAX_16 = 0xFFFF
_MAX_32 = 0xFFFFFFFF
_AT_ONCE = 1000
"""Members whose local headers are asked for together, where each request is waited for."""
_MISPLACED = "its archive directory is not where its end record says"


@dataclass(frozen=True, slots=True)
class Slice:
    """Where an archive lies: a whole file, or part of one."""

    file: File
    name: str
    start: int
    length: int
    held: bytes = b""
    """All of it, when it is small: one read instead of a dozen."""

    @classmethod
    def at(cls, file: File, name: str, start: int, length: int) -> Slice:
        """The archive at these bytes of an open file. Raises Damaged."""
        held = read_at(file, name, offset=start, size=length) if length <= _SMALL else b""
        return cls(file, name, start, length, held)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the archive. Raises Damaged when they reach beyond its end."""
        if offset < 0 or offset + size > self.length:
            raise Damaged(f"{self.name}: its archive directory points outside of it")
        if self.held:
            return self.held[offset : offset + size]
        return read_at(self.file, self.name, offset=self.start + offset, size=size)

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Says which bytes of the archive are read next."""
        if not self.held:
            self.file.expect([(self.start + offset, size) for offset, size in spans])


class Member(NamedTuple):
    """One file in the archive."""

    name: bytes
    crc: int
    size: int
    header: int
    """Offset of the local header in the archive."""
    data: int
    """Offset of the first byte of its content."""
    packed: int
    """Bytes that it takes in the archive."""
    is_stored: bool


def read_members(archive: Slice, *, deflated: bool = False) -> list[Member]:
    """
    The members in the order of their places, all inside the archive, none over another. Raises Damaged.

    With *deflated*, such as for an archive of NumPy, members may be compressed.
    """
    if archive.length < _END.size:
        raise Damaged(f"{archive.name}: {archive.length:,} bytes, too short for an archive (torn write)")
    directory = _find_directory(archive)
    if directory.size > LARGEST_DIRECTORY:
        raise Damaged(f"{archive.name}: its archive directory claims {directory.size:,} bytes")
    raw = archive.read(directory.offset, directory.size)
    members = sorted(_parse_directory(raw, archive.name, deflated), key=lambda member: member.header)
    if len(members) != directory.members:
        raise Damaged(f"{archive.name}: its archive directory lists {len(members):,} of {directory.members:,} members")
    if sum(member.size for member in members) > MOST_INFLATED * archive.length + (1 << 30):
        raise Damaged(f"{archive.name}: claims to be many times its {archive.length:,} bytes when inflated")
    ends = [*(member.header for member in members[1:]), directory.offset]
    placed: list[Member] = []
    for start in range(0, len(members), _AT_ONCE):
        some = members[start : start + _AT_ONCE]
        archive.expect([(member.header, _LOCAL.size + len(member.name)) for member in some])
        placed += (_placed(archive, member, end) for member, end in zip(some, ends[start:], strict=False))
    return placed


def check_data(archive: Slice, member: Member) -> None:
    """Read one member and compare its CRC-32. Raises Damaged."""
    crc = size = 0
    for chunk in _stored(archive, member) if member.is_stored else _inflated(archive, member):
        crc = zlib.crc32(chunk, crc)
        size += len(chunk)
        if size > member.size:
            break
    if crc != member.crc or size != member.size:
        raise Damaged(f"{archive.name}: the checksum of {text(member.name)} does not match its {member.size:,} bytes")


def text(name: bytes) -> str:
    """The name of a member for a person."""
    return name[:80].decode("utf-8", "backslashreplace")


def _stored(archive: Slice, member: Member) -> Iterator[bytes]:
    end = member.data + member.packed
    for offset in range(member.data, end, _CHUNK):
        yield archive.read(offset, min(_CHUNK, end - offset))


def _inflated(archive: Slice, member: Member) -> Iterator[bytes]:
    """Its content in pieces of a bounded size, whatever it inflates to."""
    machine = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for chunk in _stored(archive, member):
            waiting = chunk
            while waiting and not machine.eof:
                yield machine.decompress(waiting, _CHUNK)
                waiting = machine.unconsumed_tail
        while not machine.eof and (rest := machine.decompress(b"", _CHUNK)):
            yield rest
    except zlib.error as error:
        raise Damaged(f"{archive.name}: {text(member.name)} cannot be inflated") from error


class _Directory(NamedTuple):
    members: int
    size: int
    offset: int


def _find_directory(archive: Slice) -> _Directory:
    """From the end record, which has to be the very last thing: torch writes no comment behind it."""
    end_at = archive.length - _END.size
    magic, *disks, count, size, offset, comment = _END.unpack(archive.read(end_at, _END.size))
    if magic != b"PK\5\6" or comment:
        raise Damaged(f"{archive.name}: no end of archive in {archive.length:,} bytes (torn write)")
    narrow = wide = _Directory(count, size, offset)
    locator_at = end_at - _END_64_LOCATOR.size
    if locator_at >= 0 and archive.read(locator_at, 4) == b"PK\6\7":
        end_at, wide = _read_end_64(archive, locator_at)
    agree = all(n in {w, limit} for n, w, limit in zip(narrow, wide, (_MAX_16, _MAX_32, _MAX_32), strict=True))
    if disks != [0, 0, wide.members & _MAX_16] or not agree or wide.offset + wide.size != end_at:
        raise Damaged(f"{archive.name}: {_MISPLACED}")
    return wide


def _read_end_64(archive: Slice, locator_at: int) -> tuple[int, _Directory]:
    """Where the 64-bit end record is, and what it says."""
    _, disk, end_at, disks = _END_64_LOCATOR.unpack(archive.read(locator_at, _END_64_LOCATOR.size))
    magic, _, _, _, here, first, count_here, count, size, start = _END_64.unpack(archive.read(end_at, _END_64.size))
    if magic != b"PK\6\6" or (disk, disks, here, first, count_here) != (0, 1, 0, 0, count):
        raise Damaged(f"{archive.name}: {_MISPLACED}")
    return end_at, _Directory(count, size, start)


def _parse_directory(raw: bytes, name: str, deflated: bool) -> Iterator[Member]:
    at = 0
    while at < len(raw):
        if len(raw) - at < _ENTRY.size or raw[at : at + 4] != b"PK\1\2":
            raise Damaged(f"{name}: its archive directory is garbled")
        (_, _, _, flags, method, _, _, crc, packed, size, n_name, n_extra, n_comment, disk, _, _, header) = (
            _ENTRY.unpack_from(raw, at)
        )
        name_end = at + _ENTRY.size + n_name
        member, extra = raw[at + _ENTRY.size : name_end], raw[name_end : name_end + n_extra]
        is_stored = method == _STORED
        if not (is_stored or (deflated and method == _DEFLATED)) or flags & _ENCRYPTED or disk:
            raise Damaged(f"{name}: {text(member)} is compressed, encrypted or elsewhere, which its writer never does")
        size, packed, header = _widen(extra, size, packed, header, name)
        if is_stored and packed != size:
            raise Damaged(f"{name}: {text(member)} has two sizes, {packed:,} and {size:,} bytes")
        yield Member(member, crc, size, header, header, packed, is_stored)
        at = name_end + n_extra + n_comment


def _widen(extra: bytes, size: int, packed: int, header: int, name: str) -> tuple[int, int, int]:
    """Sizes and place with the 64-bit ones from the extra field 1 wherever the 32-bit ones are all ones."""
    narrow = (size, packed, header)
    wide = _zip64_values(extra, name)
    if len(wide) < narrow.count(_MAX_32):
        raise Damaged(f"{name}: its archive directory is garbled")
    rest = iter(wide)
    size, packed, header = (next(rest) if value == _MAX_32 else value for value in narrow)
    return size, packed, header


def _zip64_values(extra: bytes, name: str) -> tuple[int, ...]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if at + 4 + length > len(extra):
            raise Damaged(f"{name}: its archive directory is garbled")
        if kind == 1:
            return struct.unpack_from(f"<{length // 8}Q", extra, at + 4)
        at += 4 + length
    return ()


def _placed(archive: Slice, member: Member, end: int) -> Member:
    """The member with its data's place, told by its local header; *end* is where the next thing begins."""
    magic, *_, n_name, n_extra = _LOCAL.unpack(archive.read(member.header, _LOCAL.size))
    if magic != b"PK\3\4" or archive.read(member.header + _LOCAL.size, n_name) != member.name:
        raise Damaged(f"{archive.name}: {text(member.name)} is not where the archive directory says")
    data = member.header + _LOCAL.size + n_name + n_extra
    if data + member.packed > end:
        raise Damaged(f"{archive.name}: {text(member.name)} reaches over what comes after it")
    return member._replace(data=data)
