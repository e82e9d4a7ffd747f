"""
Looks at every source but the kernel log, each at its own pace, and hands the looks to the judge.

Each source has a thread of its own. A look that does not come back in time is told as trouble of its source; nothing is
asked of it again before it has come back, and no other source waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

import structlog

from healthd.clock import Clock
from healthd.core.readings import Look
from healthd.core.waits import Luck
from healthd.telemetry.metrics import Metrics
from healthd.threads import Worker, in_thread

log = structlog.get_logger(__name__)

DEADLINE = timedelta(seconds=15)
"""Longer than any source takes that works: the slowest have time limits of their own."""

OFTEN = timedelta(seconds=2)
"""A source that is asked more rarely needs no thread of its own, which holds memory while it waits."""


class Probe(Protocol):
    """One source, or one part of it. No two probes may name the same *source*."""

    @property
    def source(self) -> str:
        """Its name in looks, metrics and messages."""
        ...

    @property
    def every(self) -> timedelta:
        """How long after a look the next one begins."""
        ...

    def look(self, now: datetime) -> Look:
        """What it shows now. Blocks; raises nothing that a machine may do."""
        ...


class Prober:
    """Looks at *probes* for ever and calls *take* with each look."""

    def __init__(
        self, probes: Sequence[Probe], clock: Clock, luck: Luck, metrics: Metrics, take: Callable[[Look], None]
    ) -> None:
        self._probes = probes
        self._clock = clock
        self._luck = luck
        self._metrics = metrics
        self._take = take
        self._troubles: dict[str, str] = {}
        self._last: dict[str, Look] = {}
        self._asked: dict[str, datetime] = {}
        """By source: since when a look has not come back."""

    @property
    def troubles(self) -> dict[str, str]:
        """By source: why it cannot be read. What it would tell is unknown."""
        return dict(self._troubles)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for probe in self._probes:
                group.create_task(self._follow(probe), name=f"probe {probe.source}")
            group.create_task(self._watch_over())

    async def _follow(self, probe: Probe) -> None:
        # Not all at once: probes of the same pace would meet again and again.
        await self._clock.sleep(min(probe.every, timedelta(seconds=1)) * self._luck())
        name = f"probe {probe.source}"
        ask = Worker(name).run if probe.every <= OFTEN else partial(in_thread, name=name)
        while True:
            began = self._asked[probe.source] = self._clock.now()
            try:
                look = await ask(partial(probe.look, began))
            except Exception as error:  # a fault of ours in one probe must not blind the others
                log.exception("probe.failed", source=probe.source, error=repr(error))
                look = Look(source=probe.source, at=began, trouble=f"the probe failed: {error!r}")
            del self._asked[probe.source]
            self._enter(look)
            await self._clock.sleep(max(probe.every - (self._clock.now() - began), timedelta(0)))

    async def _watch_over(self) -> None:
        """Tell of probes that do not come back."""
        while True:
            await self._clock.sleep(timedelta(seconds=1))
            now = self._clock.now()
            for source, began in self._asked.items():
                if now - began >= DEADLINE and source not in self._troubles:
                    trouble = f"it did not answer within {DEADLINE.total_seconds():g} s"
                    self._enter(Look(source=source, at=now, trouble=trouble))

    def _enter(self, look: Look) -> None:
        before = self._troubles.get(look.source, "")
        if look.trouble != before:
            if look.trouble:
                self._troubles[look.source] = look.trouble
                log.warning("probe.blind", source=look.source, why=look.trouble)
            else:
                del self._troubles[look.source]
                log.info("probe.sees_again", source=look.source)
        self._metrics.probe_up.labels(look.source).set(0 if look.trouble else 1)
        if look is not self._last.get(look.source):  # a probe may have nothing new
            self._last[look.source] = look
            self._take(look)
