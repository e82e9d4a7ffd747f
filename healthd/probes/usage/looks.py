"""
Looks at what main threads wait for, many times a second.

They are taken by a thread of its own: a turn of the event loop costs several times as much as the looks at eight ranks.
And a look at a process that hangs in a driver may not return. Then own waits are not known any more, and all else goes
on.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from healthd.core.hang.work.own_waits import SELDOM

_DICE = random.Random()
"""Of its own: a thread that draws from the dice of all others takes their results away."""


class Looked(Protocol):
    """What can be looked at."""

    def look(self, now: float) -> None:
        """*now* is in seconds, of a clock that never goes back."""
        ...


class Looks:
    """At all of `looked_at`, from `start` to `stop`."""

    def __init__(self) -> None:
        self.looked_at: Sequence[Looked] = ()
        self.every = SELDOM
        """Seconds."""
        self.until = math.inf
        """After that time of the monotonic clock nothing is looked at, until it is set anew."""
        self._is_stopped = threading.Event()

    def start(self) -> None:
        """Begin. It ends with the process, too."""
        threading.Thread(target=self._run, name="looks at main threads", daemon=True).start()

    def stop(self) -> None:
        """Take no further look, once the present one is over."""
        self._is_stopped.set()

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            time.sleep(pause(self.every))  # an Event that is waited for costs more
            for each in self.looked_at:
                if (now := time.monotonic()) < self.until:
                    each.look(now)


def pause(every: float) -> float:
    """Seconds until the next look, half of *every* more or less: else steps of that length would all look alike."""
    return every * (0.5 + _DICE.random())
