"""
What the main threads of some processes wait for, while this is asked for again and again. For the component
`hang-evidence`, which is asked about the ranks of pods that work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from healthd.core.hang.work.own_waits import NEWEST, NOTABLE, OFTEN, SELDOM
from healthd.probes.usage.looks import Looks
from healthd.probes.usage.main_thread import MainThread

ASKED_FOR_S = 60.0
"""How long they are looked at after a question. A step may take longer than the few seconds between two questions."""


class MainThreadWaits:
    """It looks at the processes that it follows, by a thread of its own."""

    def __init__(
        self, proc: str = "/proc", now: Callable[[], float] = time.monotonic, looks: Looks | None = None
    ) -> None:
        self._proc = proc
        self._now = now
        self._looks = looks or Looks()
        self._threads: dict[int, MainThread] = {}
        self._is_looking = False
        self._before: tuple[float, Mapping[int, float]] | None = None
        """When the pace of the looks was chosen last, and how long each had waited by then."""

    def follow(self, pids: Collection[int]) -> Mapping[int, float]:
        """
        Look at these from now on, and at no others. For how many seconds each has waited for something of its own,
        since it was first looked at.
        """
        self._threads = {pid: self._threads.get(pid) or MainThread(f"{self._proc}/{pid}") for pid in pids}
        waits = {pid: thread.own_waits for pid, thread in self._threads.items()}
        self._looks.looked_at = tuple(self._threads.values())
        self._looks.until = self._now() + ASKED_FOR_S
        self._choose_pace(waits)
        if not self._is_looking:
            self._looks.start()
            self._is_looking = True
        return waits

    def _choose_pace(self, waits: Mapping[int, float]) -> None:
        """By the newest half minute: a look costs little, and waking up for it costs most of it."""
        now = self._now()
        if self._before is not None and 0 <= now - self._before[0] < NEWEST:
            return
        before, self._before = self._before, (now, waits)
        if before is not None:
            passed, known = now - before[0], before[1]
            grown = (waited - known[pid] for pid, waited in waits.items() if pid in known)
            self._looks.every = OFTEN if any(each >= NOTABLE * passed for each in grown) else SELDOM
