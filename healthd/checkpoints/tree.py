"""
The files of one checkpoint in their store: listed once, opened with care, compared again at the end.

A training job writes these files, and may be killed, still writing or hostile. So no path leads outside, every list
has a limit, and a file that differs from the listed one gives an answer, not a crash. Knows no format and no kind of
store.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from types import TracebackType

from healthd.checkpoints.stores.store import (
    Damaged,
    File,
    Stamp,
    StoreEntry,
    Unfinished,
    Unstable,
    Vanished,
    explain,
    unreadable,
)
from healthd.checkpoints.stores.urls import Location, store_of

__all__ = [
    "Damaged",
    "File",
    "Location",
    "Stamp",
    "StoreEntry",
    "Tree",
    "Unfinished",
    "Unstable",
    "Vanished",
    "explain",
    "filename_of",
    "folder_of",
    "inside",
    "kind_of",
    "number_free",
    "read_at",
    "refuse_changes",
    "survey",
]

MOST_ENTRIES = 200_000
"""A checkpoint with more entries is refused: the listing must stay cheap."""
_DIGITS = str.maketrans("123456789", "000000000")
_OF_A_WORD = re.compile(r"[A-Za-z]\d")
_NUMBERS = re.compile(r"\d+")
_NUMBER = re.compile(r"(?<![A-Za-z\d])\d+")


class Tree:
    """The listed files of one checkpoint, by name relative to *base*, with `/` between the parts."""

    def __init__(
        self, path: Location, base: Location, entries: dict[str, StoreEntry], beside: tuple[str, ...] = ()
    ) -> None:
        self.path = path
        self.base = base
        self.entries = entries
        self.beside = beside
        """The files that together are the checkpoint, when *path* is only the prefix of their names."""
        self._store = store_of(path)

    @property
    def at_once(self) -> int:
        """How many files are best read at the same time."""
        return self._store.at_once

    @cached_property
    def kinds(self) -> dict[str, list[str]]:
        """
        The names of each kind, under the first of them. The names of ranks, shards and steps differ only by digits.
        """
        kinds: dict[str, list[str]] = defaultdict(list)
        for name in self.entries:
            kinds[kind_of(name)].append(name)
        return {names[0]: names for names in kinds.values()}

    def owned(self, owns: Callable[[str], bool]) -> list[str]:
        """The sorted names whose last part *owns* accepts. It is called once per kind."""
        return sorted(name for first, kind in self.kinds.items() if owns(filename_of(first)) for name in kind)

    def require(self, name: str) -> StoreEntry:
        """The regular file *name*. Raises Damaged when it is missing or not a regular file."""
        entry = self.entries.get(name)
        if entry is None:
            raise Damaged(f"{name}: missing")
        if entry.not_a_file:
            raise Damaged(f"{name}: {entry.not_a_file}, not a regular file")
        return entry

    def size(self, name: str) -> int:
        """Bytes of the regular file *name*. Raises Damaged."""
        return self.require(name).stamp.size

    def open(self, name: str) -> AbstractContextManager[File]:
        """The file *name*, checked to be the listed one. Raises Damaged."""
        entry = self.require(name)
        try:
            return _Opened(self._store.open(self.base, name, entry), name)
        except OSError as error:
            raise unreadable(name, error) from error

    def read(self, name: str, *, at_most: int) -> bytes:
        """The whole content of a small file. Raises Damaged when it is larger than *at_most* bytes."""
        size = self.size(name)
        if size > at_most:
            raise Damaged(f"{name}: {size:,} bytes, more than the {at_most:,} that it may have")
        with self.open(name) as file:
            return read_at(file, name, offset=0, size=size)


class _Opened:
    """An open file that reports OS errors in words. Not a generator, because one is made per file."""

    __slots__ = ("_held", "_name")

    def __init__(self, held: AbstractContextManager[File], name: str) -> None:
        self._held = held
        self._name = name

    def __enter__(self) -> File:
        try:
            return self._held.__enter__()
        except OSError as error:
            raise unreadable(self._name, error) from error

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._held.__exit__(kind, error, at)
        except OSError as failure:
            raise unreadable(self._name, failure) from failure
        if isinstance(error, OSError):
            raise unreadable(self._name, error) from error


def kind_of(name: str) -> str:
    """The name with a zero for each digit, except digits that belong to a word, such as `.h5` or `bf16`."""
    if not _OF_A_WORD.search(name):
        return name.translate(_DIGITS)
    return _NUMBER.sub(lambda number: "0" * len(number[0]), name)


def number_free(name: str) -> str:
    """The name with a zero for each number, however long: that of the same file in another step."""
    return _NUMBERS.sub("0", name)


def survey(path: Location, *, most_entries: int = MOST_ENTRIES, beside: tuple[str, ...] = ()) -> Tree:
    """
    List every file of the checkpoint at *path*, a folder or a single file. Raises Damaged.

    With *beside*, the files are those names in one folder, and *path* is the prefix of their names.
    """
    if beside:
        return Tree(path, path.parent, dict(_listed_beside(path, beside)), beside)
    is_folder, listed = _listed(path, most_entries)
    return Tree(path, path if is_folder else path.parent, dict(listed))


def refuse_changes(before: Tree) -> None:
    """Raise Unstable when a file of the tree differs from its listing. Keeps no second list in memory."""
    same = 0
    for name, now in _listed_again(before):
        entry = before.entries.get(name)
        if entry is None:
            raise Unstable(f"{name}: appeared while the checkpoint was being read")
        if now.stamp != entry.stamp:
            raise Unstable(f"{name}: changed while being read")
        same += 1
    if same < len(before.entries):
        after = {name for name, _ in _listed_again(before)}
        gone = next((name for name in before.entries if name not in after), "a file")
        raise Unstable(f"{gone}: deleted while being read")


def _listed_again(tree: Tree) -> Iterator[tuple[str, StoreEntry]]:
    return _listed_beside(tree.path, tree.beside) if tree.beside else _listed(tree.path, MOST_ENTRIES)[1]


def _listed_beside(path: Location, names: tuple[str, ...]) -> Iterator[tuple[str, StoreEntry]]:
    for name in names:
        yield from _listed(path.parent / name, MOST_ENTRIES)[1]


def _listed(path: Location, most: int) -> tuple[bool, Iterator[tuple[str, StoreEntry]]]:
    try:
        is_folder, listed = store_of(path).survey(path, most)
    except OSError as error:
        raise unreadable(path.name, error) from error
    return is_folder, _explained(path, listed)


def _explained(path: Location, listed: Iterable[tuple[str, StoreEntry]]) -> Iterator[tuple[str, StoreEntry]]:
    try:
        yield from listed
    except OSError as error:
        raise unreadable(path.name, error) from error


def inside(folder: str, name: str, *, named_by: str) -> str:
    """*name* as written in *named_by*, relative to *folder* of the tree. Raises Damaged when it leads outside."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise Damaged(f"{named_by}: names {name[:80]!r}, which is not inside the checkpoint")
    return "/".join([folder, *parts] if folder else parts)


def folder_of(name: str) -> str:
    """The folder of a listed name. Empty for the top folder."""
    return name.rpartition("/")[0]


def filename_of(name: str) -> str:
    """The last part of a listed name."""
    return name.rpartition("/")[2]


def read_at(file: File, name: str, *, offset: int, size: int) -> bytes:
    """Exactly *size* bytes. Raises Unstable when the file ends before that."""
    data = file.read_at(offset, size)
    while len(data) < size:
        more = file.read_at(offset + len(data), size - len(data))
        if not more:
            raise Unstable(f"{name}: became shorter while being read")
        data += more
    return data
