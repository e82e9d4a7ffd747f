"""By what part the peers of a rank compute less than before, as they do where they wait for it in each step. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from healthd.core.hang.work.work_share import ShareWindow

HALF_OF_IT = 0.5
"""Of what they show in all windows: so much less they compute in each half of them, too."""

Windows = Sequence[ShareWindow]


def mean_less(before: Windows, newest: Windows, peers: Sequence[str]) -> float:
    """What the median one of *peers* shows in the mean."""
    return median(_less(before, newest, peers, fmean))


def lasting_less(before: Windows, newest: Windows, peers: Sequence[str]) -> float:
    """
    What all but a quarter of *peers* show for as long as the *newest* windows are, whatever they do in pauses: more in
    an evaluation than in steps, less while their data or one of them are late.
    """
    half = len(newest) // 2
    in_all, *in_halves = (_lower_quarter(before, part, peers) for part in (newest, newest[:half], newest[half:]))
    return min(in_all, *(each / HALF_OF_IT for each in in_halves))


def _lower_quarter(before: Windows, newest: Windows, peers: Sequence[str]) -> float:
    less = sorted(_less(before, newest, peers, median))
    return less[len(less) // 4]


def _less(
    before: Windows, newest: Windows, peers: Sequence[str], middle: Callable[[Sequence[float]], float]
) -> Iterator[float]:
    for peer in peers:
        usual, now = (middle([window.shares[peer].ran for window in windows]) for windows in (before, newest))
        yield 1 - now / usual if usual else 0.0
