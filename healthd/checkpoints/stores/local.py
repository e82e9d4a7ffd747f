"""
Checkpoints on a file system of this machine, also one that is mounted over the network.

A training job writes there and may be killed, still writing or hostile. So only regular files are ever opened, never
across a link that was not listed, and a file that is not the one listed is an answer, not a crash.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Self

from healthd.checkpoints.stores.store import Damaged, Entry, Name, Stamp, Unstable

MOST_LEVELS = 16
"""Directories nested deeper than this are refused."""
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_NOT_A_FILE = {
    stat.S_IFREG: "",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a link to a directory",
}


class LocalFile:
    """An open descriptor."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read_at(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on. Raises OSError."""
        return os.pread(self._fd, size, offset)

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Nothing is gained by it here."""

    def stamp(self) -> Stamp:
        """As it is now. Raises OSError."""
        return _stamp(os.fstat(self._fd))

    def place(self) -> Path:
        """Where it really is: a link to it, which cannot be changed meanwhile by anybody."""
        return Path(f"/proc/self/fd/{self._fd}")

    def refuse_holes(self, name: str, size: int) -> None:
        """
        Refuse a file with parts that were never written and read as zeros: a writer made room first and died.

        The writers of torch and safetensors leave no holes, not even for tensors of zeros. Raises Damaged.
        """
        try:
            hole = os.lseek(self._fd, 0, os.SEEK_HOLE) if size else 0
        except OSError:  # this file system cannot tell
            return
        if hole < size:
            raise Damaged(f"{name}: never written from byte {hole:,} on (a hole in {size:,} bytes: torn write)")

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalStore:
    """Reads with plain system calls: what is listed twice was looked up twice."""

    def __init__(self, bounds: tuple[Path, ...] | None = None) -> None:
        self._bounds = bounds
        """Folders, themselves no links, outside of which nothing is read, whatever link leads there; None: anywhere."""

    at_once = 4
    """Hides the latency of a network file system; more only fight for the GIL when the files are in memory."""

    def names(self, folder: Path) -> Iterator[Name]:
        """What lies directly in it. Raises OSError."""
        with self._listing(folder) as listing:
            for item in listing:
                yield Name(item.name, _is_folder(item), item.is_symlink())

    def survey(self, place: Path, most: int) -> tuple[bool, Iterable[tuple[str, Entry]]]:
        """Whether it is a folder, and what is in it. Raises OSError and Damaged."""
        self._refuse_outside(place.name, place)
        info = place.stat()
        if stat.S_ISDIR(info.st_mode):
            return True, self._walk(place, most)
        return False, [(place.name, _entry(info))]

    def open(self, base: Path, name: str, entry: Entry) -> LocalFile:
        """The very file that was listed. Raises OSError and Damaged."""
        file = LocalFile(os.open(f"{base}/{name}", _OPEN_FLAGS))
        try:
            if file.stamp() != entry.stamp:
                raise Unstable(f"{name}: changed while being read")
            self._refuse_outside(name, file.place())
            file.refuse_holes(name, entry.stamp.size)
        except BaseException:
            file.close()
            raise
        return file

    def _walk(self, path: Path, most: int) -> Iterator[tuple[str, Entry]]:
        folders = [(str(path), "", 0)]
        count = 0
        while folders:
            folder, prefix, level = folders.pop()
            with self._listing(folder) as listing:
                for item in listing:
                    count += 1
                    if count > most:
                        raise Damaged(f"more than {most:,} entries, too many to verify")
                    if not item.is_dir(follow_symlinks=False):
                        entry = _listed(item)
                        if entry is not None:
                            yield prefix + item.name, entry
                    elif level >= MOST_LEVELS:
                        raise Damaged(f"{prefix}{item.name}: nested deeper than {MOST_LEVELS} directories")
                    else:
                        folders.append((f"{folder}/{item.name}", f"{prefix}{item.name}/", level + 1))

    @contextmanager
    def _listing(self, folder: Path | str) -> Iterator[Iterator[os.DirEntry[str]]]:
        """What is in it: in the very folder that was looked at, should a link be put in its place. Raises OSError."""
        descriptor = os.open(folder, _OPEN_FLAGS | os.O_DIRECTORY)
        try:
            if real := self._outside(Path(f"/proc/self/fd/{descriptor}")):
                raise PermissionError(errno.EACCES, f"a link leads to {real}, outside of what may be read", str(folder))
            with os.scandir(descriptor) as listing:
                yield listing
        finally:
            os.close(descriptor)

    def _refuse_outside(self, name: str, place: Path) -> None:
        if real := self._outside(place):
            raise Damaged(f"{name}: a link leads to {real}, outside of what may be read")

    def _outside(self, place: Path) -> Path | None:
        """Where *place* really is, unless that may be read."""
        if self._bounds is None:
            return None
        real = place.resolve()
        return None if any(real.is_relative_to(bound) for bound in self._bounds) else real


LOCAL = LocalStore()
_store: ContextVar[LocalStore] = ContextVar("the store of paths", default=LOCAL)


def local_store() -> LocalStore:
    """Who reads paths here and now."""
    return _store.get()


@contextmanager
def confined_to(folders: Iterable[Path] | None) -> Iterator[None]:
    """
    Within it nothing outside of *folders* is read; None: anything may be.

    For who may read more than those who write there: a link could lead to a secret, which a reason would tell.
    """
    token = _store.set(LOCAL if folders is None else LocalStore(tuple(folder.resolve() for folder in folders)))
    try:
        yield
    finally:
        _store.reset(token)


def _is_folder(item: os.DirEntry[str]) -> bool:
    """Also for a link in a circle: the check of that step then says so, and the other steps go on."""
    try:
        return item.is_dir()
    except OSError:
        return True


def _listed(item: os.DirEntry[str]) -> Entry | None:
    """None for a name that vanished since the listing: it was never there."""
    try:
        return _entry(item.stat())
    except OSError as error:
        if item.is_symlink():
            return Entry(
                Stamp(0, 0), "a link that leads in a circle" if error.errno == errno.ELOOP else "a broken link"
            )
        if error.errno == errno.ENOENT:
            return None
        raise


def _entry(info: os.stat_result) -> Entry:
    return Entry(_stamp(info), _NOT_A_FILE.get(stat.S_IFMT(info.st_mode), "of an unknown kind"))


def _stamp(info: os.stat_result) -> Stamp:
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ino)
