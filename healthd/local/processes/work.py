"""
Whether the processes of a rank do any work, by the processor time that they use: a rank may print nothing.

A rank that waits for a missing rank uses almost none. A rank that trains uses much, also when a GPU does the work: the
processor has to feed the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from healthd.local.processes.shim import descendants
from healthd.probes.process_stat import read_stat

POLL_EVERY = timedelta(seconds=30)
"""Between samples: the result matters over tens of minutes."""
WORKS = 0.05
"""
Of one core, on average between two samples. A rank that waits in `init_process_group` uses a few hundredths at most.
"""


def processor_time(root: int) -> float:
    """Processor seconds that the descendants of process *root* have used, and those of their reaped children."""
    return sum(map(_seconds, descendants(root)))


class Work:
    """When a rank was last seen at work. Its start counts."""

    def __init__(self, now: datetime) -> None:
        self.last = now
        self._polled = now
        self._used = 0.0

    def poll(self, now: datetime, used: Callable[[], float]) -> None:
        """
        Compare with the last sample, when it is time for one.

        *used* may be less than before: a process has ended since, which is also a sign of work.
        """
        passed = now - self._polled
        if timedelta(0) <= passed < POLL_EVERY:
            return
        before, self._used, self._polled = self._used, used(), now
        if self._used < before or self._used - before >= WORKS * passed.total_seconds():
            self.last = now


def _seconds(pid: int) -> float:
    stat = read_stat(pid)
    return stat.cpu + stat.reaped_cpu if stat is not None else 0.0
