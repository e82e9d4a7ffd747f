"""
Hand the kernel log to the agents of this machine.

One reader serves all their nodes. A log that cannot be read is logged once, with the way to allow it. The agents go on
with their other sources, and none of their nodes is reported healthy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta

import structlog

from healthd.agent.node_state import NodeState
from healthd.clock import Clock
from healthd.core.api import KernelLogCursor
from healthd.core.api.model import KernelRecord
from healthd.core.diagnosis.readings import RecordBatch
from healthd.probes.klog.log import KernelLog
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)


LONGEST_BACKLOG = timedelta(seconds=2)
"""The kernel ring is read in milliseconds. In a flood of records its end may never be reached."""
REPORT_EVERY = timedelta(seconds=10)
"""Between two log messages about lost records. In a flood every batch has lost some, a hundred times a second."""


class Losses:
    """Lost records that are not logged yet."""

    def __init__(self) -> None:
        self._unreported = 0
        self._reported_at: datetime | None = None

    def to_report(self, lost: int, now: datetime) -> int:
        """How many lost records to log now, with *lost* more. 0 while the last message is too recent."""
        self._unreported += lost
        if self._reported_at is not None and timedelta(0) <= now - self._reported_at < REPORT_EVERY:
            return 0
        count, self._unreported = self._unreported, 0
        if count:
            self._reported_at = now
        return count


class Listener:
    """Reads one kernel log for *nodes* and calls *on_change* when a finding changed. *also* receives all records."""

    def __init__(
        self,
        nodes: Sequence[NodeState],
        clock: Clock,
        metrics: Metrics,
        on_change: Callable[[], None],
        also: Callable[[Sequence[KernelRecord]], None] | None = None,
    ) -> None:
        self._nodes = nodes
        self._clock = clock
        self._metrics = metrics
        self._on_change = on_change
        self._also = also
        self._trouble: str | None = "the kernel log is not open yet"
        self._decided = asyncio.Event()
        self._losses = Losses()
        self._log: KernelLog | None = None
        self._asked: dict[int, datetime] = {}
        self._read_until: datetime | None = None

    @property
    def read_until(self) -> datetime | None:
        """Every record from before this moment was handed to the agents. None: not known (`ask`)."""
        return self._read_until

    @property
    def is_blind(self) -> bool:
        """Reading the kernel log was tried and failed."""
        return self._decided.is_set() and self._trouble is not None

    def ask(self) -> bool:
        """Request that `read_until` is brought up to now. The agents are woken then. Whether an answer will come."""
        if self._log is not None and not self._asked and (number := self._log.ask()):
            self._asked[number] = self._clock.now()
        return bool(self._asked)

    def trouble(self) -> str | None:
        """Why the kernel log is not being read. None while it is. A check of `/readyz`."""
        return self._trouble

    async def decided(self) -> None:
        """Return once it is first known whether the kernel log can be read."""
        await self._decided.wait()

    def blind(self, why: str) -> None:
        """The kernel log is not being read, because of *why*. Logged once, however often it is tried again."""
        self._log = None
        self._asked.clear()
        if why == self._trouble:
            return
        self._trouble = why
        self._decided.set()
        self._metrics.kernel_log_up.set(0)
        for node in self._nodes:
            node.set_log_readable(False, why)
        log.error("kernel_log.unreadable", why=why, so="hardware faults that only the kernel log reports are not seen")
        self._on_change()

    async def ingest_log(self, kernel_log: KernelLog) -> None:
        """Ingest the records of *kernel_log* until it ends or breaks, then log that."""
        self._trouble, self._log = None, kernel_log
        self._asked.clear()
        self._decided.set()
        self._metrics.kernel_log_up.set(1)
        for node in self._nodes:
            node.set_log_readable(True)
        self._on_change()
        log.info("kernel_log.open", source=kernel_log.source)
        try:
            async with aclosing(kernel_log.batches()) as batches:
                async for batch in _with_backlog_as_one(batches, self._metrics, self._clock):
                    self._ingest(batch)
        except OSError as error:
            self.blind(f"reading it failed: {error}")
        else:
            self.blind("it ended")

    def _ingest(self, batch: RecordBatch) -> None:
        now = self._clock.now()
        self._metrics.kernel_records_lost.inc(batch.lost)
        if self._also is not None:
            self._also(batch.records)
        if lost := self._losses.to_report(batch.lost, now):
            log.warning("kernel_log.lost", records=lost)
        changed = [node.ingest_records(batch, now) for node in self._nodes]  # all nodes: `any` stops at the first
        if any(changed):
            self._on_change()
        self._note_answer(batch.answered)  # after the records that came with it

    def _note_answer(self, answered: int) -> None:
        """The answer counts from the time of the question: later records may be unread."""
        moments = [self._asked.pop(number) for number in list(self._asked) if number <= answered]
        if moments:
            self._read_until = max(moments)
            self._on_change()


async def _with_backlog_as_one(
    batches: AsyncIterator[RecordBatch], metrics: Metrics, clock: Clock
) -> AsyncIterator[RecordBatch]:
    """
    *batches*, with the backlog as one batch: a record a minute younger may withdraw an old one, and a node must not go
    out of service in between.
    """
    backlog: RecordBatch | None = None
    began = clock.now()
    try:
        async for batch in batches:
            metrics.kernel_records.inc(batch.count)
            backlog = backlog.plus(batch) if backlog else batch
            if not (batch.is_backlog and timedelta(0) <= clock.now() - began < LONGEST_BACKLOG):
                yield backlog
                backlog = None
    except OSError:
        if backlog:
            yield backlog
        raise
    if backlog:
        yield backlog


def common_cursor(nodes: Sequence[NodeState], boot_id: str) -> KernelLogCursor:
    """Where a reader for all *nodes* begins: at the oldest of their cursors. Each node skips the records it knows."""
    cursors = [node.cursor for node in nodes]
    if any(cursor.boot_id != boot_id for cursor in cursors) or len({cursor.source for cursor in cursors}) != 1:
        return KernelLogCursor()
    return min(cursors, key=lambda cursor: cursor.sequence)
