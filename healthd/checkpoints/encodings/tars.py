"""
Tar archives, read in place: each header has a checksum, and two empty blocks mark the end.

Archives are not unpacked. Their content is presented as a separate tree, so that the formats inside are verified in
place. Source: POSIX.1-2017, pax, "ustar Interchange Format", and GNU tar's manual for long names and large sizes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from healthd.checkpoints.tree import Damaged, File, Stamp, StoreEntry, Tree, inside
from healthd.checkpoints.windows import Window, open_window

MOST_MEMBERS = 100_000
LARGEST_EXTENSION = 1 << 16
"""Bytes of an extension before a member, with data that does not fit into its header."""
LONGEST_NAME = 4096
LARGEST_NAMES = 16 << 20
"""The limit of characters of all names."""
_BLOCK = 512
_OCTAL = re.compile(rb" *([0-7]*)[\0 ]*")
_RECORD = re.compile(rb"(\d{1,8}) ([^=\n]+)=")
_FILES = (b"0", b"\0", b"7")
_FOLDER, _SPARSE = b"5", b"S"
_LONG_NAME, _PAX, _PAX_OF_ALL = b"L", b"x", b"g"


class TarMember(NamedTuple):
    """The location of one file's content."""

    start: int
    size: int


class _Extension(NamedTuple):
    """Data from an extension before a member. Sizes from 8 GiB on are stored there."""

    name: str = ""
    size: int | None = None


def read_members(window: Window) -> dict[str, TarMember]:
    """The files of the archive by name. Raises Damaged."""
    found: dict[str, TarMember] = {}
    at, extension, letters = 0, _Extension(), LARGEST_NAMES
    for _ in range(MOST_MEMBERS):
        block = window.at(at, _BLOCK)
        if not block.strip(b"\0"):
            return found
        _refuse_wrong_checksum(block, window.name, at)
        kind, start = block[156:157], at + _BLOCK
        size = _number(block[124:136], window.name) if extension.size is None else extension.size
        if start + size > window.size:
            raise Damaged(f"{window.name}: {window.size:,} of at least {start + size:,} bytes (torn write)")
        at = start + -(-size // _BLOCK) * _BLOCK
        if kind in {_LONG_NAME, _PAX, _PAX_OF_ALL}:
            extension = _read_extension(window, kind, start, size, extension)
            continue
        name = extension.name or _name(block)
        letters -= len(name)
        _refuse_unusual(window.name, name, kind, letters)
        if kind in _FILES:
            found[inside("", name, named_by=window.name)] = TarMember(start, size)
        extension = _Extension()
    raise Damaged(f"{window.name}: more than {MOST_MEMBERS:,} members, too many to verify")


def _refuse_unusual(archive: str, name: str, kind: bytes, letters: int) -> None:
    if len(name) > LONGEST_NAME or letters < 0:
        raise Damaged(f"{archive}: names of its members that are too long to verify")
    if kind == _SPARSE:
        raise Damaged(f"{archive}: {name[:80]!r} has holes, which the writer of a checkpoint does not leave")
    if kind not in {*_FILES, _FOLDER}:
        raise Damaged(f"{archive}: {name[:80]!r} is a link or a device")


class _Part:
    """A range of an open file, presented as a file."""

    def __init__(self, file: File, member: TarMember) -> None:
        self._file = file
        self._member = member

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of the member."""
        return self._file.read_at(self._member.start + offset, max(0, min(size, self._member.size - offset)))

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Pass the announcement on to the file of the archive."""
        self._file.expect([(self._member.start + offset, size) for offset, size in spans])


class TarTree(Tree):
    """The content of an archive in another tree, by names without the leading `./`."""

    def __init__(self, outer: Tree, archive: str, members: dict[str, TarMember]) -> None:
        stamp = outer.require(archive).stamp
        entries = {name: StoreEntry(Stamp(member.size, stamp.mtime_ns)) for name, member in members.items()}
        super().__init__(outer.path, outer.path, entries)
        self._outer = outer
        self._archive = archive
        self._members = members

    @contextmanager
    def open(self, name: str) -> Iterator[File]:
        """The member *name*. Raises Damaged."""
        self.require(name)
        with self._outer.open(self._archive) as file:
            yield _Part(file, self._members[name])


def open_tar(tree: Tree, name: str) -> TarTree:
    """The content of the archive *name* of *tree*. Raises Damaged."""
    with open_window(tree, name) as window:
        if window.at(0, min(2, window.size)) == b"\x1f\x8b":
            raise Damaged(f"{name}: an archive that is compressed as a whole, which cannot be verified")
        return TarTree(tree, name, read_members(window))


def _refuse_wrong_checksum(block: bytes, name: str, at: int) -> None:
    declared = _number(block[148:156], name)
    if sum(block) - sum(block[148:156]) + 8 * ord(" ") != declared:
        raise Damaged(f"{name}: no header of a member at byte {at:,}, where one should be (torn write)")


def _number(field: bytes, name: str) -> int:
    """Octal digits, or with the highest bit set a big-endian number. Writers make none below zero."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    match = _OCTAL.fullmatch(field)
    if match is None:
        raise Damaged(f"{name}: not a tar archive (torn write)")
    return int(match[1] or b"0", 8)


def _name(block: bytes) -> str:
    name, prefix = block[:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
    is_posix = block[257:263] == b"ustar\0"
    return (prefix + b"/" + name if is_posix and prefix else name).decode("utf-8", "replace")


def _read_extension(window: Window, kind: bytes, start: int, size: int, before: _Extension) -> _Extension:
    """The data of GNU's long-name member, or of a pax header, for the next member. Raises Damaged."""
    if size > LARGEST_EXTENSION:
        raise Damaged(f"{window.name}: {size:,} bytes of extension headers for a member")
    data = window.at(start, size)
    if kind == _LONG_NAME:
        return before._replace(name=data.split(b"\0")[0].decode("utf-8", "replace"))
    records = _records(data, window.name)
    if any(key.startswith(b"GNU.sparse") for key in records):
        raise Damaged(f"{window.name}: a member with holes, which the writer of a checkpoint does not leave")
    if kind == _PAX_OF_ALL:
        if records.keys() & {b"path", b"size"}:
            raise Damaged(f"{window.name}: one name or size for all of its members")
        return before
    length = records.get(b"size", b"")
    if length and not (length.isdigit() and len(length) < 20):
        raise Damaged(f"{window.name}: {length[:20]!r} is no size of a member")
    name = records.get(b"path", b"").decode("utf-8", "replace")
    return _Extension(name or before.name, int(length) if length else before.size)


def _records(data: bytes, name: str) -> dict[bytes, bytes]:
    """The records of a pax header. Each starts with its own length. Raises Damaged."""
    found: dict[bytes, bytes] = {}
    at, end = 0, len(data.rstrip(b"\0"))
    while at < end:
        match = _RECORD.match(data, at)
        after = at + int(match[1]) if match else 0
        if match is None or not match.end() < after <= len(data) or data[after - 1 : after] != b"\n":
            raise Damaged(f"{name}: the extension header of a member is garbled (torn write)")
        found[match[2]] = data[match.end() : after - 1]
        at = after
    return found
