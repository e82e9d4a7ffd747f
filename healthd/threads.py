"""Calls that block, off the event loop, without making the end of the process wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from healthd.core.shares import may_begin

T = TypeVar("T")


async def in_thread(work: Callable[[], T], name: str) -> T:
    """
    What *work* answers or raises. When the waiting is cancelled the thread is left behind.

    `asyncio.to_thread` would hold up the end of the process until a driver or a file server that hangs answers.
    """
    run, answer = _answering(work)
    threading.Thread(target=run, name=name, daemon=True).start()
    return await answer


class Threads:
    """Runs up to *limit* calls at the same time, in even shares; the others wait for their turn."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._running: list[str] = []
        self._ended = asyncio.Condition()

    async def run(self, work: Callable[[], T], *, who: str) -> T:
        """What *work* of *who* answers or raises. When the waiting is cancelled, the slot is free."""
        async with self._ended:
            await self._ended.wait_for(lambda: may_begin(who, self._running, self._limit))
            self._running.append(who)
        try:
            return await in_thread(work, self._name)
        finally:
            self._running.remove(who)
            async with self._ended:
                self._ended.notify_all()


class Worker:
    """One thread for calls that come every second: to start one each time would cost more than the calls do."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    async def run(self, work: Callable[[], T]) -> T:
        """What *work* answers or raises, after all calls before it."""
        run, answer = _answering(work)
        self._calls.put(run)
        return await answer

    def _work(self) -> None:
        while True:
            self._calls.get()()


def _answering(work: Callable[[], T]) -> tuple[Callable[[], None], asyncio.Future[T]]:
    """*work* for another thread, and its answer for this one."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def hand_over(result: Any, error: BaseException | None) -> None:
        if answer.done():  # cancelled
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def run() -> None:
        result, trouble = None, None
        try:
            result = work()
        except BaseException as error:  # whatever it is belongs to the one who waits
            trouble = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(hand_over, result, trouble)

    return run, answer
