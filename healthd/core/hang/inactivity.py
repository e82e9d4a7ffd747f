"""
For how long a gang that hangs has done next to nothing.

Less than a fifth of what is usual counts as silence, and is reported. An evaluation may use no more than that for
hours, and print its progress meanwhile. A gang that hangs and prints, if only that it tries again, uses far less.
"""

from __future__ import annotations

from datetime import timedelta
from math import isnan, nan

from healthd.core.hang.member import MemberRhythm
from healthd.core.hang.rhythm import NOISE
from healthd.core.hang.silence import GangRhythm

MINUTE = 60
"""Samples, of one a second. Background threads wake up more rarely than once a second, and do little in a minute."""
LEFT = 0.05
"""Of what is usual. A fifth of it is silence."""
_TELL_NOTHING = frozenset({"cpu", "calls", "gpu"})
"""A member that polls uses a processor, and output causes calls of its own. GPUs are judged alone."""


class Inactivity:
    """Whole minutes of one hang, in each of which every member did next to nothing."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._judged = 0.0
        """In seconds without work, as `MemberRhythm.quiet` counts them. So unseen time and changes of the clock do not
        count."""

    def observe(self, gang: GangRhythm, *, hangs: bool) -> None:
        """After each sample of *gang*."""
        if not hangs or not gang.members:
            self._began = None
            return
        members = gang.members.values()
        quiet = min(member.quiet for member in members)
        if self._began is None:
            self._began = self._judged = quiet
        if quiet - self._judged < MINUTE:
            return
        self._judged = quiet
        if not all(map(_is_inactive, members)):
            self._began = quiet

    @property
    def lasts(self) -> timedelta | None:
        """For how long. None: the gang does not hang."""
        return timedelta(seconds=self._judged - self._began) if self._began is not None else None


def _is_inactive(member: MemberRhythm) -> bool:
    """
    Whether more than half of what is usual for it beside its processor time has stopped: one that polls uses a
    processor, and nothing else. One that evaluates at a lower level does a little of everything.

    Where it is known what its GPUs do, that alone tells.
    """
    if member.rhythm is None:
        return False
    usual = member.rhythm.means
    used = {name: _mean_of_minute(member, name) for name in usual}
    tell = [name for name in usual if name not in _TELL_NOTHING] or [name for name in usual if name == "cpu"]
    if not isnan(used.get("gpu", nan)):
        tell = ["gpu"]
    stopped = sum(used[name] < max(LEFT * usual[name], NOISE[name]) for name in tell)
    return 2 * stopped > len(tell)


def _mean_of_minute(member: MemberRhythm, name: str) -> float:
    """NaN: it is not known in any of its samples."""
    values = [value for value in member.ring.newest(name, MINUTE) if not isnan(value)]
    return sum(values) / len(values) if values else nan
