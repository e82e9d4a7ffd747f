"""
Zip archives, checked in place: the directory at the end, each member's position, and its CRC-32.

Unlike `zipfile`, this reads an archive that is a slice of a larger file, and it has a limit on every claim of the
archive. Only stored members are accepted, because torch compresses none, unless the caller allows deflated ones. Those
are inflated piece by piece and not kept. A zip bomb is refused by the claims in its directory.
Source: APPNOTE.TXT 6.3.10, sections 4.3.7, 4.3.12 and 4.3.14 to 4.3.16.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from healthd.checkpoints.tree import Damaged, File, read_at

LARGEST_DIRECTORY = 32 << 20
MOST_MEMBERS = 300_000
MOST_INFLATED = 64
"""
The limit of inflated bytes: this multiple of the archive's size, plus 1 GiB. Real numbers shrink to about a half at
best.
"""
_CHUNK = 1 << 20
_SMALL = 1 << 16

_END = struct.Struct("<4s4H2IH")
_END_64_LOCATOR = struct.Struct("<4sIQI")
_END_64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s4x2H4x3I4H2x2I")
_LOCAL = struct.Struct("<4s22x2H")
_ENCRYPTED = 0x2061
"""Flag bits for encryption, strong encryption, masked headers and patches: torch refuses all of them."""
_FOLDER = 0x10
"""A bit of the external attributes. Torch's reader ignores the content of such a member."""
_STORED, _DEFLATED = 0, 8
_MAX_16 = 0xFFFF
_MAX_32 = 0xFFFFFFFF
_AT_ONCE = 1000
"""The number of members whose local headers are requested together, when each request takes time."""
_MISPLACED = "its archive directory is not where its end record says"


class Slice(Struct, frozen=True):
    """The location of an archive: a whole file, or part of one."""

    file: File
    name: str
    start: int
    length: int
    held: bytes = b""
    """The whole archive, when it is small: one read instead of a dozen."""

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

    def expect(self, spans: Iterable[tuple[int, int]]) -> None:
        """Announce the bytes of the archive that are read next."""
        if not self.held:
            self.file.expect([(self.start + offset, size) for offset, size in spans])


class ZipMember(Struct, gc=False):
    """One file in the archive."""

    name: bytes
    crc: int
    size: int
    packed: int
    """Bytes in the archive."""
    header: int
    """Offset of the local header in the archive."""
    is_stored: bool
    data: int = 0
    """Offset of the first byte of its content, which only the local header gives."""


def read_members(archive: Slice, *, deflated: bool = False) -> list[ZipMember]:
    """
    The members in the order of their positions, all inside the archive and without overlaps. Raises Damaged.

    With *deflated*, members may be compressed, as in an archive of NumPy.
    """
    if archive.length < _END.size:
        raise Damaged(f"{archive.name}: {archive.length:,} bytes, too short for an archive (torn write)")
    directory = _find_directory(archive)
    if directory.size > LARGEST_DIRECTORY:
        raise Damaged(f"{archive.name}: its archive directory claims {directory.size:,} bytes")
    if directory.members > MOST_MEMBERS:
        raise Damaged(f"{archive.name}: {directory.members:,} members, too many to verify")
    raw = archive.read(directory.offset, directory.size)
    listed = islice(_parse_directory(raw, archive.name, deflated), directory.members + 1)
    members = sorted(listed, key=attrgetter("header"))
    if len(members) != directory.members:
        raise Damaged(f"{archive.name}: its archive directory does not list its {directory.members:,} members")
    if sum(member.size for member in members) > MOST_INFLATED * archive.length + (1 << 30):
        raise Damaged(f"{archive.name}: claims to be many times its {archive.length:,} bytes when inflated")
    ends = [*(member.header for member in members[1:]), directory.offset]
    for start in range(0, len(members), _AT_ONCE):
        some = members[start : start + _AT_ONCE]
        archive.expect((member.header, _LOCAL.size + len(member.name)) for member in some)
        for member, end in zip(some, ends[start:], strict=False):
            _place(archive, member, end)
    return members


def check_data(archive: Slice, member: ZipMember) -> None:
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
    """The name of a member, for messages."""
    return name[:80].decode("utf-8", "backslashreplace")


def _stored(archive: Slice, member: ZipMember) -> Iterator[bytes]:
    end = member.data + member.packed
    for offset in range(member.data, end, _CHUNK):
        yield archive.read(offset, min(_CHUNK, end - offset))


def _inflated(archive: Slice, member: ZipMember) -> Iterator[bytes]:
    """Its content in pieces of limited size, whatever its inflated size."""
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
    """From the end record, which must be the very last bytes: torch writes no comment after it."""
    end_at = archive.length - _END.size
    magic, *disks, count, size, offset, comment = _END.unpack(archive.read(end_at, _END.size))
    if magic != b"PK\5\6" or comment:
        raise Damaged(f"{archive.name}: no end of archive in {archive.length:,} bytes (torn write)")
    narrow = wide = _Directory(count, size, offset)
    agree = True
    locator_at = end_at - _END_64_LOCATOR.size
    if locator_at >= 0 and archive.read(locator_at, 4) == b"PK\6\7":
        end_at, wide = _read_end_64(archive, locator_at)
        agree = all(n in {w, limit} for n, w, limit in zip(narrow, wide, (_MAX_16, _MAX_32, _MAX_32), strict=True))
    if disks != [0, 0, wide.members & _MAX_16] or not agree or wide.offset + wide.size != end_at:
        raise Damaged(f"{archive.name}: {_MISPLACED}")
    return wide


def _read_end_64(archive: Slice, locator_at: int) -> tuple[int, _Directory]:
    """The offset of the 64-bit end record, and its content."""
    _, disk, end_at, disks = _END_64_LOCATOR.unpack(archive.read(locator_at, _END_64_LOCATOR.size))
    end = _END_64.unpack(archive.read(end_at, _END_64.size))
    magic, length, _, _, here, first, count_here, count, size, start = end
    too_short = length < _END_64.size - 12  # it counts the bytes after the length field itself
    if magic != b"PK\6\6" or too_short or (disk, disks, here, first, count_here) != (0, 1, 0, 0, count):
        raise Damaged(f"{archive.name}: {_MISPLACED}")
    return end_at, _Directory(count, size, start)


def _parse_directory(raw: bytes, name: str, deflated: bool) -> Iterator[ZipMember]:
    at = 0
    while at < len(raw):
        if len(raw) - at < _ENTRY.size or not raw.startswith(b"PK\1\2", at):
            raise Damaged(f"{name}: its archive directory is garbled")
        _, flags, method, crc, packed, size, n_name, n_extra, n_comment, disk, kind, header = _ENTRY.unpack_from(
            raw, at
        )
        name_at = at + _ENTRY.size
        extra_at = name_at + n_name
        member = raw[name_at:extra_at]
        at = extra_at + n_extra + n_comment
        if at > len(raw) or (kind & _FOLDER and size):
            raise Damaged(f"{name}: its archive directory is garbled")
        if (method and not (deflated and method == _DEFLATED)) or flags & _ENCRYPTED or disk:
            raise Damaged(f"{name}: {text(member)} is compressed, encrypted or elsewhere, which its writer never does")
        if n_extra or _MAX_32 in (size, packed, header):
            size, packed, header = _widen(raw[extra_at : extra_at + n_extra], size, packed, header, name)
        if packed != size and method == _STORED:
            raise Damaged(f"{name}: {text(member)} has two sizes, {packed:,} and {size:,} bytes")
        yield ZipMember(member, crc, size, packed, header, method == _STORED)


def _widen(extra: bytes, size: int, packed: int, header: int, name: str) -> tuple[int, int, int]:
    """Sizes and offset, replaced by the 64-bit ones of extra field 1 where all bits of a 32-bit one are set."""
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


def _place(archive: Slice, member: ZipMember, end: int) -> None:
    """Set the offset of the member's data from its local header. *end* is the start of the next item."""
    local = archive.read(member.header, _LOCAL.size + len(member.name))
    magic, n_name, n_extra = _LOCAL.unpack_from(local)
    if magic != b"PK\3\4" or n_name != len(member.name) or not local.endswith(member.name):
        raise Damaged(f"{archive.name}: {text(member.name)} is not where the archive directory says")
    member.data = member.header + len(local) + n_extra
    if member.data + member.packed > end:
        raise Damaged(f"{archive.name}: {text(member.name)} reaches over what comes after it")
