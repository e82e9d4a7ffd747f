"""
How one member writes, by which a save differs from its steps.

No rhythm is learned from a save: beside that, the wait at the end of the save would be a silence.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf

from healthd.core.hang.rhythm import MUCH_IO, WINDOW, Rhythm
from healthd.core.hang.samples import Rates, SampleRing

LONG = 45.0
"""Seconds of writing, after which a rhythm is learned from later samples alone: they would be most of a window."""
LONGEST = timedelta(minutes=10).total_seconds()
"""Seconds: a member that writes for longer without a pause writes as its usual work."""
LONGEST_OF_START = float(WINDOW)
"""Seconds from the beginning of a save for which it may go on before a rhythm is known. A member that had made no step
before it may write in each of its steps, as gloo does, or loaders that send their batches through a pipe."""
LITTLE = 4096.0
"""Bytes a second that are no save, however little is usual."""


class Saving:
    """What one member writes, by its newest sample, and for how long it has written much more than usual."""

    def __init__(self) -> None:
        self.wrote_much = False
        self.may_save = False
        """Its rhythm is not known, and it writes much more than before the save that has begun."""
        self._wrote_before = inf
        """Bytes a second, at most, before the newest save that began while its rhythm was not known."""
        self._since_then = 0.0
        """Seconds since that save began."""
        self._seconds = 0.0

    @property
    def goes_on(self) -> bool:
        """Whether its newest samples are of a save, from which nothing is to be learned."""
        return 0 < self._seconds <= LONGEST

    def begins(self, ring: SampleRing, rhythm: Rhythm | None) -> None:
        """Before its rhythm is known, what it wrote before a save is all that tells the save from its steps."""
        if rhythm is None:
            self._wrote_before, self._since_then = max(ring.newest("written")[:-1], default=inf), 0.0

    def clear(self) -> None:
        """Nothing is known of the newest moment."""
        self.wrote_much = self.may_save = False

    def observe(self, sample: Rates, rhythm: Rhythm | None, seconds: float) -> bool:
        """Take a sample. Returns whether a long save was over before it."""
        if rhythm is None:
            self._since_then += seconds
            is_young = self._since_then <= LONGEST_OF_START
            self.may_save = is_young and sample.written > max(2 * self._wrote_before, MUCH_IO)
        else:
            self.wrote_much = sample.written > max(2 * rhythm.highest.written, LITTLE)
        if self.may_save or (self.wrote_much and sample.written >= MUCH_IO):
            self._seconds += seconds
            return False
        lasted, self._seconds = self._seconds, 0.0
        return LONG <= lasted <= LONGEST
