"""
Doubts about a run that exited with 0: no later step, fewer ranks, or ranks that ended before the others. Pure.

A trainer that is killed behind a pipe also exits with 0. A doubt decides nothing. It is logged, with the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from healthd.core.api import ChosenCheckpoint, Pod
from healthd.core.recovery.members import index_of, is_terminal

EARLY = timedelta(seconds=5)
"""The ranks of a gang end together. Rank 0 may save a last time, so one rank that ends first is no alarm."""
AT_ITS_END = timedelta(seconds=1)
"""Between a rank's last save and its end: file systems store coarser times than healthd."""


def doubts(
    asked: int, world: int, begun: ChosenCheckpoint, newest: ChosenCheckpoint | None, started_at: datetime | None
) -> list[str]:
    """
    Doubts about a gang of *world* ranks, of *asked* ranks, that started at *begun* and saved *newest*.

    *newest* is None when that is not known. When the steps are not known, the time of the save is compared with
    *started_at*, the start of the ranks.
    """
    found = []
    if world < asked:
        found.append(f"it ended on {world} of {asked} ranks")
    if newest is not None and not newest.path:
        found.append("no checkpoint that loads was saved")
    elif newest is not None and not _is_beyond(begun, newest, started_at):
        found.append(f"nothing beyond {step_text(newest)} was saved, and there it started")
    return found


def step_text(checkpoint: ChosenCheckpoint | None) -> str:
    """The checkpoint in words."""
    if checkpoint is None:
        return "a step that is not known: the checkpoints could not be read"
    if not checkpoint.path:
        return "step 0"
    return f"step {checkpoint.step}" if checkpoint.step >= 0 else checkpoint.path


def _is_beyond(begun: ChosenCheckpoint, newest: ChosenCheckpoint, started_at: datetime | None) -> bool:
    if begun.step >= 0 and newest.step >= 0:
        return newest.step > begun.step
    saved_since = started_at is not None and newest.saved_ns >= started_at.timestamp() * 1e9
    return not begun.path or saved_since


def left_early(pods: Sequence[Pod], now: datetime) -> list[str]:
    """The ranks that exited with 0 a while ago, while other pods of the same attempt still run."""
    if all(map(is_terminal, pods)):
        return []
    ends = ((index_of(pod), _ended_at(pod)) for pod in pods if pod.status.phase == "Succeeded")
    return sorted(
        (rank for rank, at in ends if at is not None and now - at >= EARLY), key=lambda rank: (len(rank), rank)
    )


def unsaved(pods: Sequence[Pod], newest: ChosenCheckpoint | None) -> list[str]:
    """
    A doubt when *newest* was saved before the first of *pods* (one attempt) ended, and the last pod ran on for a while.
    """
    ends = sorted((at, index_of(pod)) for pod in pods if (at := _ended_at(pod)) is not None)
    saved = saved_at(newest)
    if len(ends) < 2 or saved is None or saved > ends[0][0] + AT_ITS_END or ends[-1][0] - ends[0][0] < EARLY:
        return []
    gap = round((ends[-1][0] - ends[0][0]).total_seconds())
    return [f"rank {ends[0][1]} ended {gap} s before the last one, and nothing was saved after that"]


def _ended_at(pod: Pod) -> datetime | None:
    ends = [status.state.terminated for status in pod.status.container_statuses]
    return next((end.finished_at for end in ends if end is not None), None)


def saved_at(checkpoint: ChosenCheckpoint | None) -> datetime | None:
    """When the checkpoint was saved. None when that is not known, or when there is no checkpoint."""
    if checkpoint is None or not checkpoint.path or not checkpoint.saved_ns:
        return None
    return datetime.fromtimestamp(checkpoint.saved_ns / 1e9, tz=UTC)
