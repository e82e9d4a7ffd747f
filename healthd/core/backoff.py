"""Exponential backoff with jitter: the delay before a failed call is retried."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

Jitter = Callable[[], float]
"""Returns a random number from 0 to 1."""


def no_jitter() -> float:
    """No jitter: for a small number of callers."""
    return 0.0


class Backoff:
    """
    Delays that double from *first* up to *longest*.

    *jitter* shortens each delay by up to half, so that ten thousand clients do not retry at the same moment.
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
        """The call succeeded: the delay after the next failure is *first* again."""
        self._failures = 0
