"""
Ranks that compute while all others wait for them, though of their counters none but processor time shows it. Pure.

A rank that evaluates alone often touches no new memory and reads no file, and so looks like one that is caught in a
loop. But its main thread is found in one function of torch or of another package after the other. A loop that waits for
something is in the program's own code and in that of the standard library. This is no proof: a silence only has to last
longer before it is reported.
"""

from __future__ import annotations

from collections.abc import Hashable

COUNTS_FOR = 30.0
"""Seconds of a look. A rank that falls asleep is looked at no more, and does not compute for ever."""
FUNCTIONS = 3
"""Of packages: in so many different ones a rank is seen that computes."""
LOOK_EVERY = 1.0
LOOK_AGAIN = 10.0
"""The same, once one is known to compute."""


class ComputingRanks:
    """
    In which functions of packages ranks were lately seen. Times are the seconds for which nothing but that was seen of
    the gang: a clock that is set says nothing.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[float, Hashable]]] = {}
        self._begun_at = -LOOK_AGAIN

    def saw(self, rank: str, function: Hashable, at: float) -> None:
        """The main thread of *rank* was in *function*, which is equal for looks that show the same one."""
        looks = [look for look in self._seen.get(rank, ()) if at - look[0] < COUNTS_FOR]
        self._seen[rank] = [*looks, (at, function)]

    def forget(self) -> None:
        """The gang has worked, or is another one. What comes is judged by later looks alone."""
        self._seen.clear()
        self._begun_at = -LOOK_AGAIN

    def any_at(self, at: float) -> bool:
        """Whether one of them computes."""
        return any(
            len({function for seen, function in looks if at - seen < COUNTS_FOR}) >= FUNCTIONS
            for looks in self._seen.values()
        )

    def begin_looks(self, at: float) -> bool:
        """Whether it is time for the next looks. They begin then."""
        if at - self._begun_at < (LOOK_AGAIN if self.any_at(at) else LOOK_EVERY):
            return False
        self._begun_at = at
        return True
