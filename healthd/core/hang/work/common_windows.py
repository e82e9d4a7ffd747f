"""
The windows of the ranks of a gang, as agents publish them now and then: put together, one after the other.

An agent publishes windows soon when its pod works more or less than before, and else every few minutes. A window is
compared once it is known of all ranks. One that stays unknown of some is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from healthd.core.hang.work.published_windows import end_of
from healthd.core.node.reporting import WORK_AFTER

KNOWN_FOR = WORK_AFTER + timedelta(minutes=2)
"""How long what an agent published of a pod counts: one that lives writes again before that."""
AHEAD = timedelta(seconds=30)
"""Windows that end so much later than now are of a clock that is wrong."""
KEPT = 80
"""Windows of a gang: 20 minutes, where steps are short."""

W = TypeVar("W")


class CommonWindow(NamedTuple, Generic[W]):
    """What all ranks did in one window."""

    end: datetime
    windows: Mapping[str, W]
    """By rank."""


class CommonWindows(Generic[W]):
    """Those of one gang, each of so many *seconds*."""

    def __init__(self, ranks: Iterable[str], seconds: int) -> None:
        self._seconds = seconds
        self._known: dict[str, dict[int, W]] = {rank: {} for rank in ranks}
        """Windows that are to be compared, by number."""
        self._next = 0

    def take(self, rank: str, windows: Mapping[int, W], now: datetime) -> None:
        """Those of *rank* that are published now, by number."""
        known = self._known[rank]
        known.update(windows)
        oldest = max(self._next, self._oldest(now))
        for number in [number for number in known if number < oldest]:
            del known[number]

    def next(self, now: datetime) -> CommonWindow[W] | None:
        """The next window that is known of all. None: there is none yet."""
        if not all(self._known.values()):
            return None
        first = max(min(known) for known in self._known.values())
        self._next = max(self._next or first, self._oldest(now))  # whatever an agent says of long ago
        while (end := end_of(self._next, self._seconds)) <= now:
            number, age = self._next, now - end
            windows = {rank: known[number] for rank, known in self._known.items() if number in known}
            if len(windows) < len(self._known) and age < KNOWN_FOR:
                return None
            self._next += 1
            if len(windows) == len(self._known):
                return CommonWindow(end, windows)
        return None

    def _oldest(self, now: datetime) -> int:
        return int(now.timestamp()) // self._seconds - KEPT
