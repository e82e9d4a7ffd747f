"""
Coroutines taken one turn at a time, with no event loop: what asks the cluster may have to wait for others.

The embedded cluster answers at once, so the only place where an actor can be overtaken is `TURN`, which `FaultyCluster`
awaits before each call. Who goes on then is the schedule's choice, and the same seed chooses the same.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Crashed(BaseException):
    """The process of this actor was killed here. Not an Exception: nothing may catch it and go on."""


class _Turn:
    def __await__(self) -> Generator[None, None, None]:
        yield


TURN = _Turn()


def at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits for anybody."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("this coroutine waits, but nothing would wake it")


class Actor:
    """
    One program of the simulation: a life that begins anew after each crash, and a round of it that may be under way.

    *start* answers what one round of the new life's loop is. What is *beside* it is of the same life: it ends with it.
    """

    beside: Actor | None = None

    def __init__(self, name: str, start: Callable[[], Callable[[], Coroutine[Any, Any, Any]]]) -> None:
        self.name = name
        self._start = start
        self._round: Callable[[], Coroutine[Any, Any, Any]] | None = None
        self._under_way: Coroutine[Any, Any, Any] | None = None
        self.crashes = 0

    @property
    def is_under_way(self) -> bool:
        """It was overtaken in the middle of a round."""
        return self._under_way is not None

    @property
    def lives(self) -> bool:
        """It has begun, and has not crashed since."""
        return self._round is not None

    def go(self, may_pause: Callable[[], bool]) -> str:
        """Take turns until the round is over, it crashes, or *may_pause* says that others go first."""
        if self._round is None:
            self._round = self._start()
        if self._under_way is None:
            self._under_way = self._round()
        try:
            while True:
                self._under_way.send(None)
                if may_pause():
                    return "paused"
        except StopIteration:
            self._under_way = None
            return "done"
        except Crashed:
            self.crash()
            return "crashed"
        except Exception:
            self._under_way = None
            raise

    def crash(self) -> None:
        """Lose everything that this life knew."""
        if self.beside is not None:
            self.beside.crash()
        if self._under_way is not None:
            self._under_way.close()
        self._under_way = self._round = None
        self.crashes += 1
