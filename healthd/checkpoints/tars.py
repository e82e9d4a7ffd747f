"""
Tar archives, looked at in place: each header has a checksum, and two empty blocks are the end.

Not unpacked; what lies in one is seen as a tree of its own, so that the formats inside are verified where they are.
Source: POSIX.1-2017, pax, "ustar Interchange Format", and GNU tar's manual for long names and large sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from healthd.checkpoints.tree import Damaged, Entry, File, Stamp, Tree, inside
from healthd.checkpoints.windows import Window, open_window

MOST_MEMBERS = 100_000
LARGEST_NAME = 1 << 16
_BLOCK = 512
_FILES = (b"0", b"\0", b"7")
_FOLDER = b"5"
_LONG_NAME, _PAX, _PAX_OF_ALL = b"L", b"x", b"g"


class Member(NamedTuple):
    """Where the content of one file lies."""

    start: int
    size: int


def read_members(window: Window) -> dict[str, Member]:
    """The files of the archive by name. Raises Damaged."""
    found: dict[str, Member] = {}
    at, name = 0, ""
    for _ in range(MOST_MEMBERS):
        block = window.at(at, _BLOCK)
        if not block.strip(b"\0"):
            return found
        _refuse_wrong_checksum(block, window.name, at)
        size, kind, start = _number(block[124:136], window.name), block[156:157], at + _BLOCK
        if start + size > window.size:
            raise Damaged(f"{window.name}: {window.size:,} of at least {start + size:,} bytes (torn write)")
        at = start + -(-size // _BLOCK) * _BLOCK
        if kind in {_LONG_NAME, _PAX, _PAX_OF_ALL}:
            if size > LARGEST_NAME:
                raise Damaged(f"{window.name}: a name of {size:,} bytes")
            name = _long_name(kind, window.at(start, size)) or name
            continue
        if kind in _FILES:
            found[inside("", name or _name(block), told_by=window.name)] = Member(start, size)
        elif kind != _FOLDER:
            raise Damaged(f"{window.name}: {_name(block)[:80]!r} is a link or a device")
        name = ""
    raise Damaged(f"{window.name}: more than {MOST_MEMBERS:,} members, too many to verify")


class _Part:
    """A stretch of an open file, as a file."""

    def __init__(self, file: File, member: Member) -> None:
        self._file = file
        self._member = member

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes of the member."""
        return self._file.read_at(self._member.start + offset, max(0, min(size, self._member.size - offset)))

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Passed on."""
        self._file.expect([(self._member.start + offset, size) for offset, size in spans])


class TarTree(Tree):
    """What lies in an archive of another tree, by names without the leading `./`."""

    def __init__(self, outer: Tree, archive: str, members: dict[str, Member]) -> None:
        stamp = outer.require(archive).stamp
        entries = {name: Entry(Stamp(member.size, stamp.mtime_ns)) for name, member in members.items()}
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
    """What lies in the archive *name* of *tree*. Raises Damaged."""
    with open_window(tree, name) as window:
        if window.at(0, min(2, window.size)) == b"\x1f\x8b":
            raise Damaged(f"{name}: an archive that is compressed as a whole, which cannot be verified")
        return TarTree(tree, name, read_members(window))


def _refuse_wrong_checksum(block: bytes, name: str, at: int) -> None:
    told = _number(block[148:156], name)
    if sum(block) - sum(block[148:156]) + 8 * ord(" ") != told:
        raise Damaged(f"{name}: no header of a member at byte {at:,}, where one should be (torn write)")


def _number(field: bytes, name: str) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.strip(b"\0 ") or b"0", 8)
    except ValueError as error:
        raise Damaged(f"{name}: not a tar archive (torn write)") from error


def _name(block: bytes) -> str:
    name, prefix = block[:100].split(b"\0")[0], block[345:500].split(b"\0")[0]
    is_posix = block[257:263] == b"ustar\0"
    return (prefix + b"/" + name if is_posix and prefix else name).decode("utf-8", "replace")


def _long_name(kind: bytes, data: bytes) -> str:
    """From GNU's own member, or the `path` of a pax header; empty when it tells none."""
    if kind == _LONG_NAME:
        return data.rstrip(b"\0").decode("utf-8", "replace")
    path = next((line.partition(b" path=")[2] for line in data.split(b"\n") if b" path=" in line), b"")
    return path.decode("utf-8", "replace") if kind == _PAX else ""
