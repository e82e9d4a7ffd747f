"""
Training progress from the steps of checkpoints, and how long a gang may be silent by its own rhythm.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from healthd.core.api import ChosenCheckpoint
from healthd.core.config import HangPolicy
from healthd.core.hang.silence import Silence, cannot_go_on
from healthd.core.untrusted import AttemptNumber, Moment, Step

KEPT_INTERVALS = 16
"""Enough to find the longest usual interval; small enough for an annotation."""

MIN_INTERVALS = 3
"""Intervals that make a rhythm. The first steps of a job compile and warm up, so one or two say nothing of the rest."""


def is_beyond(newer: ChosenCheckpoint, older: ChosenCheckpoint) -> bool:
    """Whether *newer* has progress over *older*: a later step or, when steps are unknown, a later save."""
    if newer.step != older.step:
        return newer.step > older.step
    return newer.step < 0 and newer.saved_ns > older.saved_ns


LONGEST_INTERVAL = 1e9
"""Seconds."""

Interval = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_INTERVAL)]


class Progress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The last step observed in a gang's checkpoints. *intervals* are the seconds between new steps, oldest first."""

    step: Step = -1
    at: Moment | None = None
    attempt: AttemptNumber = 0
    intervals: Annotated[list[Interval], msgspec.Meta(max_length=KEPT_INTERVALS)] = []


NO_PROGRESS = Progress()
"""No step was observed so far."""


def advance(progress: Progress, step: int, attempt: int, now: datetime, missed: timedelta = timedelta(0)) -> Progress:
    """
    *progress* after *step* was observed at *now*. *missed*: the time since the step before in which the machine slept.

    An interval counts only between two steps of one attempt: a restart is not part of the gang's rhythm. A new attempt
    that finds the step of an earlier attempt has made no progress yet.
    """
    if step == progress.step:
        return progress
    same_run = progress.at is not None and attempt == progress.attempt and step > progress.step
    intervals = progress.intervals
    if same_run and progress.at is not None:
        seconds = (now - progress.at - missed).total_seconds()
        intervals = [*intervals, min(max(0.0, seconds), LONGEST_INTERVAL)][-KEPT_INTERVALS:]
    return Progress(step=step, at=now, attempt=attempt, intervals=intervals)


def has_rhythm(progress: Progress) -> bool:
    """Whether enough intervals were observed to know how often the gang makes a step."""
    return len(progress.intervals) >= MIN_INTERVALS


def silence_allowed(progress: Progress, policy: HangPolicy, attempt: int) -> timedelta:
    """
    How long *attempt* may show no progress. While the gang's rhythm is unknown: how long it may show no activity.
    """
    if not has_rhythm(progress):
        return max(policy.floor, policy.first_step)
    allowed = max(policy.floor, timedelta(seconds=policy.factor * max(progress.intervals)))
    return allowed if progress.attempt == attempt else max(allowed, policy.first_step)


AGAIN = 4
"""Times as long as elsewhere output holds up a restart before the first save of an attempt. Had the restart before been
wrong, for an evaluation that only prints, the same evaluation would come again there."""


def output_allowed(progress: Progress, policy: HangPolicy, attempt: int) -> timedelta:
    """How long output of *attempt* is a sign of life while all its members do next to nothing else."""
    times = 1 if progress.attempt == attempt else AGAIN
    return max(silence_allowed(progress, policy, attempt), times * policy.first_step)


ENOUGH_WITNESSES = 2
"""Independent witnesses who name a rank."""
WORKED_BEFORE = 12
"""Times as long as a silence in which no rank is named so. An evaluation that only waits for its GPU looks like a hang,
for longer than `hang.floor`. Within this time it has come before, and then the work since counts."""


def is_past_waiting(silence: Silence, progress: Progress, policy: HangPolicy, attempt: int, now: datetime) -> bool:
    """
    Whether *silence* is reason enough to restart *attempt*, where that is allowed: it cannot end by itself, or is long.

    What is stopped in a start may be a helper that is not needed yet, so it waits even then. What was learned before
    the first save of an attempt may be the rhythm of its start, beside which a job with little work looks silent. So
    without a save two witnesses have to name a rank. And a silence that is longer than the work before it may be what
    is usual, and that work a compilation; one that is not much shorter may come now and then.
    """
    lasted, worked = now - silence.since, timedelta(seconds=silence.worked or 0.0)
    if cannot_go_on(silence):
        return lasted >= (policy.floor if silence.is_start else timedelta(0))
    if _is_named(silence):
        return policy.floor <= lasted <= worked
    return policy.floor <= lasted <= worked / WORKED_BEFORE and progress.attempt == attempt


def too_little_work(silence: Silence, policy: HangPolicy) -> str:
    """What keeps *silence* from ever being reason enough for a restart, for a person; empty: nothing does."""
    if cannot_go_on(silence):
        return ""
    if silence.worked is None:
        return "an agent does not say for how long its ranks worked before; is it older?"
    if not silence.worked:
        return "no work before it counts: it began with one of the first saves, or soon after a start or a long pause"
    floor, is_named = policy.floor.total_seconds(), _is_named(silence)
    seen = f"its ranks worked for {silence.worked:.0f} s since their rhythm is known"
    if silence.worked < floor:
        return f"{seen}, less than {floor:.0f} s (hang.floor)"
    if is_named or silence.worked >= WORKED_BEFORE * floor:
        return ""
    most = f"{WORKED_BEFORE * floor:.0f} s ({WORKED_BEFORE} times hang.floor)"
    return f"{seen}, less than {most}, unless two witnesses name a rank"


def _is_named(silence: Silence) -> bool:
    return any(suspect.witnesses >= ENOUGH_WITNESSES for suspect in silence.suspects)
