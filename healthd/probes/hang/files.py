"""
Opens files that users wrote, so that none of them can hold the reader: no pipes, no links, no endless files.

Folders above a file may be links: a reader with more rights than the user must not be given a path in folders that the
user can change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from healthd.probes.errors import CannotRead

_REMEDY = "look at it by hand, where the rank runs"


def read_regular(path: str, most: int, *, newer_than: float = 0.0) -> bytes:
    """
    All bytes of the regular file *path*.

    Raises CannotRead also where it has more than *most* bytes, or was written before *newer_than* (seconds of the
    epoch).
    """
    with _opened(path) as file:
        about = os.fstat(file.fileno())
        if about.st_mtime < newer_than:
            raise CannotRead(path, f"it is {newer_than - about.st_mtime:,.0f} s too old", _REMEDY)
        size = about.st_size
        data = file.read(most + 1) if size <= most else b""
    if max(size, len(data)) > most:
        raise CannotRead(path, f"it has {max(size, len(data)):,} bytes, and at most {most:,} are read", _REMEDY)
    return data


def read_end(path: str, most: int) -> bytes:
    """The last *most* bytes of the regular file *path*, all where it is shorter. Raises CannotRead."""
    with _opened(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """A pipe without a writer, or a link to a device, would block or never end."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise CannotRead(path, "it is not a regular file", _REMEDY)
            yield file
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else "") or str(error)
        raise CannotRead(path, why, _REMEDY) from error
