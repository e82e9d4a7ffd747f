"""
Checkpoints in an object store: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.

obstore reads all three: one Rust wheel of about 6 MB without further packages. It has the platforms' credentials
(environment, web identity, metadata services), paging and retries, releases the GIL while it waits, and reads one
object state by its entity tag. It is imported only when a location is a bucket.

A bucket has no folders, only keys with `/` in them. An object is visible when its upload is complete, so parts of an
upload in progress are not visible. A set of objects may still be incomplete.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from healthd.checkpoints.stores.store import CheckpointStore, Damaged, Name, Stamp, StoreEntry, Unstable

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore as Client

MOST_LEVELS = 16
READ_AHEAD = 1 << 16
"""Bytes. The latency of an answer is much longer than the transfer of this many bytes."""
STRIDE = 1 << 19
"""Bytes per request when one read follows another."""
_TOGETHER = 1 << 12
"""Spans with at most this many bytes between them are one request. The bytes between them cost memory."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = 10**9


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """A key, or the folder of keys below it, with the interface of `pathlib`. Prints as its URL."""

    url: str
    """The URL of the bucket, without a slash at the end."""
    key: str
    """Without slashes at both ends. Empty for the whole bucket."""
    store: CheckpointStore[ObjectPath] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The parent folder. The parent of the bucket is the bucket."""
        return ObjectPath(self.url, self.key.rpartition("/")[0], self.store)

    def absolute(self) -> ObjectPath:
        """The path itself: it is always absolute."""
        return self

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.url, f"{self.key}/{name}".strip("/"), self.store)

    def __str__(self) -> str:
        return f"{self.url}/{self.key}" if self.key else self.url


class ObjectFile:
    """
    One state of one object. Keeps the last read, at most `STRIDE` bytes, so that small reads cost few requests.
    """

    __slots__ = ("_entry", "_expected", "_held", "_path", "_start", "_store")

    def __init__(self, store: ObjectStore, path: ObjectPath, entry: StoreEntry) -> None:
        self._store = store
        self._path = path
        self._entry = entry
        self._start = 0
        self._held = b""
        self._expected: dict[int, bytes] = {}

    def read_at(self, offset: int, size: int) -> bytes:
        """At most *size* bytes from *offset* on. Raises OSError and Unstable."""
        end = min(offset + size, self._entry.stamp.size)
        if offset >= end:
            return b""
        if offset in self._expected:
            self._start, self._held = offset, self._expected.pop(offset)
        if not self._start <= offset <= end <= self._start + len(self._held):
            if end - offset > STRIDE:
                return self._store.fetch(self._path, self._entry, offset, end)
            self._hold(offset, end)
        return self._held[offset - self._start : end - self._start]

    def expect(self, spans: Sequence[tuple[int, int]]) -> None:
        """Fetch them now, in parallel. Raises OSError."""
        total = self._entry.stamp.size
        inside = [(offset, min(offset + size, total)) for offset, size in spans if offset < total and size > 0]
        self._expected = dict(
            zip((offset for offset, _ in inside), self._store.fetch_spans(self._path, inside), strict=True)
        )

    def _hold(self, offset: int, end: int) -> None:
        """Fetch these bytes and some more: a stride when reads follow each other, otherwise the bytes around them."""
        total = self._entry.stamp.size
        follows = self._start < offset < self._start + len(self._held) + READ_AHEAD
        length = max(end - offset, STRIDE if follows else READ_AHEAD)
        self._start = offset if follows else max(0, min(offset, total - length))
        until = min(self._start + length, total)
        self._held = b""  # freed before the next is loaded
        self._held = self._store.fetch(self._path, self._entry, self._start, until)


class ObjectStore:
    """Reads one bucket through a *client* of obstore. An error of obstore becomes an OSError with its reason."""

    at_once = 12
    """
    Enough to hide the latency of a store. Each holds up to three strides, and a process must stay below 100 MB.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def names(self, folder: ObjectPath) -> Iterator[Name]:
        """The names directly in *folder*. Raises OSError."""
        import obstore

        with _as_os_errors(folder, listing=True):
            listed = obstore.list_with_delimiter(self._client, prefix=folder.key or None)
        folders = {_last_part(prefix) for prefix in listed["common_prefixes"]}
        below = f"{folder.key}/".lstrip("/")
        files = {_last_part(meta["path"]) for meta in listed["objects"] if meta["path"].startswith(below)} - folders
        if not folders and not files:
            self._head(folder)
            raise NotADirectoryError(errno.ENOTDIR, "an object, not a folder", str(folder))
        yield from (Name(name, is_folder=True) for name in folders)
        yield from (Name(name, is_folder=False) for name in files)

    def survey(self, place: ObjectPath, most: int) -> tuple[bool, Iterable[tuple[str, StoreEntry]]]:
        """Whether there are keys below it, and all of them; otherwise the object itself. Raises OSError and Damaged."""
        below = dict(self._below(place, most))
        if below:
            return True, _without_markers(below)
        return False, [(place.name, _entry(self._head(place)))]

    @contextmanager
    def open(self, base: ObjectPath, name: str, entry: StoreEntry) -> Iterator[ObjectFile]:
        """Sends no request. The first read shows whether this is the object that was listed."""
        yield ObjectFile(self, base / name, entry)

    def fetch(self, path: ObjectPath, entry: StoreEntry, start: int, end: int) -> bytes:
        """The bytes from *start* up to *end* of the object as listed. Raises OSError and Unstable."""
        import obstore
        from obstore.exceptions import PreconditionError

        options: GetOptions = {"range": (start, end)}
        if entry.stamp.etag:
            options["if_match"] = f'"{entry.stamp.etag}"'
        try:
            with _as_os_errors(path):
                answer = obstore.get(self._client, path.key, options=options)
                if _is_same(_entry(answer.meta).stamp, entry.stamp):
                    return bytes(answer.bytes())
        except PreconditionError:
            pass
        raise Unstable(f"{path.name}: changed while being read")

    def fetch_spans(self, path: ObjectPath, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """
        The bytes of each span, with some requests at a time. Raises OSError.

        The requests have no condition: the listing at the end shows whether the object changed meanwhile.
        """
        import obstore

        starts, ends = [start for start, _ in spans], [end for _, end in spans]
        with _as_os_errors(path):
            found = obstore.get_ranges(self._client, path.key, starts=starts, ends=ends, coalesce=_TOGETHER)
            return [bytes(each) for each in found]

    def _below(self, place: ObjectPath, most: int) -> Iterator[tuple[str, StoreEntry]]:
        import obstore

        below = f"{place.key}/".lstrip("/")
        count = 0
        with _as_os_errors(place, listing=True):
            for page in obstore.list(self._client, prefix=place.key or None, chunk_size=1000):
                count += len(page)
                if count > most:
                    raise Damaged(f"more than {most:,} entries, too many to verify")
                for meta in page:
                    name = meta["path"].removeprefix(below)
                    if name.count("/") > MOST_LEVELS:
                        raise Damaged(f"{name[:80]}: nested deeper than {MOST_LEVELS} folders")
                    if meta["path"].startswith(below):
                        yield name, _entry(meta)

    def _head(self, path: ObjectPath) -> ObjectMeta:
        import obstore

        if not path.key:
            raise FileNotFoundError(errno.ENOENT, "the bucket is empty", str(path))
        with _as_os_errors(path):
            return obstore.head(self._client, path.key)


def _without_markers(below: dict[str, StoreEntry]) -> Iterator[tuple[str, StoreEntry]]:
    """Consoles create empty objects for folders. obstore reports their key as that of the folder."""
    folders = {folder for name in below for folder in _folders_of(name)}
    return ((name, entry) for name, entry in below.items() if entry.stamp.size or name not in folders)


def _folders_of(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _last_part(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2]


def _entry(meta: ObjectMeta) -> StoreEntry:
    age = (meta["last_modified"] - _EPOCH) // _MICROSECOND
    return StoreEntry(Stamp(meta["size"], age * 1000, etag=(meta["e_tag"] or "").strip('"')))


def _is_same(got: Stamp, listed: Stamp) -> bool:
    """
    Compares tags, because a list may have fractions of a second that a response header has not. Some servers give no
    tag.
    """
    if got.etag and listed.etag:
        return (got.etag, got.size) == (listed.etag, listed.size)
    return (got.mtime_ns // _SECOND, got.size) == (listed.mtime_ns // _SECOND, listed.size)


@contextmanager
def _as_os_errors(path: ObjectPath, *, listing: bool = False) -> Iterator[None]:
    """
    Converts the client's errors to those of a file system, except a failed condition.

    A missing bucket is not the same as a folder that does not exist yet: it must not count as empty.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError, UnauthenticatedError

    try:
        yield
    except PreconditionError:
        raise
    except FileNotFoundError as error:
        if listing:
            raise OSError(errno.ENXIO, f"there is no bucket {path.url}", str(path)) from error
        raise FileNotFoundError(errno.ENOENT, "not there", str(path)) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        why = "permission denied by the store (whose credentials does healthd have here?)"
        raise PermissionError(errno.EACCES, why, str(path)) from error
    except BaseError as error:
        raise OSError(errno.EIO, _error_text(error), str(path)) from error


def _error_text(error: Exception) -> str:
    """
    The message of the store, as S3 and GCS write it, or the first words of the client's message; not the request.
    """
    text = str(error)
    parts = [match[1] for part in ("Code", "Message") if (match := re.search(rf"<{part}>([^<\n]*)", text))]
    return (": ".join(parts) or text.split("Debug source", 1)[0]).strip()[:300] or type(error).__name__
