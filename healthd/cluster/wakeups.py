"""
Know that something changed, without trusting that every change was seen.

A loop sleeps on `Wakeups.wait`; watches set it. Whoever wakes re-reads the world, so a lost or doubled event costs at
most one look too late or too many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import aclosing
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, EventType, Gone
from healthd.core.objects import Slim

RETRY = timedelta(seconds=1)
"""How long a watch that broke waits before it is made again."""


class Wakeups:
    """
    Watches of *kinds* that wake one loop. Use as an async context manager.

    *labels* may name a selector for a kind.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        kinds: Collection[type[Slim]],
        labels: Mapping[type[Slim], Mapping[str, str]] | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._kinds = kinds
        self._labels = labels or {}
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._follow(kind), name=f"watch {kind.__name__}") for kind in self._kinds]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self) -> None:
        """Let the next `wait` return at once."""
        self._changed.set()

    async def wait(self, at_most: timedelta) -> None:
        """Return when something changed since the last `wait`, or after *at_most*."""
        try:
            async with asyncio.timeout(max(0.0, at_most.total_seconds())):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    async def _follow(self, kind: type[Slim]) -> None:
        since = ""
        while True:
            try:
                if not since:
                    since = (await self._cluster.list(kind, labels=self._labels.get(kind))).resource_version
                    self._changed.set()
                since = await self._watch(kind, since)
            except Gone:
                since = ""
            except ClusterError:
                # What happened meanwhile is not known: list again before watching on.
                since = ""
                await self._clock.sleep(RETRY)

    async def _watch(self, kind: type[Slim], since: str) -> str:
        events: Any = self._cluster.watch(kind, since=since, labels=self._labels.get(kind))
        async with aclosing(events):
            async for event in events:
                since = event.resource_version
                if event.type is not EventType.BOOKMARK:
                    self._changed.set()
        return since
