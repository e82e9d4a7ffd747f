"""
The one place where the time is read. Everything else is handed a `Clock` or a `now`.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Tells the time and waits for it; tests pass one that they turn by hand."""

    def now(self) -> datetime:
        """The present, in UTC."""
        ...

    async def sleep(self, delay: timedelta) -> None:
        """Return when *delay* has passed."""
        ...


class SystemClock:
    """
    Wall time that never steps: read once at start, then advanced by CLOCK_BOOTTIME.

    A deadline set by this process therefore holds when somebody sets the machine's clock back.
    """

    def __init__(self) -> None:
        self._origin = datetime.now(UTC) - timedelta(seconds=_boottime())  # noqa: TID251 - this is the clock

    def now(self) -> datetime:
        """The present, in UTC."""
        return self._origin + timedelta(seconds=_boottime())

    async def sleep(self, delay: timedelta) -> None:
        """Return when *delay* has passed on the event loop's own clock."""
        await asyncio.sleep(max(0.0, delay.total_seconds()))


def _boottime() -> float:
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
