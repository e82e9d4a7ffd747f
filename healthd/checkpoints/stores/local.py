"""
Checkpoints on a file system of this machine, also on a network mount.

A training job writes there, and may be killed, still writing or hostile. So only regular files are opened, never
across a link that was not listed. A file that differs from the listed one gives an answer, not a crash.
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

from healthd.checkpoints.stores.store import Damaged, Name, Stamp, StoreEntry, Unstable

MOST_LEVELS = 16
"""The limit of directory nesting."""
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
        """Does nothing: it would gain nothing here."""

    def stamp(self) -> Stamp:
        """The state of the file now. Raises OSError."""
        return _stamp(os.fstat(self._fd))

    def place(self) -> Path:
        """The real path of the file: a link to it that no process can change meanwhile."""
        return Path(f"/proc/self/fd/{self._fd}")

    def refuse_holes(self, name: str, size: int) -> None:
        """
        Refuse a file with holes: parts that were never written and read as zeros. The writer allocated space first and
        died.

        The writers of torch and safetensors leave no holes, not even for tensors of zeros. Raises Damaged.
        """
        try:
            hole = os.lseek(self._fd, 0, os.SEEK_HOLE) if size else 0
        except OSError:  # this file system does not report holes
            return
        if hole < size:
            raise Damaged(f"{name}: never written from byte {hole:,} on (a hole in {size:,} bytes: torn write)")

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalStore:
    """Reads with plain system calls: a file that is listed twice is looked up twice."""

    def __init__(self, bounds: tuple[Path, ...] | None = None) -> None:
        self._bounds = bounds
        """Reads only inside these folders (no links themselves), whatever link leads outside. None: no restriction."""

    at_once = 4
    """
    Hides the latency of a network file system. More threads only compete for the GIL when the files are in memory.
    """

    def names(self, folder: Path) -> Iterator[Name]:
        """The names directly in *folder*. Raises OSError."""
        with self._listing(folder) as listing:
            for item in listing:
                yield Name(item.name, _is_folder(item), item.is_symlink())

    def survey(self, place: Path, most: int) -> tuple[bool, Iterable[tuple[str, StoreEntry]]]:
        """Whether it is a folder, and its content. Raises OSError and Damaged."""
        self._refuse_outside(place.name, place)
        info = place.stat()
        if stat.S_ISDIR(info.st_mode):
            return True, self._walk(place, most)
        return False, [(place.name, _entry(info))]

    def open(self, base: Path, name: str, entry: StoreEntry) -> LocalFile:
        """The file, checked to be the listed one. Raises OSError and Damaged."""
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

    def _walk(self, path: Path, most: int) -> Iterator[tuple[str, StoreEntry]]:
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
        """
        The content of *folder*, read from the folder that was checked, even if a link replaces it meanwhile. Raises
        OSError.
        """
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
        """The real path of *place* when it may not be read. None when it may."""
        if self._bounds is None:
            return None
        real = without_links(place)
        return None if any(real.is_relative_to(bound) for bound in self._bounds) else real


def without_links(place: Path) -> Path:
    """The real path of *place*. Unlike `resolve` it raises nothing where links lead in a circle: to open that fails."""
    return Path(os.path.realpath(place))


LOCAL = LocalStore()
_store: ContextVar[LocalStore] = ContextVar("the store of paths", default=LOCAL)


def local_store() -> LocalStore:
    """The store that reads paths in the current context."""
    return _store.get()


@contextmanager
def confined_to(folders: Iterable[Path] | None) -> Iterator[None]:
    """
    Within the block, only files in *folders* are read. None: no restriction.

    For a reader with more permissions than the writers: a link could lead to a secret, and a rejection reason would
    show it.
    """
    token = _store.set(LOCAL if folders is None else LocalStore(tuple(folder.resolve() for folder in folders)))
    try:
        yield
    finally:
        _store.reset(token)


def _is_folder(item: os.DirEntry[str]) -> bool:
    """True also for a link in a circle: the check of that step then reports it, and the other steps continue."""
    try:
        return item.is_dir()
    except OSError:
        return True


def _listed(item: os.DirEntry[str]) -> StoreEntry | None:
    """None for a name that disappeared since the listing: it counts as never listed."""
    try:
        return _entry(item.stat())
    except OSError as error:
        if item.is_symlink():
            return StoreEntry(
                Stamp(0, 0), "a link that leads in a circle" if error.errno == errno.ELOOP else "a broken link"
            )
        if error.errno == errno.ENOENT:
            return None
        raise


def _entry(info: os.stat_result) -> StoreEntry:
    return StoreEntry(_stamp(info), _NOT_A_FILE.get(stat.S_IFMT(info.st_mode), "of an unknown kind"))


def _stamp(info: os.stat_result) -> Stamp:
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ino)
