"""
Fakes that every test may use: a clock that is turned by hand, and uids that count.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
"""When every `ManualClock` begins."""


class ManualClock:
    """A `Clock` that stands still until it is turned."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._order = itertools.count()
        self._sleepers: list[tuple[datetime, int, asyncio.Future[None]]] = []

    def now(self) -> datetime:
        """What the hands show."""
        return self._now

    async def sleep(self, delay: timedelta) -> None:
        """Return when the clock has been turned by *delay*; earlier deadlines wake first."""
        if delay <= timedelta(0):
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + delay, next(self._order), woken))
        await woken

    def advance(self, delta: timedelta) -> None:
        """Turn the clock in one go. Sleepers that were to wake until then do so when the loop next runs: late."""
        self._now += delta
        while (deadline := self.next_deadline()) is not None and deadline <= self._now:
            self._wake_first()

    async def run_for(self, delta: timedelta) -> None:
        """Turn the clock deadline by deadline, each time until all wait again: no sleeper wakes late."""
        end = self._now + delta
        await settle()
        while (deadline := self.next_deadline()) is not None and deadline <= end:
            self._now = max(self._now, deadline)
            self._wake_first()
            await settle()
        self._now = max(self._now, end)

    def next_deadline(self) -> datetime | None:
        """When the next sleeper wakes; None when none sleeps."""
        while self._sleepers and self._sleepers[0][2].done():  # cancelled
            heapq.heappop(self._sleepers)
        return self._sleepers[0][0] if self._sleepers else None

    def _wake_first(self) -> None:
        heapq.heappop(self._sleepers)[2].set_result(None)


async def settle() -> None:
    """Run the event loop until nothing in it can go on by itself (threads and sockets are not waited for)."""
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # noqa: ASYNC110 - what is waited for is the loop itself
        await asyncio.sleep(0)


def counting_uids(prefix: str = "uid") -> Callable[[], str]:
    """A `new_uid` that answers uid-1, uid-2, …"""
    numbers = itertools.count(1)
    return lambda: f"{prefix}-{next(numbers)}"
