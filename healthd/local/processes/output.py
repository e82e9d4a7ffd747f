"""
The output of ranks: it goes to one file per rank, and from there, with a prefix, to the terminal.

A rank writes directly to its log file. So it never waits for healthd, or for a terminal that was stopped with Ctrl-S.
Its output is not lost when healthd is killed, and a backlog is on the disk, not in memory. The price: while a terminal
shows the output, the sizes of the files are polled: ten times a second while something is written, else twice.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TextIO

import structlog

log = structlog.get_logger(__name__)

TICK, SLOWEST = 0.1, 0.5
"""Seconds between polls of the files: after output, and when there was none for a while."""
SLOWER = 1.5
"""How much longer than the last one the pause after a poll without output is."""
CHUNK = 256 * 1024
"""Bytes read from one file per poll."""
BACKLOG = 4 * 1024 * 1024
"""A terminal that is further behind gets the newest part, and a note about what was skipped."""
LONGEST_LINE = 8 * 1024
"""A longer line is shown in pieces."""
PATIENCE = 20
"""After this number of polls, a line without an end (a progress bar) is shown as it is."""


def open_log(path: Path) -> int:
    """
    A descriptor that appends to *path*. The folder is made. File and folder are open to their owner only. Raises
    OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class Prefixer:
    """Cuts a stream of bytes into whole lines with a prefix. Of a progress bar, only the newest state is shown."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._pending = b""

    def feed(self, data: bytes) -> bytes:
        """The bytes to show after *data*."""
        *lines, self._pending = (self._pending + data).split(b"\n")
        shown = [self._line(line) for line in lines]
        if len(self._pending) > LONGEST_LINE:
            shown.append(self.flush())
        return b"".join(shown)

    @property
    def is_within_line(self) -> bool:
        """Whether the newest line has no end yet."""
        return bool(self._pending)

    def flush(self) -> bytes:
        """Show the last line, which has no end yet."""
        pending, self._pending = self._pending, b""
        return self._line(pending) if pending else b""

    def _line(self, line: bytes) -> bytes:
        line = line.rstrip(b"\r").rpartition(b"\r")[2]
        pieces = [line[at : at + LONGEST_LINE] for at in range(0, len(line), LONGEST_LINE)] or [b""]
        return b"".join(self._prefix + piece + b"\n" for piece in pieces)


class Follower:
    """Reads one log file from *offset* on, at most `CHUNK` bytes at a time."""

    def __init__(self, path: Path, prefix: str, offset: int) -> None:
        self.finished = False
        """All output of the writer has been shown."""
        self.rests = False
        """The last poll found nothing to show, now or soon."""
        self._end: int | None = None
        """The end of this writer's output. Later bytes are from another writer."""
        self._path = path
        self._file = path.open("rb")  # kept open: the folder may be cleaned up meanwhile
        self._prefix = prefix
        self._prefixer = Prefixer(prefix)
        self._offset = offset
        self._unfinished = 0

    def read(self) -> bytes:
        """The bytes to show now. May be empty although there is more."""
        behind = self._size() - self._offset
        skipped = self._skip(behind) if behind > BACKLOG else b""
        if behind < 0:  # the file was truncated
            self._offset = 0
        data = self._next_bytes() if behind else b""
        shown = skipped + self._prefixer.feed(data)
        self._unfinished = 0 if shown else self._unfinished + 1
        self.finished = self._end is not None and not data
        if self._unfinished >= PATIENCE or self.finished:
            self._unfinished = 0
            shown += self._prefixer.flush()
        self.rests = not data and not self._prefixer.is_within_line
        return shown

    def end(self) -> None:
        """The writer has ended: the current content of the file is its whole output."""
        self._end = self._size()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _next_bytes(self) -> bytes:
        self._file.seek(self._offset)
        data = self._file.read(CHUNK if self._end is None else min(CHUNK, max(0, self._end - self._offset)))
        self._offset += len(data)
        return data

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size if self._end is None else self._end

    def _skip(self, behind: int) -> bytes:
        missed = behind - CHUNK
        self._offset += missed
        cut = self._prefixer.flush()
        return cut + f"{self._prefix}… {missed / 1e6:.1f} MB not shown; all of it is in {self._path}\n".encode()


class Terminal:
    """
    Shows the followed files on *out*, from its own thread, which may block on it for any time.

    The thread is a daemon thread: a terminal that takes no more bytes cannot keep healthd from exiting.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._followers: list[Follower] = []
        self._gone = False
        """Nothing is shown any more."""
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rank output", daemon=True)
        self._thread.start()

    def follow(self, path: Path, prefix: str, offset: int) -> Callable[[], None]:
        """Show what is appended to *path* after *offset*. Returns a function to call when the writer has ended."""
        with self._lock:
            if self._gone:
                return lambda: None
            follower = Follower(path, prefix, offset)
            self._followers.append(follower)
        return partial(self._end, follower)

    def close(self, timeout: float) -> None:
        """Show the remaining output, for at most *timeout* seconds. After that, nothing is shown."""
        self._closing.set()
        self._thread.join(timeout)

    def _end(self, follower: Follower) -> None:
        with self._lock:
            if not self._gone:  # its file is closed
                follower.end()

    def _run(self) -> None:
        try:
            pause = TICK
            while not self._closing.wait(pause):
                pause = min(SLOWEST, SLOWER * pause) if self._show() else TICK
            for follower in self._followers:
                follower.end()
            while self._followers:
                self._show()
        except (OSError, ValueError) as error:  # the terminal is gone; the files have all output
            log.info("terminal.gone", error=str(error))
        finally:
            with self._lock:
                self._gone = True
                for follower in self._followers:
                    follower.close()

    def _show(self) -> bool:
        """Poll each file once. Returns whether there was nothing to show."""
        with self._lock:
            followers = list(self._followers)
        for follower in followers:
            self._show_one(follower)
        return all(follower.rests for follower in followers)

    def _show_one(self, follower: Follower) -> None:
        if data := follower.read():
            self._out.write(data.decode(errors="replace"))
            self._out.flush()
        if follower.finished:
            follower.close()
            with self._lock:
                self._followers.remove(follower)
