"""
The interface of every store of checkpoints, local or remote. A new store is one module beside this one.

A store lists files, says what each file was when it was listed, and reads ranges of exactly that file. It knows no
format and no step, changes nothing, and blocks: call it in a thread.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct


class Damaged(Exception):
    """
    Why a checkpoint does not load, in words for a person. The first argument is the reason.

        Damaged       exactly these bytes will never load
        └── Unstable  it changed, disappeared or could not be read: another check may give another result
            ├── Vanished    a name listed a moment ago does not exist: check again at once
            └── Unfinished  it was read, and its writer has not noted yet that it is whole
    """

    is_unread = False
    """Whether it may load all the same: its files were not read to an end."""


class Unstable(Damaged):
    is_unread = True


class Vanished(Unstable): ...


class Unfinished(Unstable):
    is_unread = False


class Stamp(Struct, frozen=True, gc=False):
    """Distinguishes one state of a file from another."""

    size: int
    mtime_ns: int
    inode: int = 0
    etag: str = ""
    """Of an object: its entity tag without quotes. Some stores leave it out of their lists."""


class StoreEntry(Struct, frozen=True, gc=False):
    """One listed name that is not a directory."""

    stamp: Stamp
    not_a_file: str = ""
    """Why it must not be opened: `a FIFO`, `a broken link`. Empty for a regular file."""


class Name(NamedTuple):
    """One name directly in a folder."""

    name: str
    is_folder: bool
    """True also for a link to a folder, and for a link in a circle: reading it gives the error."""
    is_link: bool = False


class File(Protocol):
    """An open file, exactly the one that was listed."""

    def read_at(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on; none at the end. Raises OSError and Unstable."""

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """
        Announce that these few bytes, by offset and size, are read next: a remote store may request them together.
        """


P_contra = TypeVar("P_contra", contravariant=True)


class CheckpointStore(Protocol[P_contra]):
    """
    Reads locations of one kind: a path, or a key in a bucket. All raise OSError, with ENOENT when nothing is there.
    """

    @property
    def at_once(self) -> int:
        """
        The best number of files to read at the same time. When each answer takes time, more than the number of cores.
        """

    def names(self, folder: P_contra) -> Iterator[Name]:
        """The names directly in *folder*, in no order. Raises NotADirectoryError for a file."""

    def survey(self, place: P_contra, most: int) -> tuple[bool, Iterable[tuple[str, StoreEntry]]]:
        """
        Whether it is a folder, and every file in and below it, by name with `/` between the parts. A file has itself
        as its only entry. Raises Damaged for more than *most* entries, or for nesting that is too deep.
        """

    def open(self, base: P_contra, name: str, entry: StoreEntry) -> AbstractContextManager[File]:
        """The file *name* below *base*. Raises Unstable when it is not the one that was listed as *entry*."""


def unreadable(name: str, error: OSError) -> Unstable:
    """A listed file that cannot be read: retention removed it, or another client of the file server did."""
    kind = Vanished if error.errno in (errno.ENOENT, errno.ESTALE) else Unstable
    return kind(explain(name, error))


def explain(name: str, error: OSError) -> str:
    """An operating system error in words for a person."""
    match error.errno:
        case errno.ENOENT:
            return f"{name}: not there (deleted meanwhile?)"
        case errno.ESTALE:
            return f"{name}: changed while being read (the file server has another file under that name: ESTALE)"
        case errno.ELOOP:
            return f"{name}: a link that leads in a circle"
        case errno.EACCES | errno.EPERM if error.args[1:] and error.args[1] != os.strerror(error.errno):
            return f"{name}: {error.args[1]}"
        case errno.EACCES | errno.EPERM:
            return f"{name}: permission denied (who may read it? healthd runs as user {os.geteuid()})"
        case _:
            return f"{name}: {error.strerror or error}"
