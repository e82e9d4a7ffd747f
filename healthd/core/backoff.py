"""How long to wait before something is tried again, when ten thousand others may have met the same trouble."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

Luck = Callable[[], float]
"""Draws from 0 to 1."""


def alone() -> float:
    """The luck of one of few, who meets no crowd when it comes back."""
    return 0.0


class Waits:
    """Waits that double from *first* up to *longest*; *luck* takes up to half of each away, so that nobody marches."""

    def __init__(self, first: timedelta, longest: timedelta, luck: Luck) -> None:
        self._first = first
        self._longest = longest
        self._luck = luck
        self._count = 0

    def next(self) -> timedelta:
        """The wait after one more failure."""
        wait = min(self._longest, self._first * (1 << min(self._count, 20)))
        self._count += 1
        return wait * (1 - self._luck() / 2)

    def restore(self) -> None:
        """It works again."""
        self._count = 0
