"""
How eagerly the thread that reads the kernel log runs: asleep when calm, before everybody else in a burst.

A 128 KiB ring holds some 1,300 records, which two writers overwrite in 4 ms. A sleeping reader wakes at the next
scheduler tick, up to 4 ms late; so in a flood it must neither sleep nor wait for its turn. Both cost: therefore only
while the flood lasts, and never longer than SPIN_LIMIT.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import StrEnum

WINDOW = 0.004
"""Seconds; one tick of a kernel with HZ=250."""
FLOOD = 256
"""Records in one WINDOW (64,000 a second) from which sleeping till the next tick risks the ring."""
BURST = 64
"""Records in one wake-up from which the thread asks to run first."""
SPIN_LIMIT = 10.0
"""Seconds of flood after which the reader sleeps between records all the same: the machine must still work."""
CALM = 0.1
"""Seconds without a record after which a burst is over."""


class Priority(StrEnum):
    """What the scheduler let the reader have."""

    REALTIME = "realtime"
    NICE = "nice"
    NORMAL = "normal"


class Urgency:
    """
    Decides between sleeping and spinning from how many records came lately, and holds the thread's priority.

    All methods are called on the thread that reads; priorities are per thread on Linux.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._window_start = now()
        self._in_window = 0
        self._flood_start: float | None = None
        self._urgent = False
        self.priority = Priority.NORMAL
        """The best that was granted so far."""

    def begin(self) -> None:
        """Ask for the standing priority: a small head start over ordinary work, when it is permitted."""
        if _granted(lambda: os.setpriority(os.PRIO_PROCESS, 0, -20)):
            self.priority = Priority.NICE

    def woke(self) -> None:
        """The source has something after a sleep."""
        self._window_start, self._in_window = self._now(), 0

    def read(self, count: int) -> None:
        """*count* records were read in one go."""
        self._in_window += count
        if self._in_window >= BURST and not self._urgent:
            self._hurry()

    def may_sleep(self) -> bool:
        """Asked when the source is dry: False while records come faster than a sleeper could follow."""
        now = self._now()
        if self._flood_start is None:
            self._flood_start = now if self._in_window >= FLOOD else None
        elif now - self._window_start >= WINDOW:
            self._flood_start = self._flood_start if self._in_window >= FLOOD else None
            self._window_start, self._in_window = now, 0
        return self._flood_start is None or now - self._flood_start > SPIN_LIMIT

    def patience(self) -> float | None:
        """How long to sleep before `calm`: for ever when there is no priority to give back."""
        return CALM if self._urgent else None

    def calm(self) -> None:
        """Nothing came for CALM seconds: the burst is over."""
        self._urgent = False
        _granted(lambda: os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0)))

    def _hurry(self) -> None:
        self._urgent = True
        if _granted(lambda: os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))):
            self.priority = Priority.REALTIME


def _granted(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except OSError:
        return False
    return True
