"""
How much of a processor, or of its GPUs, a member used in its life, minute by minute: what is usual for minutes may be
rare in a day.

A compilation is steady for minutes, and so is a pause. A rhythm beside which most of the member's own life would be
silence is not what is usual for it.
"""

from __future__ import annotations

from array import array
from math import floor, log2

MINUTE = 60.0
FULL = 4 * 3600.0
"""Seconds that count. Beyond that what is older counts half, and so on: a job may change for good."""
LEVELS = 24
LOWEST = -12
"""Levels are powers of two: from 2^-12 cores to 2^11."""


class Past:
    """The seconds that a member spent at each level of use. About 200 bytes."""

    def __init__(self) -> None:
        self._seconds = array("f", [0.0] * LEVELS)
        self._open_seconds = 0.0
        self._open_used = 0.0

    def add(self, used: float, seconds: float) -> None:
        """It used so many cores in the mean of so many *seconds*. A step may be shorter than a minute, or longer."""
        self._open_seconds += seconds
        self._open_used += used * seconds
        if self._open_seconds < MINUTE:
            return
        self._seconds[_level(self._open_used / self._open_seconds)] += self._open_seconds
        self._open_seconds = self._open_used = 0.0
        if sum(self._seconds) > FULL:
            self._seconds = array("f", [each / 2 for each in self._seconds])

    def is_mostly_below(self, used: float) -> bool:
        """Whether it spent more time below so many cores than above. A level that *used* is in counts as below."""
        below = sum(self._seconds[: _level(used) + 1])
        return below > sum(self._seconds) - below


def _level(used: float) -> int:
    if used <= 2.0**LOWEST:
        return 0
    return floor(log2(min(used, 2.0 ** (LOWEST + LEVELS - 1)))) - LOWEST
