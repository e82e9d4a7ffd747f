"""The interface of every source of kernel records, and how records get from a reading thread to the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Protocol

import msgspec

from healthd.core.api import KernelLogCursor
from healthd.core.diagnosis.readings import RecordBatch

MOST_PENDING = 4096
"""Records that may wait for the event loop. At the limit the reader stops, and what the ring then drops is counted."""

MOST_UNDELIVERED = 65_536
"""Irrelevant records after which the loop is woken even in a flood: an endless flood must not hide losses."""


class KernelLog(Protocol):
    """A source of kernel records."""

    @property
    def source(self) -> str:
        """`kmsg`, `journal` or `file`: the source whose numbering the records have."""
        ...

    @property
    def boot_id(self) -> str:
        """The boot that the records and their sequence numbers belong to."""
        ...

    def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """Every record once, in order, as it arrives. Ends when the source does. Raises OSError when it breaks."""
        ...

    def ask(self) -> int:
        """
        Ask whether every record from before this moment was read. The batch that answers has this number or a later one
        in `answered`. 0: this source cannot answer.
        """
        ...


def known_sequence(cursor: KernelLogCursor | None, *, boot_id: str, source: str) -> int:
    """The number of the last record in *cursor*, as *source* numbers them in this boot. -1 when it has none."""
    if cursor is None or cursor.boot_id != boot_id or cursor.source not in ("", source):
        return -1
    return cursor.sequence


class Mailbox:
    """
    Carries batches from the reading thread to the event loop, merged while the loop is busy.

    There is one wake-up per batch taken, however many are ingested. `ingest` waits while the mailbox is full, so memory
    use stays constant.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, most_pending: int = MOST_PENDING, is_backlog: bool = False
    ) -> None:
        """*is_backlog*: what is ingested before the first `flush` was written before reading began."""
        self._loop = loop
        self._most_pending = most_pending
        self._changed = threading.Condition()
        self._arrived = asyncio.Event()
        self._rung = False
        self._pending = RecordBatch()
        self._is_backlog = is_backlog
        self._gave_backlog = False
        self._has_caught_up = False
        """And that is still to be reported."""
        self._answered, self._delivered = 0, 0
        self._ended = False
        self._error: Exception | None = None
        self.is_open = True

    def ingest(self, batch: RecordBatch) -> None:
        """
        Called by the thread for every chunk. Only records wake the loop: counts and losses add up until `flush`.

        In a flood each wake-up would take the interpreter from the reader, and so lose the next records too. Waits
        while too many records are pending.
        """
        with self._changed:
            self._changed.wait_for(lambda: len(self._pending.records) < self._most_pending or not self.is_open)
            self._pending = self._pending.plus(batch)
            if batch.records or self._pending.count >= MOST_UNDELIVERED:
                self._ring()

    def flush(self) -> None:
        """Called by the thread before it sleeps, so that losses and irrelevant records are reported too."""
        with self._changed:
            if self._is_backlog:
                self._is_backlog, self._has_caught_up = False, self._gave_backlog
            if self._pending.count or self._has_caught_up:
                self._ring()

    def answer(self, question: int) -> None:
        """Called by the thread when the source is empty: all records from before *question* were ingested."""
        with self._changed:
            if question > self._answered:
                self._answered = question
                self._ring()

    def end(self, error: Exception | None = None) -> None:
        """Called by the thread when it ends."""
        with self._changed:
            self._ended, self._error = True, error
            self._is_backlog = False
            self._ring()

    async def take(self) -> RecordBatch | None:
        """Called by the loop: what has arrived since the last call. None when nothing more will come."""
        while True:
            await self._arrived.wait()
            with self._changed:
                if self._pending.count or self._pending.lost or self._has_caught_up or self._answered > self._delivered:
                    return self._empty()
                if self._ended:
                    break
                self._arrived.clear()
                self._rung = False
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Called by the loop: nothing more will be taken."""
        with self._changed:
            self.is_open = False
            self._changed.notify_all()

    def _empty(self) -> RecordBatch:
        batch = msgspec.structs.replace(self._pending, is_backlog=self._is_backlog, answered=self._answered)
        self._gave_backlog, self._has_caught_up = self._is_backlog, False
        self._pending = RecordBatch(source=batch.source, last_sequence=batch.last_sequence)
        self._delivered = self._answered
        self._changed.notify_all()
        return batch

    def _ring(self) -> None:
        if self.is_open and not self._rung:
            self._rung = True
            self._loop.call_soon_threadsafe(self._arrived.set)
