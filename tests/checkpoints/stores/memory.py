"""A store of a few files in memory, which fails when a test says so."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from healthd.checkpoints.stores.objects import ObjectPath
from healthd.checkpoints.stores.store import Damaged, Name, Stamp, StoreEntry


class MemoryFile:
    """The bytes that a file had when it was opened."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_at(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on."""
        return self._data[offset : offset + size]

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Nothing is far away."""


class MemoryStore:
    """Files by key. What `failing` holds is raised instead of the next answers, in order, None letting one through."""

    at_once = 4

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.failing: list[OSError | None] = []
        self.opened: list[str] = []

    def add(self, folder: Path) -> ObjectPath:
        """All files below *folder*, at its name."""
        for path in folder.rglob("*"):
            if path.is_file():
                self.files[str(path.relative_to(folder.parent))] = path.read_bytes()
        return ObjectPath("memory://", folder.name, self)

    def names(self, folder: ObjectPath) -> Iterator[Name]:
        """What lies directly in it."""
        below = [key.removeprefix(f"{folder.key}/".lstrip("/")) for key in self.files]
        yield from {Name(name.partition("/")[0], is_folder="/" in name) for name in below}

    def survey(self, place: ObjectPath, most: int) -> tuple[bool, Iterable[tuple[str, StoreEntry]]]:
        """Every file below it; a failure comes in the middle of the list."""
        found = {key: data for key, data in self.files.items() if key.startswith(f"{place.key}/")}
        if len(found) > most:
            raise Damaged("too many")
        return True, self._listed(place, found)

    @contextmanager
    def open(self, base: ObjectPath, name: str, entry: StoreEntry) -> Iterator[MemoryFile]:
        """The file, unless it is time to fail."""
        self.opened.append(name)
        self._fail()
        data = self.files.get((base / name).key)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "not there", name)
        yield MemoryFile(data)

    def _listed(self, place: ObjectPath, found: dict[str, bytes]) -> Iterator[tuple[str, StoreEntry]]:
        for key, data in found.items():
            yield key.removeprefix(f"{place.key}/"), StoreEntry(Stamp(len(data), 0, etag=str(hash(data))))

    def _fail(self) -> None:
        failure = self.failing.pop(0) if self.failing else None
        if failure is not None:
            raise failure
