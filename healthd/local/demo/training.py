"""
Reads the trainer's output: steps, losses, and the cost of each interruption. Pure; times are arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

_STEP = re.compile(r"step (\d+) loss ([\d.]+)")
_SAVED = re.compile(r"saved step-0*(\d+)")
_RESUMED = re.compile(r"resumed from step (\d+)")


class CompletedStep(NamedTuple):
    """One completed step."""

    at: datetime
    step: int
    loss: float


@dataclass(slots=True)
class TrainingAttempt:
    """The progress of one attempt. *resumed* is the step that it started from."""

    resumed: int = 0
    points: list[CompletedStep] = field(default_factory=list)
    saved: list[int] = field(default_factory=list)

    @property
    def step(self) -> int:
        """The last step that it reached."""
        return self.points[-1].step if self.points else self.resumed


@dataclass(slots=True)
class Training:
    """All attempts so far, by number."""

    attempts: dict[int, TrainingAttempt] = field(default_factory=dict)

    def take_in(self, attempt: int, line: str, at: datetime) -> None:
        """Read one line of rank 0, received at *at*. Lines of other kinds are ignored."""
        known = self.attempts.setdefault(attempt, TrainingAttempt())
        if match := _STEP.fullmatch(line):
            known.points.append(CompletedStep(at, int(match[1]), float(match[2])))
        elif match := _SAVED.fullmatch(line):
            known.saved.append(int(match[1]))
        elif match := _RESUMED.fullmatch(line):
            known.resumed = int(match[1])

    @property
    def present(self) -> TrainingAttempt:
        """The newest attempt."""
        return self.attempts[max(self.attempts)] if self.attempts else TrainingAttempt()

    def has_saved(self, attempt: int, step: int) -> bool:
        """Whether *attempt* has written the checkpoint of *step*."""
        return attempt in self.attempts and step in self.attempts[attempt].saved

    def lost_steps(self, attempt: int) -> int:
        """How many steps were repeated because *attempt* started."""
        before = self.attempts.get(attempt - 1)
        return max(0, before.step - self.attempts[attempt].resumed) if before and attempt in self.attempts else 0

    @property
    def all_lost_steps(self) -> int:
        """Repeated steps, over all attempts."""
        return sum(self.lost_steps(attempt) for attempt in self.attempts)

    @property
    def lost_time(self) -> timedelta:
        """
        How long training was behind the step that it had already reached: over all interruptions, from one new step to
        the next.
        """
        lost = timedelta(0)
        furthest: CompletedStep | None = None
        for _, attempt in sorted(self.attempts.items()):
            beyond = next((p for p in attempt.points if furthest is None or p.step > furthest.step), None)
            if beyond is None:
                continue
            lost += beyond.at - furthest.at if furthest else timedelta(0)
            furthest = attempt.points[-1]
        return lost
