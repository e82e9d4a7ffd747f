"""
For how long healthd itself did not run: it was stopped (Ctrl-Z), or the machine slept.

What happened meanwhile was not seen, and most often nothing did: ranks sleep with the machine. So such time is not
held against them.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from healthd.clock import Clock

EVERY = timedelta(seconds=1)
LATE = timedelta(seconds=5)
"""A machine that is busy makes a second last longer than one, too."""
KEPT = 256


class Attention:
    """Notes each second that healthd runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newest = clock.now()
        self._missed: deque[tuple[datetime, datetime]] = deque(maxlen=KEPT)

    async def run(self) -> None:
        """Note it until cancelled."""
        while True:
            await self._clock.sleep(EVERY)
            self.note()

    def note(self) -> None:
        """healthd runs now. Whatever runs first after a sleep may say so."""
        now = self._clock.now()
        if now - self._newest > LATE:
            self._missed.append((self._newest, now))
        self._newest = now

    def missed_since(self, moment: datetime) -> timedelta:
        """The time from *moment* until now in which healthd did not run."""
        self.note()
        return sum((end - max(begin, moment) for begin, end in self._missed if end > moment), timedelta(0))
