"""
One gang on Kubernetes: on which of its nodes all GPUs wait for their host, while those of the others wait for these in
a kernel. By the windows that agents publish of the GPUs of their nodes (`gpu_windows`). Pure.

One GPU of several is seen by the agent of its node (`host_bound_gpus`), and moves no median.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from datetime import datetime, timedelta
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from healthd.core.api.health import GpuWork
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.common_windows import AHEAD, CommonWindows
from healthd.core.hang.work.excesses import excesses
from healthd.core.hang.work.gpus.gpu_windows import by_number
from healthd.core.hang.work.gpus.host_bound_gpus import HostBoundGpus
from healthd.core.hang.work.pauses import PAUSED_IN_PART, UsualWork
from healthd.core.hang.work.work_share import ShareWindow, WorkShare

OVER = 4
"""Windows in which a rank that was reported by another controller keeps up, after which it is over."""


class RankGpus(NamedTuple):
    """What is published of the GPUs of one rank, which has all of its node."""

    pod: str
    """Its uid."""
    work: GpuWork


class HostBoundNodes:
    """
    One gang, as long as it has the same pods and windows of the same length. *ranks*: its GPUs by rank, the first one
    first: that rank may evaluate and save for all.
    """

    def __init__(self, ranks: Mapping[str, RankGpus]) -> None:
        self._names = {str(number): name for number, name in enumerate(ranks)}
        self._pods = {name: each.pod for name, each in ranks.items()}
        self._seconds = _length(ranks)
        self._common = CommonWindows[WorkShare](ranks, self._seconds)
        self._gpus = HostBoundGpus()
        self._usual_work = UsualWork()
        self._taken: dict[str, GpuWork] = {}
        self._observed_at: datetime | None = None
        self._present: dict[str, Straggler] = {}
        self._adopted: dict[str, deque[float]] = {}
        """Of those that another controller reported: by how much more they were idle in the newest windows."""

    @property
    def present(self) -> list[Straggler]:
        """Those that are slow now."""
        return [*self._present.values()]

    def is_of(self, ranks: Mapping[str, RankGpus]) -> bool:
        """Whether these are the same pods, with windows of the same length."""
        return self._pods == {name: each.pod for name, each in ranks.items()} and self._seconds == _length(ranks)

    def is_ahead(self, now: datetime) -> bool:
        """Whether it was compared at a time that is yet to come: the clock was set back, and it would wait for that."""
        return self._observed_at is not None and self._observed_at - now > AHEAD

    def adopt(self, straggler: Straggler) -> None:
        """Take over one that was reported before, or what is known of it now."""
        if straggler.rank not in self._present:
            self._adopted[straggler.rank] = deque(maxlen=OVER)
        self._present[straggler.rank] = straggler

    def observe(self, ranks: Mapping[str, RankGpus], now: datetime) -> list[Straggler]:
        """
        *ranks*: those that this `is_of`. Returns what changes: those that begin to be slow, and with `ended_at` those
        that no longer are.
        """
        self._observed_at = now
        for name, each in ranks.items():
            if self._taken.get(name) != each.work and each.work.end - now <= AHEAD:
                self._taken[name] = each.work
                self._common.take(name, by_number(each.work, self._seconds), now)
        changes = list[Straggler]()
        while (window := self._common.next(now)) is not None:
            begin = window.end - timedelta(seconds=self._seconds)
            shares = {number: window.windows[name] for number, name in self._names.items()}
            changes += self._changes(ShareWindow(begin, window.end, shares))
        return changes

    def _changes(self, window: ShareWindow) -> list[Straggler]:
        found = [replace(each, rank=self._names[each.rank]) for each in self._gpus.add(window)]
        begun = [each for each in found if each.ended_at is None and each.rank not in self._present]
        over = [self._ended(each.rank, each.ended_at) for each in found if each.ended_at and each.rank in self._present]
        self._present |= {each.rank: each for each in begun}
        return [*over, *self._adopted_over(window), *begun]

    def _ended(self, rank: str, at: datetime) -> Straggler:
        self._adopted.pop(rank, None)
        straggler = self._present.pop(rank)
        return replace(straggler, ended_at=max(at, straggler.since))

    def _adopted_over(self, window: ShareWindow) -> list[Straggler]:
        """What is usual of these is not known, but how idle they were when reported. Pauses of a gang do not count."""
        part = self._usual_work.part_of((share.busy for share in window.shares.values()), self._seconds)
        if not self._adopted or part < PAUSED_IN_PART:
            return []
        excess = excesses({self._names[number]: share.own_waits for number, share in window.shares.items()})
        for rank, newest in self._adopted.items():
            if window.begin >= self._present[rank].seen_at:  # agents also publish what was before
                newest.append(excess.get(rank, 0.0))
        return [self._ended(rank, window.end) for rank in [*self._adopted] if self._keeps_up(rank)]

    def _keeps_up(self, rank: str) -> bool:
        newest, straggler = self._adopted[rank], self._present[rank]
        return len(newest) == OVER and fmean(newest) < (straggler.idle - straggler.peers_idle) / 2


def _length(ranks: Mapping[str, RankGpus]) -> int:
    """Of the windows of a gang, in seconds: agents learn periods that differ a bit."""
    return max((each.work.seconds for each in ranks.values()), default=0)
