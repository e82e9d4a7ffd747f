"""
Reconcile many gangs at the same time, one task for each gang: one gang may take minutes, and the others do not wait.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any

import structlog

from healthd.clock import Clock
from healthd.cluster.waiting import first
from healthd.controller.cache.cluster_state import GangKey
from healthd.controller.fresh_reads import Gather
from healthd.controller.processor_time import Counter, ProcessorTime
from healthd.controller.reconciler import Reconciler

log = structlog.get_logger()

AT_ONCE = 256
"""Gangs that are reconciled at the same time. A task that waits for a store is free; many writers are not."""
READS_AT_ONCE = 16
"""Requests that the snapshot of one gang makes at the same time."""
SWEEP_EVERY = timedelta(seconds=1)
APART, APART_MOST = timedelta(milliseconds=50), timedelta(seconds=2)
"""The least and the most time between two reconciles of one gang. When it stops or starts, each of its pods has several
changes within a second, and each reconcile looks at all pods."""
REST = 4
"""Between these two, a gang pauses for so many times as long as its last reconcile computed: one of thousands of pods
leaves most of the processor to the others, and to the control plane beside it. What a reconcile waits for does not
count: a small gang on a busy control plane would pause for seconds."""


class WorkQueue:
    """Lets *controller* reconcile the gangs that are due. It pauses while there is *trouble*. *wake* ends a wait."""

    def __init__(
        self,
        controller: Reconciler,
        clock: Clock,
        wake: asyncio.Event,
        trouble: Callable[[], str | None] = lambda: None,
        counter: Counter = time.thread_time,
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._wake = wake
        self._trouble = trouble
        self._counter = counter
        self.rounds = 0
        """Times that the queue was looked at after a sweep that succeeded. It stands still when either loop does."""
        self._swept = 0
        self._logged = ""
        self._under_way: set[GangKey] = set()

    async def run(self) -> None:
        """Run until cancelled; reconciles in progress are then cancelled, too."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep(), name="sweep")
            tasks.create_task(self._controller.reads.run(self._wake_for), name="checkpoint reads")
            while True:
                self._wake.clear()
                if self._may_decide():
                    self.rounds = self._swept
                    for key in self._due():
                        self._under_way.add(key)
                        tasks.create_task(self._attend(key), name=f"gang {key.name}")
                await first(self._wake.wait(), self._clock.sleep(self._rest()))

    def _due(self) -> list[GangKey]:
        """The gangs to begin now. A gang over the limit starts when another is done, which wakes the queue."""
        due = self._controller.ready_keys(self._clock.now())
        return due[: max(0, AT_ONCE - len(self._under_way))]

    def _rest(self) -> timedelta:
        """Time until a gang is due."""
        if self._logged:
            return SWEEP_EVERY  # a due gang stays due until the informers are in sync again, which wakes
        if len(self._under_way) >= AT_ONCE:
            return SWEEP_EVERY  # a due gang waits for one that is done, which wakes
        return self._controller.next_wakeup(self._clock.now())

    async def _attend(self, key: GangKey) -> None:
        processor = ProcessorTime(self._counter)
        try:
            await processor.of(self._controller.reconcile(key, self._clock.now()))
        finally:
            self._under_way.discard(key)
            self._controller.pause(key, self._clock.now() + min(max(APART, REST * processor.used), APART_MOST))
            self._wake.set()

    def _wake_for(self, key: GangKey) -> None:
        """The result of a read does not wait as events do: a recovery may wait for it, and it comes only once."""
        self._controller.end_pause(key)
        self._wake.set()

    async def _sweep(self) -> None:
        while True:
            if self._may_decide():
                try:
                    if await self._controller.collect_garbage(self._clock.now()):
                        self._swept += 1
                        self._wake.set()
                except Exception as error:  # garbage can wait; the gangs must not be left unguarded for it
                    log.exception("sweep.failed", error=str(error))
            await self._clock.sleep(SWEEP_EVERY)

    def _may_decide(self) -> bool:
        """False while the cache is stale: decisions are paused then. Logged once at the begin and once at the end."""
        trouble = self._trouble() or ""
        if trouble and not self._logged:
            log.error(
                "controller.cache_stale", why=trouble, note="decisions are paused until the informers are in sync again"
            )
        elif self._logged and not trouble:
            log.info("controller.cache_synced")
        self._logged = trouble
        return not trouble


def in_parallel(limit: int = READS_AT_ONCE) -> Gather:
    """Several reads at the same time, up to *limit*."""

    async def together(reads: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
        slots = asyncio.Semaphore(limit)

        async def one(read: Callable[[], Awaitable[Any]]) -> Any:
            async with slots:
                return await read()

        answers = await asyncio.gather(*map(one, reads), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    return together
