"""Calls that block, off the event loop, without making the end of the process wait for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from healthd.core.fair_shares import may_begin

T = TypeVar("T")

PATIENCE = 0.1
"""Seconds that a call may keep those behind it waiting. Nothing that works in memory takes so long."""


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
    """
    One thread for calls that come every second: to start one each time would cost more than the calls do.

    Calls that are due together wake it once, and it wakes the event loop once with all their answers. A call that does
    not come back within `PATIENCE` keeps the thread for itself, and those behind it go on in another.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._batches = self._start()

    def submit(self, calls: Sequence[Call[Any]]) -> None:
        """Make *calls* one after the other, after all that were submitted before. Does not wait."""
        if calls:
            batch = _Batch(calls, self._move_on)
            self._batches.put(batch)
            batch.watch()

    def _move_on(self, stuck: _Batch) -> None:
        """The thread is stuck in a call of *stuck*: what it has not begun is for another thread."""
        behind = [stuck, *_drained(self._batches)]
        self._batches.put(None)  # it ends once it is free again
        self._batches = self._start()
        for batch in behind:
            self.submit(batch.take_rest())

    def _start(self) -> SimpleQueue[_Batch | None]:
        batches: SimpleQueue[_Batch | None] = SimpleQueue()
        threading.Thread(target=_work, args=(batches,), name=self._name, daemon=True).start()
        return batches


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """What to do in the thread, and what the event loop does with the answer, or with the error that was raised."""

    work: Callable[[], T]
    then: Callable[[T | None, BaseException | None], None]


class _Batch:
    """Calls for one thread, which takes them from the front. Other threads may take some, too."""

    def __init__(self, calls: Sequence[Call[Any]], when_stuck: Callable[[_Batch], None]) -> None:
        self._calls = deque(calls)
        self._done: deque[Callable[[], None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._when_stuck = when_stuck
        self._watch: asyncio.TimerHandle | None = None

    def watch(self) -> None:
        """Notice when it takes too long."""
        self._watch = self._loop.call_later(PATIENCE, self._notice)

    def make(self) -> None:
        """In the thread."""
        while (call := _popped(self._calls)) is not None:
            self._done.append(partial(call.then, *_outcome(call.work)))
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._deliver)

    def take_rest(self) -> list[Call[Any]]:
        """What was not begun; no other thread makes it now, and this batch is watched no more."""
        if self._watch is not None:
            self._watch.cancel()
        rest = []
        while (call := _popped(self._calls)) is not None:
            rest.append(call)
        return rest

    def _notice(self) -> None:
        self._watch = None
        self._wake()
        self._when_stuck(self)

    def _deliver(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._wake()

    def _wake(self) -> None:
        """The first at once, and then one at a time: what else happens must not wait for all of them."""
        if (first := _popped(self._done)) is not None:
            first()
        while (answer := _popped(self._done)) is not None:
            self._loop.call_soon(answer)


def _work(batches: SimpleQueue[_Batch | None]) -> None:
    while (batch := batches.get()) is not None:
        batch.make()


def _outcome(work: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return work(), None
    except BaseException as error:  # whatever it is belongs to the one who asked
        return None, error


def _popped(left: deque[T]) -> T | None:
    """The first; no other thread gets it."""
    try:
        return left.popleft()
    except IndexError:
        return None


def _drained(batches: SimpleQueue[_Batch | None]) -> list[_Batch]:
    found = []
    with suppress(Empty):
        while (batch := batches.get_nowait()) is not None:
            found.append(batch)
    return found


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
