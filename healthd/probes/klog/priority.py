"""
The scheduling priority of the thread that reads the kernel log: it sleeps when calm, and runs first in a burst.

A 128 KiB ring holds some 1,300 records, which two writers overwrite in 4 ms. A thread that waits for the log is woken
at the next scheduler tick, 4 ms late or more. So in a flood the reader must wait neither for the tick nor for its turn.
Both are expensive for other threads, so they last only as long as the flood, and less and less.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Protocol

WINDOW = 0.004
"""Seconds; one tick of a kernel with HZ=250."""
FLOOD = 400
"""Records in one WINDOW (100,000 a second) from which sleeping until the next tick can lose records."""
LULL = 0.02
"""Seconds without such a window after which a flood counts as paused: its writers pause for a few ms at a time."""
WATCH = 1.0
"""Seconds without such a window after which it is over. Writers that wait for a processor resume at full rate."""
GLANCE = 0.0005
"""Seconds between two reads in such a pause. 450,000 lines a second fill a sixth of the ring in that time."""
BURST = 64
"""Records in one wake-up from which the thread requests real-time priority."""
SPIN_LIMIT = 0.5
"""
Seconds of flood without a pause. Beyond 0.95 of a second the kernel stops real-time threads for 50 ms, and 50 ms are
long enough to overwrite the ring twenty times.
"""
PACE = 0.00005
"""Seconds of pause between reads in a longer flood: the machine must still work."""
CALM = 0.1
"""Seconds without a burst after which the priority is given back."""


_REALTIME = frozenset({os.SCHED_FIFO, os.SCHED_RR})


class Priority(StrEnum):
    """The priority that the scheduler granted the reader."""

    REALTIME = "realtime"
    NICE = "nice"
    NORMAL = "normal"


class Scheduling(Protocol):
    """The scheduling requests of a thread for itself. False means refused."""

    def head_start(self) -> bool:
        """Run a little before ordinary work."""
        ...

    def realtime(self) -> bool:
        """Run before all ordinary work."""
        ...

    def ordinary(self) -> None:
        """Give `realtime` back."""
        ...


class ThreadScheduling:
    """
    Makes the requests to Linux for the calling thread (0 means the thread there, not the process). Needs CAP_SYS_NICE
    or rlimits.

    The process's main thread is raised with it: while the main thread holds the interpreter's lock, no other thread may
    delay it. Otherwise the reader waits for the flood's writers after all.
    """

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, os.sched_param]] = {}

    def head_start(self) -> bool:
        """Nice -20."""
        return _granted(lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))

    def realtime(self) -> bool:
        """SCHED_RR at its lowest priority: enough to run before everything that is not real-time itself."""
        return all(_granted(partial(self._raise, thread)) for thread in (0, os.getpid()))

    def ordinary(self) -> None:
        """Give each thread its earlier scheduling class back. The nice value stays."""
        for thread, (policy, parameters) in self._before.items():
            _granted(partial(os.sched_setscheduler, thread, policy, parameters))
        self._before.clear()

    def _raise(self, thread: int) -> None:
        policy = os.sched_getscheduler(thread)
        if policy & ~os.SCHED_RESET_ON_FORK in _REALTIME:
            return
        before = policy, os.sched_getparam(thread)
        # No child may inherit the real-time class by accident. A thread with the flag cannot lose it without privilege.
        os.sched_setscheduler(thread, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        self._before[thread] = before


class AdaptivePriority:
    """
    Decides between sleeping and spinning by the recent number of records, and holds the thread's priority.

    All methods are called on the reading thread. *now*: seconds of a clock that never steps.
    """

    def __init__(self, scheduling: Scheduling, *, now: Callable[[], float] = time.monotonic) -> None:
        self._scheduling = scheduling
        self._now = now
        self._window_start = now()
        self._in_window = 0
        self._flood_start: float | None = None
        self._last_flooded = now()
        self._last_burst = now()
        self._is_urgent = False
        self._has_caught_up = False
        self.priority = Priority.NORMAL
        """The best priority that was granted so far."""

    def begin(self) -> None:
        """Request the standing priority."""
        if self._scheduling.head_start():
            self.priority = Priority.NICE

    def woke(self) -> None:
        """The source has data after a sleep."""
        self._window_start, self._in_window = self._now(), 0

    def read(self, count: int) -> None:
        """*count* records were read in one go. The old records of the first read do not raise the priority."""
        if not self._has_caught_up:
            return
        self._in_window += count
        if self._in_window >= BURST:
            self._last_burst = self._now()
            self._hurry()

    def breath(self) -> float | None:
        """Called when the source is empty: seconds until it must be read again, or None: wait until it has data."""
        self._has_caught_up = True
        now = self._now()
        self._note_flood(now)
        if self._flood_start is None:
            if now - self._last_burst >= CALM:
                self.calm()
            return None
        if now - self._last_flooded >= LULL:
            return GLANCE
        return 0.0 if now - self._flood_start < SPIN_LIMIT else PACE

    def patience(self) -> float | None:
        """The longest sleep, in seconds. None: no limit, because there is no priority to give back."""
        return CALM if self._is_urgent else None

    def calm(self) -> None:
        """The burst is over, or reading has ended: give the priority back."""
        if self._is_urgent:
            self._is_urgent = False
            self._scheduling.ordinary()

    def _hurry(self) -> None:
        if not self._is_urgent:
            self._is_urgent = True
            if self._scheduling.realtime():
                self.priority = Priority.REALTIME

    def _note_flood(self, now: float) -> None:
        if self._in_window >= FLOOD:
            self._last_flooded = now
            self._flood_start = now if self._flood_start is None else self._flood_start
        elif now - self._last_flooded >= WATCH:
            self._flood_start = None
        if now - self._window_start >= WINDOW:
            self._window_start, self._in_window = now, 0


def _granted(ask: Callable[[], None]) -> bool:
    try:
        ask()
    except OSError:
        return False
    return True
