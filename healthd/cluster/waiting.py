"""Wait for the first of several coroutines, or with a time limit on a clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from healthd.clock import Clock

A = TypeVar("A")


async def first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of *waits* has ended, also with an error; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def within(clock: Clock, limit: timedelta, work: Coroutine[Any, Any, A]) -> A:
    """The result of *work*. When *limit* has passed on *clock*, cancels it and raises TimeoutError."""
    working = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(clock.sleep(limit))
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise TimeoutError(f"nothing came within {limit.total_seconds():g} s")
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
