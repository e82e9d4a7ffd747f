"""
How long the main thread of each rank of a pod ran, and was left without a processor. For the component `hang-evidence`.

Which processes are ranks is looked up each minute, and when one has ended. The environment of a process is read once:
it is in its memory, so a rank that hangs in a driver may keep that from returning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from healthd.core.hang.suspects.rank_processes import PodTask, rank_numbers, rank_processes
from healthd.core.hang.work.rank_time import RankTime
from healthd.core.untrusted import LARGEST_GANG
from healthd.probes.hang.pods import PodFolders, pids_of
from healthd.probes.hang.tasks import KnownTasks
from healthd.probes.process_stat import parse_schedstat
from healthd.probes.sysfs import read_bytes

LOOK_AGAIN_S = 60.0
"""A launcher may start its ranks long after the pod began."""


class _Ranks(NamedTuple):
    looked_at: float
    by_number: Mapping[int, int]
    """Their processes."""


class PodRankTimes:
    """Of pods that are asked for again and again."""

    def __init__(self, proc: str = "/proc", now: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._now = now
        self._ranks: dict[str, _Ranks] = {}
        self._tasks: dict[str, KnownTasks] = {}

    def read(self, pods: Mapping[str, PodFolders]) -> dict[str, list[RankTime]]:
        """
        By uid. A pod without numbered ranks is left out, and so is one of which a rank has just ended. Pods that are
        not asked for are forgotten.
        """
        self._ranks = {uid: ranks for uid, ranks in self._ranks.items() if uid in pods}
        self._tasks = {uid: self._tasks.get(uid) or KnownTasks(self._proc) for uid in pods}
        times = {uid: self._times(uid, pod) for uid, pod in pods.items()}
        return {uid: mine for uid, mine in times.items() if mine}

    def _times(self, uid: str, pod: PodFolders) -> list[RankTime]:
        known = self._ranks.get(uid)
        if known is None or not 0 <= self._now() - known.looked_at < LOOK_AGAIN_S:
            found = _numbered(self._tasks[uid].read(pids_of(pod)))
            if known is not None and known.by_number.keys() == found.keys():
                found = known.by_number  # all live, or they are looked up anew below
            known = self._ranks[uid] = _Ranks(self._now(), found)
        times = list[RankTime]()
        for number, pid in known.by_number.items():
            scheduled = parse_schedstat(read_bytes(f"{self._proc}/{pid}/schedstat"))
            if scheduled is None:
                del self._ranks[uid]
                return []
            times.append(RankTime(number=number, pid=pid, ran=scheduled.ran, starved=scheduled.starved))
        return times


def _numbered(tasks: Sequence[PodTask]) -> Mapping[int, int]:
    """The processes of the ranks by their numbers. None where they have none: these may be sidecars."""
    ranks = [rank for rank in rank_processes(tasks) if rank.mark]
    numbers: Sequence[int] = rank_numbers([rank.mark for rank in ranks])
    if max(numbers, default=0) > LARGEST_GANG:  # anybody may set such a variable
        numbers = range(len(ranks))
    return {number: rank.pid for number, rank in zip(numbers, ranks, strict=True)}
