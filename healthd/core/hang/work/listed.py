"""What an agent lists of those that are slow on its node, for the controller: the newest ones, with their ends."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta
from typing import Generic, Protocol, TypeVar

from healthd.core.api.health import MOST_SLOW_RANKS

ENDED_FOR = timedelta(minutes=15)
"""How long one is listed that is over: until then a controller has read it."""


class Slow(Protocol):
    """A process or a GPU that others wait for."""

    @property
    def since(self) -> datetime: ...

    @property
    def ended_at(self) -> datetime | None: ...


T = TypeVar("T", bound=Slow)


class Listed(Generic[T]):
    """From nothing. Those that are over make room for others first."""

    def __init__(self) -> None:
        self._slow: dict[Hashable, T] = {}

    @property
    def newest(self) -> Sequence[T]:
        """Those that were slow last."""
        return [*self._slow.values()]

    def note(self, name: Hashable, slow: T) -> None:
        """*slow* is what is known of *name* now."""
        self._slow.pop((name, slow.since), None)
        self._slow[name, slow.since] = slow
        if len(self._slow) > MOST_SLOW_RANKS:
            over = (key for key, each in self._slow.items() if each.ended_at is not None)
            del self._slow[next(over, next(iter(self._slow)))]

    def forget_ended(self, now: datetime) -> None:
        """Those that ended long ago, or in a time that is yet to come: the clock was set back."""
        self._slow = {
            key: each
            for key, each in self._slow.items()
            if each.ended_at is None or abs(now - each.ended_at) <= ENDED_FOR
        }
