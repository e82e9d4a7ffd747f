"""
The ranks within one pod, compared by their main threads as those of `healthd run` are.

A control group adds up all processes of its pod. Where eight ranks share a pod, one that is slower by a tenth changes
that sum by a hundredth. So the component `hang-evidence` reads the main thread of each rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from healthd.core.api.health import PodSlowRank
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.listed import Listed
from healthd.core.hang.work.rank_time import RankTime
from healthd.core.hang.work.slow_ranks import SlowRanks
from healthd.core.hang.work.work_share import SHORTEST, ShareWindow, WorkShare

EARLY = timedelta(seconds=0.5)
"""A window may end so much sooner: pods are sampled once a second."""
LATE = 2
"""A window of so many times its length is none: the pod was silent, or the agent or the machine slept."""
ALONE_FOR = timedelta(minutes=1)
"""When a pod is looked at again of which fewer than two ranks are known."""
DIGITS = 4
"""Of what is published."""


class PodRanks:
    """The ranks of one pod, from nothing: which of them is slow is known minutes later."""

    def __init__(self) -> None:
        self._ranks = SlowRanks()
        self._read: tuple[datetime, Sequence[RankTime]] | None = None
        """When the times were read last, and what was read."""
        self._compared: Sequence[RankTime] = ()
        """The ranks that are compared, by place."""
        self._slow = Listed[PodSlowRank]()

    @property
    def count(self) -> int:
        """How many ranks are compared."""
        return len(self._compared) if len(self._compared) > 1 else 0

    @property
    def slow(self) -> Sequence[PodSlowRank]:
        """Those that were slow last, also such as no longer are."""
        return self._slow.newest

    def is_due(self, period: float, at: datetime) -> bool:
        """Whether the times of the ranks are to be read, of which a step takes *period* seconds."""
        if self._read is None:
            return True
        pause = ALONE_FOR if len(self._read[1]) < 2 else _length(period) - EARLY
        return not timedelta(0) <= at - self._read[0] < pause

    def observe(self, times: Sequence[RankTime], period: float, at: datetime) -> None:
        """Take what was read when it was due. Empty: nothing is known now, which ends nothing."""
        self._slow.forget_ended(at)
        times = sorted(times, key=lambda each: each.number)
        before, self._read = self._read, (at, times)
        if not times:
            return
        if [each.pid for each in times] != [each.pid for each in self._compared]:
            self._note(self._ranks.restart(at))
            self._compared = times
            return
        if before is None or not timedelta(0) < at - before[0] <= LATE * _length(period):
            return
        if shares := _shares(*before, times, at):
            self._note(self._ranks.add(ShareWindow(before[0], at, shares)))

    def _note(self, changes: Sequence[Straggler]) -> None:
        for change in changes:
            rank = self._compared[int(change.rank)]
            self._slow.note(rank.pid, _slow_rank(change, rank))


def _length(period: float) -> timedelta:
    return max(SHORTEST, timedelta(seconds=period))


def _shares(
    begin: datetime, before: Sequence[RankTime], times: Sequence[RankTime], end: datetime
) -> dict[str, WorkShare]:
    """
    By place: the first rank of a pod evaluates and saves for the others where one does, whatever its number is. Empty:
    the kernel does not count, or a main thread did nothing at all.
    """
    seconds = (end - begin).total_seconds()
    used = [_share(then, now, seconds) for then, now in zip(before, times, strict=True)]
    whole = all(share.ran > 0 and share.starved >= 0 for share in used)
    return {str(place): share for place, share in enumerate(used)} if whole and len(used) > 1 else {}


def _share(then: RankTime, now: RankTime, seconds: float) -> WorkShare:
    ran, starved, own_waits = (
        (after - before) / seconds
        for before, after in ((then.ran, now.ran), (then.starved, now.starved), (then.own_waits, now.own_waits))
    )
    return WorkShare(min(1.0, ran), min(1.0, starved), own_waits=min(1.0, max(0.0, own_waits)))


def _slow_rank(straggler: Straggler, time: RankTime) -> PodSlowRank:
    return PodSlowRank(
        rank=time.number,
        pid=time.pid,
        since=straggler.since,
        ended_at=straggler.ended_at,
        slower=round(straggler.slower, DIGITS),
        ran=round(straggler.ran, DIGITS),
        starved=round(straggler.starved, DIGITS),
        peers_ran=round(straggler.peers_ran, DIGITS),
        peers_starved=round(straggler.peers_starved, DIGITS),
        own_waits=round(straggler.own_waits, DIGITS),
        peers_own_waits=round(straggler.peers_own_waits, DIGITS),
        from_start=straggler.from_start,
        confidence=straggler.confidence,
    )
