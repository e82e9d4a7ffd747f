"""
A record of the checkpoints of a run that were ever seen.

It outlives the files, so checkpoints that disappear are never mistaken for a first start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from healthd.core.api import Job, Recovery
from healthd.core.recovery.gang import Root

ANNOTATION_SEEN = "healthd.dev/run-seen"
"""On the Job: JSON of `Seen`."""
ANNOTATION_ENDED_WITH = "healthd.dev/run-finished-with"
"""On the Job: JSON of `Seen`, the newest checkpoint that loaded when the run completed, was stopped or was given up."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The checkpoint with the highest step that was seen, whether it loads or not. *step* -1: the name gives no step.
    """

    step: int = -1
    path: str = ""

    @property
    def anything(self) -> bool:
        """Whether there was a checkpoint at all."""
        return self.step >= 0 or bool(self.path)

    def __str__(self) -> str:
        return f"step {self.step}" if self.step >= 0 else self.path


NOTHING_SEEN = Seen()


class _Candidate(NamedTuple):
    step: int
    path: str


def seen_of(job: Job, root: Root, recoveries: Sequence[Recovery]) -> Seen:
    """
    The highest step on record: from progress, from saves, from the job's *recoveries*, and from earlier starts of the
    run.
    """
    kept = _kept(job)
    candidates = [_Candidate(kept.step, kept.path), _Candidate(root.progress.step, "")]
    candidates += [_Candidate(save.step, "" if save.step >= 0 else "a good one") for save in root.saves.good]
    candidates.append(_Candidate(-1, root.saves.refused))
    for status in (recovery.status for recovery in recoveries):
        candidates += [_Candidate(status.step_at_fault, ""), _Candidate(status.confirmed_step, "")]
        candidates += [_Candidate(rejected.step, rejected.path) for rejected in status.rejected]
        candidates += [_Candidate(attempt.checkpoint.step, attempt.checkpoint.path) for attempt in status.attempts]
    furthest = max(candidates, key=lambda candidate: (candidate.step, bool(candidate.path)))
    return Seen(step=furthest.step, path=furthest.path)


def remembered(seen: Seen, step: int, path: str) -> Seen:
    """*seen*, or the checkpoint of *step* and *path* when that is further."""
    return Seen(step=step, path=path) if (step, bool(path)) > (seen.step, bool(seen.path)) else seen


def note_of(seen: Seen) -> str:
    """The text of the annotation on the Job."""
    return msgspec.json.encode(seen).decode()


def ended_with(job: Job, root: Root, recoveries: Sequence[Recovery] = ()) -> Seen:
    """The checkpoint that a run left when it ended. When it was not recorded: the highest step that was ever seen."""
    return _read(job, ANNOTATION_ENDED_WITH) or seen_of(job, root, recoveries)


def _kept(job: Job) -> Seen:
    return _read(job, ANNOTATION_SEEN) or NOTHING_SEEN


def _read(job: Job, annotation: str) -> Seen | None:
    try:
        return msgspec.json.decode(job.metadata.annotations[annotation], type=Seen)
    except (KeyError, msgspec.DecodeError):
        return None
