"""
The common loop: a cycle runs after each change, when it is woken, and now and then anyway.

A watch only wakes the loop, and the cycle reads everything again. So a lost or doubled event costs at most one cycle
that is late or not needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, NoReturn

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, EventType, Unusable
from healthd.cluster.waiting import first
from healthd.core.api import Slim

log = structlog.get_logger(__name__)

RETRY = timedelta(seconds=1)
"""How long a loop waits after an error of the cluster."""


async def cycle_on_change(
    cluster: Cluster,
    clock: Clock,
    kinds: Sequence[type[Slim]],
    cycle: Callable[[datetime], Awaitable[timedelta]],
    wake: asyncio.Event,
) -> None:
    """
    Run *cycle* until cancelled: after each change of *kinds*, whenever *wake* is set, and at the latest after the time
    that it returned. Where an informer already watches, use `cycle_when_woken`.
    """
    async with asyncio.TaskGroup() as tasks:
        for kind in kinds:
            tasks.create_task(_wake_on_change(cluster, clock, kind, wake), name=f"watch {kind.__name__}")
        await cycle_when_woken(clock, cycle, wake)


async def cycle_when_woken(
    clock: Clock, cycle: Callable[[datetime], Awaitable[timedelta]], wake: asyncio.Event
) -> NoReturn:
    """Run *cycle* until cancelled: whenever *wake* is set, and at the latest after the time that it returned."""
    trouble = ""
    while True:
        wake.clear()
        try:
            delay = await cycle(clock.now())
            trouble = ""
        except Unusable:
            raise
        except Exception as error:  # an error in one cycle, bugs included, must not leave everything unguarded
            if str(error) != trouble:  # a lasting error is logged once
                _log_failure(cycle.__qualname__, error)
            trouble, delay = str(error), RETRY
        await first(wake.wait(), clock.sleep(delay))


def _log_failure(cycle: str, error: Exception) -> None:
    is_expected = isinstance(error, ClusterError)
    write = log.warning if is_expected else log.exception
    write("cycle.failed", cycle=cycle, error=str(error), kind=type(error).__name__)


async def _wake_on_change(cluster: Cluster, clock: Clock, kind: type[Slim], wake: asyncio.Event) -> None:
    while True:
        try:
            since = (await cluster.list(kind)).resource_version
            wake.set()
            events: Any = cluster.watch(kind, since=since)
            async with aclosing(events):
                async for event in events:
                    if event.type is not EventType.BOOKMARK:
                        wake.set()
        except Unusable:
            raise
        except ClusterError as error:
            log.info("watch.restarts", kind=kind.__name__, error=str(error))
        await clock.sleep(RETRY)  # also after the server has ended the watch without an error
