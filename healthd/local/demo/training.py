"""
What the trainer's own output tells: steps, losses, and what each interruption cost. Pure; times are passed in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

_STEP = re.compile(r"step (\d+) loss ([\d.]+)")
_SAVED = re.compile(r"saved step-0*(\d+)")
_RESUMED = re.compile(r"resumed from step (\d+)")


class Point(NamedTuple):
    """One step that was done."""

    at: datetime
    step: int
    loss: float


@dataclass(slots=True)
class Attempt:
    """What one attempt did. *resumed* is the step that it began from."""

    resumed: int = 0
    points: list[Point] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)

    @property
    def step(self) -> int:
        """How far it came."""
        return self.points[-1].step if self.points else self.resumed


@dataclass(slots=True)
class Training:
    """All attempts so far, by number."""

    attempts: dict[int, Attempt] = field(default_factory=dict)

    def take_in(self, attempt: int, line: str, at: datetime) -> None:
        """One line of rank 0, read at *at*; lines of other kinds say nothing."""
        known = self.attempts.setdefault(attempt, Attempt())
        if match := _STEP.fullmatch(line):
            known.points.append(Point(at, int(match[1]), float(match[2])))
        elif match := _SAVED.fullmatch(line):
            known.saved.append(int(match[1]))
        elif match := _RESUMED.fullmatch(line):
            known.resumed = int(match[1])

    @property
    def present(self) -> Attempt:
        """The newest attempt."""
        return self.attempts[max(self.attempts)] if self.attempts else Attempt()

    def has_saved(self, attempt: int, step: int) -> bool:
        """Whether *attempt* has written the checkpoint of *step*."""
        return attempt in self.attempts and step in self.attempts[attempt].saved

    def lost_steps(self, attempt: int) -> int:
        """How many steps had to be done again because *attempt* began."""
        before = self.attempts.get(attempt - 1)
        return max(0, before.step - self.attempts[attempt].resumed) if before and attempt in self.attempts else 0

    @property
    def all_lost_steps(self) -> int:
        """Steps that had to be done again, over all attempts."""
        return sum(self.lost_steps(attempt) for attempt in self.attempts)

    @property
    def lost_time(self) -> timedelta:
        """How long training was not beyond where it had been: over all interruptions, from one new step to the next."""
        lost = timedelta(0)
        furthest: Point | None = None
        for _, attempt in sorted(self.attempts.items()):
            beyond = next((p for p in attempt.points if furthest is None or p.step > furthest.step), None)
            if beyond is None:
                continue
            lost += beyond.at - furthest.at if furthest else timedelta(0)
            furthest = attempt.points[-1]
        return lost
