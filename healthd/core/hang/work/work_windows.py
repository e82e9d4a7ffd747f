"""How much one pod works, in windows: as its agent publishes them, and as the controller reads them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from statistics import fmean
from typing import NamedTuple

from healthd.core.api.health import LARGEST_RATE, MOST_WINDOWS, PodWork
from healthd.core.hang.samples import SampleRing
from healthd.core.hang.work import published_windows
from healthd.core.hang.work.published_windows import PublishedWindows, means, rounded

FINE = 5
"""Seconds of a window of the newest minutes, which are published only on request: `recent_work`."""
SMALL = 0.005
"""Shares of waiting below it are published as 0."""


class Window(NamedTuple):
    """One window of a pod."""

    cores: float
    starved: float
    stalled: float


PodWindows = PublishedWindows[SampleRing, Window, PodWork]
"""Those of one pod, from its samples."""


def pod_windows(late: timedelta = timedelta(0)) -> PodWindows:
    """From nothing."""
    return PublishedWindows(_window, _published, late)


def recent_work(ring: SampleRing, period: float, at: datetime) -> PodWork | None:
    """
    The newest minutes of a pod, whose steps are *period* seconds apart, in windows of `FINE`: as many in a row as were
    sampled. None: its steps are longer than that.
    """
    if period > FINE:
        return None
    end = int(at.timestamp()) // FINE * FINE
    windows = list[Window]()
    while len(windows) < MOST_WINDOWS:
        newest = end - FINE * len(windows)
        window = _window(ring, newest - FINE, newest)
        if window is None:
            break
        windows.append(window)
    return _published(windows[::-1], end, FINE)


def by_number(work: PodWork, seconds: int) -> dict[int, Window]:
    """By number, counted from 1970, in windows of *seconds*, of which the published ones are parts."""
    count = len(work.cores)
    starved, stalled = (each if len(each) == count else [0.0] * count for each in (work.starved, work.stalled))
    windows = [Window(*each) for each in zip(work.cores, starved, stalled, strict=True)]
    return published_windows.by_number(windows, work.end, work.seconds, seconds, _mean)


def _mean(windows: Sequence[Window]) -> Window:
    return Window(*map(fmean, zip(*windows, strict=True)))


def _window(ring: SampleRing, begin: int, end: int) -> Window | None:
    """None: it was sampled in too little of it."""
    found = means(ring, begin, end, ("cpu", "starved", "stalled"))
    return Window(found[0], min(1.0, found[1]), min(1.0, found[2])) if found is not None else None


def _published(windows: Sequence[Window], end: int, seconds: int) -> PodWork | None:
    if not windows:
        return None
    return PodWork(
        end=datetime.fromtimestamp(end, UTC),
        seconds=seconds,
        cores=[min(round(window.cores, 3), LARGEST_RATE) for window in windows],
        starved=_shares([window.starved for window in windows]),
        stalled=_shares([window.stalled for window in windows]),
    )


def _shares(values: Sequence[float]) -> list[float]:
    """Empty where there is none."""
    shares = rounded(values, SMALL)
    return shares if any(shares) else []
