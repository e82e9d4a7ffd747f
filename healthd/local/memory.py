"""
What was ever seen of a run's checkpoints. It outlives the files: that they vanished must never look like a first start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from healthd.core.api import Job, Recovery
from healthd.core.recovery.gang import Root

ANNOTATION_SEEN = "healthd.dev/run-seen"
"""On the Job: JSON of `Seen`."""
ANNOTATION_FINISHED_WITH = "healthd.dev/run-finished-with"
"""On the Job: JSON of `Seen`, the newest checkpoint that would load when the run had finished."""


class Seen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The furthest checkpoint that was seen, whether or not it loads. *step* -1: its name tells none."""

    step: int = -1
    path: str = ""

    @property
    def anything(self) -> bool:
        """Whether there was a checkpoint at all."""
        return self.step >= 0 or bool(self.path)

    def __str__(self) -> str:
        return f"step {self.step}" if self.step >= 0 else self.path


NOTHING_SEEN = Seen()


class _Sight(NamedTuple):
    step: int
    path: str


def seen_of(job: Job, root: Root, recoveries: Sequence[Recovery]) -> Seen:
    """What is on record: of looks at progress, of saves, of the job's own *recoveries*, and of earlier lives."""
    kept = _kept(job)
    sights = [_Sight(kept.step, kept.path), _Sight(root.progress.step, "")]
    sights += [_Sight(save.step, "" if save.step >= 0 else "a good one") for save in root.saves.good]
    sights.append(_Sight(-1, root.saves.refused))
    for status in (recovery.status for recovery in recoveries):
        sights += [_Sight(status.step_at_fault, ""), _Sight(status.confirmed_step, "")]
        sights += [_Sight(rejected.step, rejected.path) for rejected in status.rejected]
        sights += [_Sight(attempt.checkpoint.step, attempt.checkpoint.path) for attempt in status.attempts]
    furthest = max(sights, key=lambda sight: (sight.step, bool(sight.path)))
    return Seen(step=furthest.step, path=furthest.path)


def remembered(seen: Seen, step: int, path: str) -> Seen:
    """*seen* after a look at a further checkpoint."""
    return Seen(step=step, path=path) if (step, bool(path)) > (seen.step, bool(seen.path)) else seen


def note_of(seen: Seen) -> str:
    """As it stands on the Job."""
    return msgspec.json.encode(seen).decode()


def finished_with(job: Job, root: Root) -> Seen:
    """What a run that has finished left: where that was not written down, the furthest that was ever seen."""
    return _read(job, ANNOTATION_FINISHED_WITH) or seen_of(job, root, ())


def _kept(job: Job) -> Seen:
    return _read(job, ANNOTATION_SEEN) or NOTHING_SEEN


def _read(job: Job, annotation: str) -> Seen | None:
    try:
        return msgspec.json.decode(job.metadata.annotations[annotation], type=Seen)
    except (KeyError, msgspec.DecodeError):
        return None
