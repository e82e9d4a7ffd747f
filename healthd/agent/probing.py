"""
Samples every source but the kernel log, each at its own pace, and hands the samples to the judge.

Sources that are due at about the same time are read together: one timer, one thread, and one way back to the event loop
for all of them. Most sources are read in microseconds, and waking costs more than that. A slow source keeps its thread
and does not delay the others. A source that misses its deadline is reported as failed; it is not read again before that
read has returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import structlog

from healthd.clock import Clock
from healthd.core.backoff import Jitter
from healthd.core.diagnosis.readings import Sample
from healthd.telemetry.metrics import Metrics
from healthd.threads import Call, Worker

log = structlog.get_logger(__name__)

T = TypeVar("T")

DEADLINE = timedelta(seconds=15)
"""Longer than any working source takes: the slowest have time limits of their own."""

TOGETHER = timedelta(milliseconds=200)
"""A source is read this much too early where another source is read at that time anyway."""

LATE = timedelta(seconds=1)
"""How often overdue reads are checked."""


class Probe(Protocol):
    """One source, or one part of it. No two probes may have the same *source*."""

    @property
    def source(self) -> str:
        """The source's name in samples, metrics and messages."""
        ...

    @property
    def every(self) -> timedelta:
        """How long after a sample the next one begins."""
        ...

    def sample(self, now: datetime) -> Sample:
        """A sample now. Blocks. Raises nothing, whatever the state of the machine."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll(Generic[T]):
    """Something that is read periodically: how often, how, and what ingests the result or the error."""

    name: str
    every: Callable[[], timedelta]
    """Called at each read: the time from its beginning to the beginning of the next one."""
    read: Callable[[datetime], T]
    """Runs in a thread. Its argument is the time at which the read began."""
    ingest: Callable[[T | None, BaseException | None, datetime], None]
    """Runs in the event loop: the result or the error, and when the read began."""


class Prober:
    """Samples *probes* for ever and calls *ingest* with each sample. *also*: other polls, each at its own pace."""

    def __init__(
        self,
        probes: Sequence[Probe],
        clock: Clock,
        jitter: Jitter,
        metrics: Metrics,
        ingest: Callable[[Sample], None],
        *,
        also: Sequence[Poll[Any]] = (),
    ) -> None:
        self._sources = [probe.source for probe in probes]
        self._polls = [*map(self._poll_of, probes), *also]
        self._clock = clock
        self._jitter = jitter
        self._metrics = metrics
        self._ingest = ingest
        self._troubles: dict[str, str] = {}
        self._last: dict[str, Sample] = {}
        self._due: dict[str, datetime] = {}
        self._asked: dict[str, datetime] = {}
        """By name: the start of a read that has not returned."""
        self._fault: Exception | None = None

    async def run(self) -> None:
        """Run until cancelled. Raises what *ingest* raised."""
        worker = Worker("probes")
        # Agents that were started together do not query what they share, such as a hypervisor, at the same moments.
        await self._clock.sleep(timedelta(seconds=1) * self._jitter())
        try:
            while self._fault is None:
                now = self._clock.now()
                worker.submit([self._begin(poll, now) for poll in self._polls if self._is_due(poll, now)])
                self._report_late(now)
                await self._clock.sleep(self._next(now) - self._clock.now())
            raise self._fault
        finally:
            self._asked.clear()  # results that arrive from now on are dropped

    def _poll_of(self, probe: Probe) -> Poll[Sample]:
        return Poll(
            name=probe.source,
            every=lambda: probe.every,
            read=probe.sample,
            ingest=partial(self._ingest_answer, probe.source),
        )

    def _is_due(self, poll: Poll[Any], now: datetime) -> bool:
        return poll.name not in self._asked and self._due.get(poll.name, now) <= now + TOGETHER

    def _begin(self, poll: Poll[T], now: datetime) -> Call[T]:
        self._asked[poll.name] = now
        self._due[poll.name] = now + poll.every()
        return Call(partial(poll.read, now), partial(self._end, poll, now))

    def _end(self, poll: Poll[T], began: datetime, answer: T | None, error: BaseException | None) -> None:
        if self._asked.pop(poll.name, None) is None:
            return
        self._due[poll.name] = began + poll.every()  # the read may have changed its pace
        try:
            poll.ingest(answer, error, began)
        except Exception as fault:
            self._fault = fault

    def _next(self, now: datetime) -> datetime:
        """When to wake. Reads that began just now will have returned by then."""
        late = {name for name, began in self._asked.items() if began < now}
        return min(
            (now + LATE if poll.name in late else self._due[poll.name] for poll in self._polls), default=now + LATE
        )

    def _report_late(self, now: datetime) -> None:
        """Report probes that are overdue."""
        for source in self._sources:
            if now - self._asked.get(source, now) >= DEADLINE and source not in self._troubles:
                trouble = f"it did not answer within {DEADLINE.total_seconds():g} s"
                self._ingest_sample(Sample(source=source, at=now, trouble=trouble))

    def _ingest_answer(self, source: str, sample: Sample | None, error: BaseException | None, began: datetime) -> None:
        if sample is None:  # a bug in one probe must not stop the others
            log.error("probe.failed", source=source, error=repr(error), exc_info=error)
            sample = Sample(source=source, at=began, trouble=f"the probe failed: {error!r}")
        self._ingest_sample(sample)

    def _ingest_sample(self, sample: Sample) -> None:
        before = self._troubles.get(sample.source, "")
        if sample.trouble != before:
            if sample.trouble:
                self._troubles[sample.source] = sample.trouble
                log.warning("probe.unreadable", source=sample.source, why=sample.trouble)
            else:
                del self._troubles[sample.source]
                log.info("probe.readable_again", source=sample.source)
        if sample is not self._last.get(sample.source):  # a probe may return its last sample again
            self._metrics.probe_up.labels(sample.source).set(0 if sample.trouble else 1)
            self._last[sample.source] = sample
            self._ingest(sample)
