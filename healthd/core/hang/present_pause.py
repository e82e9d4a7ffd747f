"""The present time in which a gang shows no work: which of its members use a processor meanwhile, and compute. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from healthd.core.hang.computing import ComputingRanks
from healthd.core.hang.member import MemberRhythm

MOST_SETS = 16
"""Sets of polling members whose times are kept. In a hang of many ranks each second may show another one."""


class _Excused(NamedTuple):
    """A sample that was allowed only because of what the polling members did."""

    seconds: float
    polled: frozenset[str]


class PresentPause:
    """One pause. Times are its seconds so far."""

    def __init__(self) -> None:
        self.polled = frozenset[str]()
        """The members that poll, by the newest sample."""
        self.computing = ComputingRanks()
        self._polled_for = Counter[frozenset[str]]()
        self._excused: _Excused | None = None

    def add(self, members: Mapping[str, MemberRhythm], seconds: float) -> None:
        """Take a sample of the members, by rank."""
        self.polled = frozenset(rank for rank, member in members.items() if member.polls)
        self._count(self.polled)
        if len(members) > 1 and all(member.computes for member in members.values()):
            self.computing.all_compute(seconds)

    def _count(self, polled: frozenset[str]) -> None:
        """The rarest one makes room."""
        if polled not in self._polled_for and len(self._polled_for) == MOST_SETS:
            del self._polled_for[min(self._polled_for, key=self._polled_for.__getitem__)]
        self._polled_for[polled] += 1

    @property
    def counted(self) -> int:
        """How many sets of polling members are kept."""
        return len(self._polled_for)

    @property
    def mostly_polled(self) -> frozenset[str]:
        """The members that polled for most of it: an evaluation may ask a service for a moment, and end so."""
        return max(self._polled_for, key=self._polled_for.__getitem__, default=self.polled)

    def excuse(self, seconds: float) -> None:
        """It is longer than the rhythm allows, and no silence, because of what the polling members do."""
        self._excused = _Excused(seconds, self.polled)

    @property
    def excused_until(self) -> float:
        """Time in which other members polled, and that was allowed, is none of a silence in which these do. 0: none."""
        if self._excused is None or self._excused.polled == self.polled:
            return 0.0
        return self._excused.seconds
