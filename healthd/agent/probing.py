"""
Looks at every source but the kernel log, each at its own pace, and hands the looks to the judge.

A look runs in a thread. One that does not come back in time is told as trouble of its source and left alone: nothing is
asked again before it has come back, so a device that hangs costs one thread, and no other source waits for it.
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
from healthd.threads import in_thread

log = structlog.get_logger(__name__)

DEADLINE = timedelta(seconds=15)
"""Longer than any source takes that works: the slowest have time limits of their own."""


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

    @property
    def troubles(self) -> dict[str, str]:
        """By source: why it cannot be read. What it would tell is unknown."""
        return dict(self._troubles)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for probe in self._probes:
                group.create_task(self._follow(probe), name=f"probe {probe.source}")

    async def _follow(self, probe: Probe) -> None:
        # Not all at once: probes of the same pace would meet again and again.
        await self._clock.sleep(min(probe.every, timedelta(seconds=1)) * self._luck())
        asked: asyncio.Task[Look] | None = None
        try:
            while True:
                began = self._clock.now()
                asked = asked or asyncio.create_task(in_thread(partial(probe.look, began), probe.source))
                if await self._has_ended(asked):
                    self._enter(_outcome(asked, probe, began))
                    asked = None
                else:
                    trouble = f"it did not answer within {DEADLINE.total_seconds():g} s"
                    self._enter(Look(source=probe.source, at=began, trouble=trouble))
                await self._clock.sleep(max(probe.every - (self._clock.now() - began), timedelta(0)))
        finally:
            if asked is not None:
                asked.cancel()

    async def _has_ended(self, asked: asyncio.Task[Look]) -> bool:
        alarm = asyncio.create_task(self._clock.sleep(DEADLINE))
        try:
            await asyncio.wait({asked, alarm}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            alarm.cancel()
        return asked.done()

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


def _outcome(asked: asyncio.Task[Look], probe: Probe, began: datetime) -> Look:
    """What a probe answered; a fault of ours in one probe must not blind the others."""
    error = asked.exception()
    if error is None:
        return asked.result()
    log.error("probe.failed", source=probe.source, error=repr(error), exc_info=error)
    return Look(source=probe.source, at=began, trouble=f"the probe failed: {error!r}")
