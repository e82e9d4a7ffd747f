"""How long a coroutine uses a processor itself, without what it waits for and what others do meanwhile."""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from typing import Any, TypeVar

A = TypeVar("A")
Counter = Callable[[], float]
"""Seconds that the thread has used a processor so far."""


class ProcessorTime:
    """Adds up what coroutines use. Tasks that they begin count for themselves."""

    def __init__(self, counter: Counter = time.thread_time) -> None:
        self._counter = counter
        self.used = timedelta(0)

    @types.coroutine
    def of(self, work: Coroutine[Any, Any, A]) -> Generator[Any, Any, A]:
        """The result of *work*, or what it raises."""
        resume: Callable[[Any], Any] = work.send
        sent: Any = None
        while True:
            began = self._counter()
            try:
                awaited = resume(sent)
            except StopIteration as done:
                result: A = done.value
                return result
            finally:
                self.used += timedelta(seconds=self._counter() - began)
            try:
                resume, sent = work.send, (yield awaited)
            except BaseException as error:  # a cancellation is for *work* to handle
                resume, sent = work.throw, error
