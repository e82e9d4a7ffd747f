"""By what part the peers of a rank compute less than before, as they do where they wait for it in each step. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from healthd.core.hang.work.work_share import ShareWindow

HALF_OF_IT = 0.5
"""Of what they show in all windows: so much less they compute in each half of them, too."""
LONGER = 0.4
"""Of what a peer computes less: so much longer it has nothing to do if it waits for data, or without a kernel."""

Windows = Sequence[ShareWindow]


def mean_less(before: Windows, newest: Windows, peers: Sequence[str]) -> float:
    """What the median one of *peers* shows in the mean."""
    means = [[fmean([window.shares[peer].ran for window in windows]) for windows in (before, newest)] for peer in peers]
    return median(_part(usual, now) for usual, now in means)


def lasting_less(before: Windows, newest: Windows, peers: Sequence[str]) -> float:
    """
    What all but a quarter of *peers*, which are GPUs, show for as long as the *newest* windows are, whatever they do in
    pauses: more in an evaluation than in steps, less while their data or one of them are late. Only such peers count
    that wait in a kernel.
    """
    half = len(newest) // 2
    in_all, *in_halves = (_lower_quarter(before, part, peers) for part in (newest, newest[:half], newest[half:]))
    return min(in_all, *(each / HALF_OF_IT for each in in_halves))


def _lower_quarter(before: Windows, newest: Windows, peers: Sequence[str]) -> float:
    less = sorted(_less_in_kernel(before, newest, peer) for peer in peers)
    return less[len(less) // 4]


def _less_in_kernel(before: Windows, newest: Windows, peer: str) -> float:
    usual, now = ([window.shares[peer] for window in windows] for windows in (before, newest))
    less = _part(*(median([share.ran for share in shares]) for shares in (usual, now)))
    waited, waits = (median([share.own_waits for share in shares]) for shares in (usual, now))
    return less if waits - waited < LONGER * less else 0.0


def _part(usual: float, now: float) -> float:
    return 1 - now / usual if usual else 0.0
