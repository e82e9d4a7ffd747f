"""Exponential backoff with jitter: how long to wait before a failed call is tried again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

Jitter = Callable[[], float]
"""Draws from 0 to 1."""


def no_jitter() -> float:
    """No jitter: for callers that are few."""
    return 0.0


class Backoff:
    """
    Delays that double from *first* up to *longest*.

    *jitter* takes up to half of each delay away, so that ten thousand clients do not retry in the same moment.
    """

    def __init__(self, first: timedelta, longest: timedelta, jitter: Jitter) -> None:
        self._first = first
        self._longest = longest
        self._jitter = jitter
        self._failures = 0

    def next(self) -> timedelta:
        """The delay after one more failure."""
        delay = min(self._longest, self._first * (1 << min(self._failures, 20)))
        self._failures += 1
        return delay * (1 - self._jitter() / 2)

    def reset(self) -> None:
        """The call succeeded: the next failure waits *first* again."""
        self._failures = 0
