"""
The one loop shape of this machine's controllers: a cycle whenever something changed, and now and then anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, EventType
from healthd.core.objects import Slim

log = structlog.get_logger(__name__)

RESYNC = timedelta(seconds=1)
"""A cycle reads everything again; this bounds what a missed event or a failed write can delay."""


async def cycle_on_change(
    cluster: Cluster,
    clock: Clock,
    kinds: Sequence[type[Slim]],
    cycle: Callable[[datetime], Awaitable[None]],
    wake: asyncio.Event,
) -> None:
    """Run *cycle* until cancelled: after each change of *kinds*, whenever *wake* is set, and every `RESYNC`."""
    async with asyncio.TaskGroup() as tasks:
        for kind in kinds:
            tasks.create_task(_wake_on_change(cluster, clock, kind, wake), name=f"watch {kind.__name__}")
        while True:
            wake.clear()
            try:
                await cycle(clock.now())
            except ClusterError as error:
                log.warning("cycle_failed", cycle=cycle.__qualname__, error=str(error))
            await _first(wake.wait(), clock.sleep(RESYNC))


async def _wake_on_change(cluster: Cluster, clock: Clock, kind: type[Slim], wake: asyncio.Event) -> None:
    while True:
        try:
            listed = await cluster.list(kind)
            wake.set()
            async for event in cluster.watch(kind, since=listed.resource_version):
                if event.type is not EventType.BOOKMARK:
                    wake.set()
        except ClusterError as error:
            log.info("watch_restarts", kind=kind.__name__, error=str(error))
            await clock.sleep(RESYNC)


async def _first(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
