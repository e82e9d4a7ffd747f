"""
Whether the members of a gang step in a window, or wait: mostly for rank 0, which evaluates and saves for all.

What they usually do is learned from pauses, too, but not as soon: a job whose work has become less for good makes no
pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import NamedTuple

from healthd.core.hang.work.compared_member import LONG, SHORT, Span
from healthd.core.hang.work.work_share import ShareWindow

PAUSED = 0.33
"""Of the usual share of all members: below it they do not step. One of them evaluates or saves, and the others wait."""
PAUSED_IN_PART = 0.5
"""The same, where they do not step for a part of the window."""
LEVEL, LEVEL_OF_PAUSES = 300.0, 1200.0
"""
Seconds after which a new usual share of all members is known, and the same where it would be such a pause. Less where
the share was known for less: what came before a pause of an hour may be a compilation of minutes.
"""


class UsualWork:
    """The usual share of all members of a gang."""

    def __init__(self) -> None:
        self._level = 0.0
        self._known_for = 0.0
        """Seconds."""

    def part_of(self, shares: Iterable[float], seconds: float) -> float:
        """Which part of their usual work they do in a window of so many *seconds*. The lower middle one counts."""
        now = median_low(shares)
        usual = self._level or now
        part = now / usual if usual > 0 else 1.0
        after = LEVEL if part >= PAUSED_IN_PART else min(LEVEL_OF_PAUSES, max(LEVEL, self._known_for))
        self._level = usual + min(1.0, seconds / after) * (now - usual)
        self._known_for += seconds
        return part


class OfFirst(NamedTuple):
    """
    How rank 0 is judged, which evaluates and saves for all: by these *spans*, of the windows in which its peers do this
    part of their usual work at least.
    """

    spans: Sequence[Span]
    stepping: float


A_SHORT_WINDOW = 10.0
"""Seconds at most. Most pauses are longer, so it has either steps or one of them."""
BY_SHORT_WINDOWS = OfFirst((SHORT, LONG), stepping=PAUSED_IN_PART)
BY_LONG_WINDOWS = OfFirst((LONG,), stepping=0.8)
"""A short evaluation is a part of a window."""


def of_first(seconds: float) -> OfFirst:
    """By windows of so many *seconds*."""
    return BY_SHORT_WINDOWS if seconds <= A_SHORT_WINDOW else BY_LONG_WINDOWS


class BesidePauses:
    """
    Leaves out windows in which its peers wait for a member, as while rank 0 evaluates, and those next to them: it has
    done so for a part of these. So each window comes when the next one is known.
    """

    def __init__(self) -> None:
        self._held: tuple[float, ShareWindow] | None = None
        self._is_beside = False

    def next(self, excess: float, window: ShareWindow, *, is_pause: bool) -> tuple[float, ShareWindow] | None:
        """The window before this one, and the excess in it. None: it is left out."""
        held = None if is_pause else self._held
        self._held = None if is_pause or self._is_beside else (excess, window)
        self._is_beside = is_pause
        return held
