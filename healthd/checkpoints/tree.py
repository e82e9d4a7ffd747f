"""
One checkpoint's files as they are on disk: listed once, opened with care, compared again at the end.

A training job writes these files and may be killed, still writing or hostile. So only regular files are ever opened,
nothing outside is named, every list has a bound, and a file that is not the one listed is an answer, not a crash.
Knows no format.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import NamedTuple

MOST_ENTRIES = 200_000
"""More entries than this in one checkpoint are refused: listing them must stay cheap."""
MOST_LEVELS = 16
"""Directories nested deeper than this are refused."""
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Damaged(Exception):
    """
    Why a checkpoint will not load, in words for a person; the first argument is the reason.

        Damaged       these very bytes will never load
        └── Unstable  it changed, vanished or could not be read: another look may find otherwise
    """


class Unstable(Damaged): ...


class Stamp(NamedTuple):
    """What tells one state of a file from another."""

    size: int
    mtime_ns: int
    inode: int


class Entry(NamedTuple):
    """One listed name that is not a directory."""

    stamp: Stamp
    not_a_file: str = ""
    """Why it must not be opened: `a FIFO`, `a broken link`; empty for a regular file."""


class Tree:
    """The listed files of one checkpoint by name relative to *base*, with `/` between the parts."""

    def __init__(self, path: Path, base: Path, entries: dict[str, Entry]) -> None:
        self.path = path
        self.base = base
        self.entries = entries

    def require(self, name: str) -> Entry:
        """The regular file *name*. Raises Damaged when it is missing or something else."""
        entry = self.entries.get(name)
        if entry is None:
            raise Damaged(f"{name}: missing")
        if entry.not_a_file:
            raise Damaged(f"{name}: {entry.not_a_file}, not a regular file")
        return entry

    def size(self, name: str) -> int:
        """Bytes of the regular file *name*. Raises Damaged."""
        return self.require(name).stamp.size

    @contextmanager
    def open(self, name: str) -> Iterator[int]:
        """A descriptor of *name*, which is the very file that was listed. Raises Damaged."""
        entry = self.require(name)
        try:
            fd = os.open(f"{self.base}/{name}", _OPEN_FLAGS)
        except OSError as error:
            raise Unstable(explain(name, error)) from error
        try:
            if _stamp(os.fstat(fd)) != entry.stamp:
                raise Unstable(f"{name}: changed while being read")
            _refuse_holes(fd, name, entry.stamp.size)
            yield fd
        except OSError as error:
            raise Unstable(explain(name, error)) from error
        finally:
            os.close(fd)

    def read(self, name: str, *, at_most: int) -> bytes:
        """All of a small file. Raises Damaged when it is larger than *at_most* bytes."""
        size = self.size(name)
        if size > at_most:
            raise Damaged(f"{name}: {size:,} bytes, more than the {at_most:,} that it may have")
        with self.open(name) as fd:
            return read_at(fd, name, offset=0, size=size)


def survey(path: Path, *, most_entries: int = MOST_ENTRIES) -> Tree:
    """List every file of the checkpoint at *path*, a directory or a single file. Raises Damaged."""
    try:
        info = path.stat()
        if stat.S_ISDIR(info.st_mode):
            return Tree(path, path, dict(_walk(path, most_entries)))
    except OSError as error:
        raise Unstable(explain(path.name, error)) from error
    return Tree(path, path.parent, {path.name: _entry(info)})


def refuse_changes(before: Tree) -> None:
    """Raise Unstable when any file of the tree is not as it was listed."""
    after = survey(before.path).entries
    for name, entry in before.entries.items():
        now = after.get(name)
        if now is None:
            raise Unstable(f"{name}: deleted while being read")
        if now.stamp != entry.stamp:
            raise Unstable(f"{name}: changed while being read")
    added = next((name for name in after if name not in before.entries), None)
    if added is not None:
        raise Unstable(f"{added}: appeared while the checkpoint was being read")


def inside(folder: str, name: str, *, told_by: str) -> str:
    """*name* as *told_by* writes it, relative to *folder* of the tree. Raises Damaged when it leads outside."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise Damaged(f"{told_by}: names {name[:80]!r}, which is not inside the checkpoint")
    return "/".join((folder, *parts)) if folder else "/".join(parts)


def folder_of(name: str) -> str:
    """The folder of a listed name; empty for the top."""
    return name.rpartition("/")[0]


def filename_of(name: str) -> str:
    """The last part of a listed name."""
    return name.rpartition("/")[2]


def read_at(fd: int, name: str, *, offset: int, size: int) -> bytes:
    """Exactly *size* bytes. Raises Unstable when the file ends before."""
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise Unstable(f"{name}: became shorter while being read")
        data += more
    return data


def explain(name: str, error: OSError) -> str:
    """An operating system error in words for a person."""
    match error.errno:
        case errno.ENOENT:
            return f"{name}: not there (deleted meanwhile?)"
        case errno.ELOOP:
            return f"{name}: a link that leads in a circle"
        case errno.EACCES | errno.EPERM:
            return f"{name}: permission denied (who may read it? healthd runs as user {os.geteuid()})"
        case _:
            return f"{name}: {error.strerror or error}"


def _walk(path: Path, most_entries: int) -> Iterator[tuple[str, Entry]]:
    folders = [(str(path), "", 0)]
    count = 0
    while folders:
        folder, prefix, level = folders.pop()
        with os.scandir(folder) as listing:
            for item in listing:
                count += 1
                if count > most_entries:
                    raise Damaged(f"more than {most_entries:,} entries, too many to verify")
                if not item.is_dir(follow_symlinks=False):
                    yield from _listed(prefix, item)
                elif level >= MOST_LEVELS:
                    raise Damaged(f"{prefix}{item.name}: nested deeper than {MOST_LEVELS} directories")
                else:
                    folders.append((item.path, f"{prefix}{item.name}/", level + 1))


def _listed(prefix: str, item: os.DirEntry[str]) -> Iterator[tuple[str, Entry]]:
    try:
        yield prefix + item.name, _entry(item.stat())
    except OSError as error:
        if item.is_symlink():
            why = "a link that leads in a circle" if error.errno == errno.ELOOP else "a broken link"
            yield prefix + item.name, Entry(Stamp(0, 0, 0), why)
        elif error.errno != errno.ENOENT:  # a name that vanished since the listing was never there
            raise


def _entry(info: os.stat_result) -> Entry:
    kinds = {
        stat.S_IFREG: "",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a link to a directory",
    }
    return Entry(_stamp(info), kinds.get(stat.S_IFMT(info.st_mode), "of an unknown kind"))


def _stamp(info: os.stat_result) -> Stamp:
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ino)


def _refuse_holes(fd: int, name: str, size: int) -> None:
    """
    Refuse a file with parts that were never written and read as zeros: a writer made room first and died.

    The writers of torch and safetensors leave no holes, not even for tensors of zeros.
    """
    try:
        hole = os.lseek(fd, 0, os.SEEK_HOLE) if size else 0
    except OSError:  # this file system cannot tell
        return
    if hole < size:
        raise Damaged(f"{name}: never written from byte {hole:,} on (a hole in {size:,} bytes: torn write)")
