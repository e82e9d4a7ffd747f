"""
Ranks that compute, though of their counters none but processor time shows it. Pure.

All of them do that all use a processor, where such ranks sleep while they wait for others: then none waits.

One that evaluates alone, while the others wait for it, often touches no new memory and reads no file, and so looks
like one that is caught in a loop. But it is found in compiled code, as of torch, which does not hold the lock of the
interpreter; or its main thread in one function of a package after the other. A loop that waits for something is in the
program's own code and in that of the standard library, and holds the lock unless it calls the kernel.

Neither is a proof: a silence only has to last longer before it is reported.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

COUNTS_FOR = 30.0
"""Seconds of a look. A rank that falls asleep is looked at no more, and does not compute for ever."""
ALL_COUNT_FOR = 10.0
"""Seconds of a sample in which all use a processor: one of them may pause for a moment."""
FUNCTIONS = 3
"""Of packages: in so many different ones a rank is seen that computes."""
FEWEST_LOOKS = 6
"""By which a rank is seen that computes in compiled code: in half of them at least."""
LOOKS_TAKE = 5.0
"""Seconds from the first look until they tell whether a rank computes."""
LOOK_EVERY = 1.0
LOOK_AGAIN = 6.0
"""The same, once one is known to compute."""


class Look(NamedTuple):
    """Where a rank was, whose main thread did not wait for others alone."""

    at: float
    function: Hashable | None
    """Of a package. It is equal for looks that show the same one."""
    is_native: bool
    """It used a processor in compiled code, and would have been asleep if it had waited."""


class ComputingRanks:
    """
    In one pause: when all computed, and what looks at ranks lately showed. Times are the seconds of the pause so far: a
    clock that is set says nothing.
    """

    def __init__(self) -> None:
        self._seen: dict[str, list[Look]] = {}
        self._begun_at = -LOOK_AGAIN
        self.known_at = 0.0
        """When looks tell whether a rank computes. 0: none was begun."""
        self._all_at = -ALL_COUNT_FOR

    def all_compute(self, at: float) -> None:
        """None of the ranks waits."""
        self._all_at = at

    def saw(self, rank: str, look: Look) -> None:
        """A look at *rank*."""
        self._seen[rank] = [*_newest(self._seen.get(rank, ()), look.at), look]

    def any_at(self, at: float) -> bool:
        """Whether one of them computes."""
        return at - self._all_at < ALL_COUNT_FOR or any(_computes(_newest(looks, at)) for looks in self._seen.values())

    def begin_looks(self, at: float) -> bool:
        """Whether it is time for the next looks. They begin then."""
        if at - self._begun_at < (LOOK_AGAIN if self.any_at(at) else LOOK_EVERY):
            return False
        self._begun_at = at
        self.known_at = self.known_at or at + LOOKS_TAKE
        return True


def _newest(looks: Sequence[Look], at: float) -> list[Look]:
    return [look for look in looks if at - look.at < COUNTS_FOR]


def _computes(looks: Sequence[Look]) -> bool:
    functions = {look.function for look in looks if look.function is not None}
    native = sum(look.is_native for look in looks)
    return len(functions) >= FUNCTIONS or (len(looks) >= FEWEST_LOOKS and 2 * native >= len(looks))
