"""How much the GPUs of one node work, in windows: as its agent publishes them, and as the controller reads them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import isnan
from statistics import fmean, median

from healthd.core.api.health import GpuWork
from healthd.core.hang.silence import GangRhythm
from healthd.core.hang.work import published_windows
from healthd.core.hang.work.published_windows import PublishedWindows, means, rounded
from healthd.core.hang.work.work_share import WorkShare

GpuWindows = PublishedWindows[GangRhythm, WorkShare, GpuWork]
"""Those of the GPUs of one node, from their samples. Shares are those `of_gpus`."""


def gpu_windows(late: timedelta = timedelta(0)) -> GpuWindows:
    """From nothing."""
    return PublishedWindows(_window, _published, late)


def by_number(work: GpuWork, seconds: int) -> dict[int, WorkShare]:
    """By number, counted from 1970, in windows of *seconds*, of which the published ones are parts."""
    if len(work.memory) != len(work.idle):
        return {}
    windows = [WorkShare(memory, own_waits=idle) for memory, idle in zip(work.memory, work.idle, strict=True)]
    return published_windows.by_number(windows, work.end, work.seconds, seconds, _mean)


def _mean(windows: Sequence[WorkShare]) -> WorkShare:
    return WorkShare(fmean(each.ran for each in windows), own_waits=fmean(each.own_waits for each in windows))


def _window(gang: GangRhythm, begin: int, end: int) -> WorkShare | None:
    """Of the median GPU. None: one of them was sampled in too little of it, or does not say what it does."""
    found = [means(member.ring, begin, end, ("gpu", "kernels")) for member in gang.members.values()]
    known = [each for each in found if each is not None and not any(map(isnan, each))]
    if not known or len(known) < len(found):
        return None
    memory, kernels = (median(each) for each in zip(*known, strict=True))
    return WorkShare(min(1.0, memory), own_waits=max(0.0, 1.0 - kernels))


def _published(windows: Sequence[WorkShare], end: int, seconds: int) -> GpuWork | None:
    if not windows:
        return None
    return GpuWork(
        end=datetime.fromtimestamp(end, UTC),
        seconds=seconds,
        memory=rounded([window.ran for window in windows]),
        idle=rounded([window.own_waits for window in windows]),
    )
