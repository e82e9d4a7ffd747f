"""
Checkpoints in an object store: S3 and what speaks its language, Google Cloud Storage, Azure Blob Storage.

All three by obstore: one wheel of Rust of about 6 MB without further packages, which has the platforms' credentials
(environment, web identity, metadata services), paging and retries inside, lets go of the GIL while it waits, and reads
one object state by its entity tag. It is imported only when a bucket is named.

There are no folders in a bucket, only keys with `/` in them. An object is seen when its upload is complete, so parts of
an upload in flight are nothing here; a set of objects may still be half there.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from healthd.checkpoints.stores.store import Damaged, Entry, Name, Stamp, Store, Unstable

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta
    from obstore.store import ObjectStore as Client

MOST_LEVELS = 16
READ_AHEAD = 1 << 16
"""Bytes; an answer is waited for much longer than so many bytes take."""
STRIDE = 1 << 19
"""Bytes at a time where one read follows the other."""
_TOGETHER = 1 << 12
"""Spans with no more bytes than this between them are one request: what lies between costs memory."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SECOND = 10**9


@dataclass(frozen=True, slots=True, order=True)
class ObjectPath:
    """A key, or the folder of keys below it, with the words of `pathlib`; prints as its URL."""

    url: str
    """Of the bucket, without a slash at the end."""
    key: str
    """Without slashes at the ends; empty for the whole bucket."""
    store: Store[ObjectPath] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """The last part."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The folder that it is in; that of the bucket is the bucket."""
        return ObjectPath(self.url, self.key.rpartition("/")[0], self.store)

    def absolute(self) -> ObjectPath:
        """It always is."""
        return self

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.url, f"{self.key}/{name}".strip("/"), self.store)

    def __str__(self) -> str:
        return f"{self.url}/{self.key}" if self.key else self.url


class ObjectFile:
    """
    One state of one object. Keeps what it read last, at most `STRIDE` bytes, so that small reads cost few requests.
    """

    __slots__ = ("_entry", "_expected", "_held", "_path", "_start", "_store")

    def __init__(self, store: ObjectStore, path: ObjectPath, entry: Entry) -> None:
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
        """Fetch them now, side by side. Raises OSError."""
        total = self._entry.stamp.size
        inside = [(offset, min(offset + size, total)) for offset, size in spans if offset < total and size > 0]
        self._expected = dict(
            zip((offset for offset, _ in inside), self._store.fetch_spans(self._path, inside), strict=True)
        )

    def _hold(self, offset: int, end: int) -> None:
        """Fetch these bytes and some more: a stride where reads follow each other, else what is around."""
        total = self._entry.stamp.size
        follows = self._start < offset < self._start + len(self._held) + READ_AHEAD
        length = max(end - offset, STRIDE if follows else READ_AHEAD)
        self._start = offset if follows else max(0, min(offset, total - length))
        until = min(self._start + length, total)
        self._held = b""  # given back before the next is here
        self._held = self._store.fetch(self._path, self._entry, self._start, until)


class ObjectStore:
    """Reads one bucket through a *client* of obstore. What obstore raises leaves here as an OSError with its reason."""

    at_once = 12
    """Enough to hide a store's latency; each holds up to three strides, and a process has to stay below 100 MB."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def names(self, folder: ObjectPath) -> Iterator[Name]:
        """What lies directly in it. Raises OSError."""
        import obstore

        with _told_as_os_errors(folder, listing=True):
            listed = obstore.list_with_delimiter(self._client, prefix=folder.key or None)
        folders = {_last_part(prefix) for prefix in listed["common_prefixes"]}
        below = f"{folder.key}/".lstrip("/")
        files = {_last_part(meta["path"]) for meta in listed["objects"] if meta["path"].startswith(below)} - folders
        if not folders and not files:
            self._head(folder)
            raise NotADirectoryError(errno.ENOTDIR, "an object, not a folder", str(folder))
        yield from (Name(name, is_folder=True) for name in folders)
        yield from (Name(name, is_folder=False) for name in files)

    def survey(self, place: ObjectPath, most: int) -> tuple[bool, Iterable[tuple[str, Entry]]]:
        """Whether there are keys below it, and all of them; else the object itself. Raises OSError and Damaged."""
        below = dict(self._below(place, most))
        if below:
            return True, _without_markers(below)
        return False, [(place.name, _entry(self._head(place)))]

    @contextmanager
    def open(self, base: ObjectPath, name: str, entry: Entry) -> Iterator[ObjectFile]:
        """Nothing is asked for until the first read, which says whether this is the object that was listed."""
        yield ObjectFile(self, base / name, entry)

    def fetch(self, path: ObjectPath, entry: Entry, start: int, end: int) -> bytes:
        """The bytes from *start* up to *end* of the object as it was listed. Raises OSError and Unstable."""
        import obstore
        from obstore.exceptions import PreconditionError

        options: GetOptions = {"range": (start, end)}
        if entry.stamp.etag:
            options["if_match"] = f'"{entry.stamp.etag}"'
        try:
            with _told_as_os_errors(path):
                answer = obstore.get(self._client, path.key, options=options)
                if _is_same(_entry(answer.meta).stamp, entry.stamp):
                    return bytes(answer.bytes())
        except PreconditionError:
            pass
        raise Unstable(f"{path.name}: changed while being read")

    def fetch_spans(self, path: ObjectPath, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """
        The bytes of each span, some requests at a time. Raises OSError.

        Without a condition: that the object did not change meanwhile is for the list at the end to say.
        """
        import obstore

        starts, ends = [start for start, _ in spans], [end for _, end in spans]
        with _told_as_os_errors(path):
            found = obstore.get_ranges(self._client, path.key, starts=starts, ends=ends, coalesce=_TOGETHER)
            return [bytes(each) for each in found]

    def _below(self, place: ObjectPath, most: int) -> Iterator[tuple[str, Entry]]:
        import obstore

        below = f"{place.key}/".lstrip("/")
        count = 0
        with _told_as_os_errors(place, listing=True):
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
        with _told_as_os_errors(path):
            return obstore.head(self._client, path.key)


def _without_markers(below: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
    """Consoles make empty objects that stand for folders; obstore tells their key as that of the folder."""
    folders = {folder for name in below for folder in _folders_of(name)}
    return ((name, entry) for name, entry in below.items() if entry.stamp.size or name not in folders)


def _folders_of(name: str) -> Iterator[str]:
    while "/" in name:
        name = name.rpartition("/")[0]
        yield name


def _last_part(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2]


def _entry(meta: ObjectMeta) -> Entry:
    age = (meta["last_modified"] - _EPOCH) // _MICROSECOND
    return Entry(Stamp(meta["size"], age * 1000, etag=(meta["e_tag"] or "").strip('"')))


def _is_same(got: Stamp, listed: Stamp) -> bool:
    """By tag, for a list may have parts of a second which an answer's header has not; some servers give no tag."""
    if got.etag and listed.etag:
        return (got.etag, got.size) == (listed.etag, listed.size)
    return (got.mtime_ns // _SECOND, got.size) == (listed.mtime_ns // _SECOND, listed.size)


@contextmanager
def _told_as_os_errors(path: ObjectPath, *, listing: bool = False) -> Iterator[None]:
    """
    The errors of the client as those of a file system, except a failed condition.

    A bucket that is not there is no folder that is not there yet: nothing may be taken for empty because of it.
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
        raise OSError(errno.EIO, _in_words(error), str(path)) from error


def _in_words(error: Exception) -> str:
    """What the store said, as S3 and GCS write it, or the first words of the client; not the request."""
    text = str(error)
    told = [match[1] for part in ("Code", "Message") if (match := re.search(rf"<{part}>([^<\n]*)", text))]
    return (": ".join(told) or text.split("Debug source", 1)[0]).strip()[:300] or type(error).__name__
