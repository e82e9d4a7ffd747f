"""Whether a pod began to work more or less than before, by the windows of its work. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, median

from healthd.core.api.health import PodWork

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


def has_changed(work: PodWork | None) -> bool:
    """Whether its newest windows differ from those before, and not only by their noise."""
    if work is None or len(work.cores) < NEWEST + LEAST:
        return False
    before = median(work.cores[:-NEWEST])
    if before <= 0 or median(work.cores[-NEWEST:]) < PAUSES * before:
        return False
    of_work = _changed([each / before for each in work.cores], CHANGED)
    return of_work or _changed(work.starved, STARVED) or _changed(work.stalled, STARVED)


def _changed(values: Sequence[float], least: float) -> bool:
    if not values:
        return False
    before = median(values[:-NEWEST])
    noise = _NORMAL * median(abs(value - before) for value in values[:-NEWEST])
    newest = [value - before for value in values[-NEWEST:]]
    is_one_way = all(each > 0 for each in newest) or all(each < 0 for each in newest)
    return is_one_way and abs(fmean(newest)) >= max(least, CLEAR * noise / sqrt(NEWEST))
