"""Whether a pod or the GPUs of a node began to work more or less than before, by windows of their work. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, median

from healthd.core.api.health import GpuWork, PodWork

NEWEST = 3
"""Windows that are compared with those before them."""
LEAST = 3
"""Windows before them."""
CHANGED = 0.03
"""Of its work. When one of a gang becomes slower by 10 %, the others work 9 % less of the time."""
STARVED = 0.03
"""Of the time."""
CLEAR = 2.5
"""How many times the error of the mean of the newest windows a change is."""
PAUSES = 0.5
"""A pod that works less than this part of what it did waits for an evaluation or a save."""
_NORMAL = 1.4826


def has_changed(work: PodWork | GpuWork | None) -> bool:
    """Whether its newest windows differ from those before, and not only by their noise."""
    if work is None:
        return False
    amounts, shares = (
        (work.cores, (work.starved, work.stalled)) if isinstance(work, PodWork) else (work.memory, (work.idle,))
    )
    if len(amounts) < NEWEST + LEAST:
        return False
    before = median(amounts[:-NEWEST])
    if before <= 0 or median(amounts[-NEWEST:]) < PAUSES * before:
        return False
    of_work = _changed([each / before for each in amounts], CHANGED)
    return of_work or any(_changed(each, STARVED) for each in shares)


def _changed(values: Sequence[float], least: float) -> bool:
    if not values:
        return False
    before = median(values[:-NEWEST])
    noise = _NORMAL * median(abs(value - before) for value in values[:-NEWEST])
    newest = [value - before for value in values[-NEWEST:]]
    is_one_way = all(each > 0 for each in newest) or all(each < 0 for each in newest)
    return is_one_way and abs(fmean(newest)) >= max(least, CLEAR * noise / sqrt(NEWEST))
