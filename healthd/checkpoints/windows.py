"""
A file that is parsed in small pieces. One larger read replaces many small reads: each read waits on a network file
system.

Keeps one range of the file in memory at a time, for any file size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from healthd.checkpoints.tree import Damaged, Tree, read_at

_AHEAD = 1 << 16
LARGEST_READ = 16 << 20
"""The largest single item that a parser may read as a whole."""


class Window:
    """One open file, read by offset. Has the name and size of the file."""

    def __init__(self, read: Callable[[int, int], bytes], name: str, size: int) -> None:
        self._read = read
        self.name = name
        self.size = size
        self._start = 0
        self._held = b""

    def at(self, offset: int, size: int) -> bytes:
        """Exactly these bytes. Raises Damaged when they reach beyond the end, or are too many for memory."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise Damaged(f"{self.name}: {self.size:,} of at least {offset + size:,} bytes (torn write)")
        if size > LARGEST_READ:
            raise Damaged(f"{self.name}: claims {size:,} bytes for one piece of its structure")
        begin = offset - self._start
        if begin < 0 or begin + size > len(self._held):
            self._start, begin = offset, 0
            self._held = self._read(offset, min(max(size, _AHEAD), self.size - offset))
        return self._held[begin : begin + size]

    def chunks(self, offset: int, size: int) -> Iterator[bytes]:
        """These bytes in pieces of limited size, for a checksum. Raises Damaged."""
        if offset < 0 or offset + size > self.size:
            raise Damaged(f"{self.name}: {self.size:,} of at least {offset + size:,} bytes (torn write)")
        end = offset + size
        while offset < end:
            piece = self._read(offset, min(1 << 20, end - offset))
            yield piece
            offset += len(piece)


@contextmanager
def open_window(tree: Tree, name: str) -> Iterator[Window]:
    """The file *name*, which must not be empty. Raises Damaged."""
    size = tree.size(name)
    if not size:
        raise Damaged(f"{name}: empty file")
    with tree.open(name) as file:
        yield Window(lambda offset, length: read_at(file, name, offset=offset, size=length), name, size)
