"""
How long the main thread of each rank of a pod ran, and was left without a processor. For the component `hang-evidence`.

Which processes are ranks is looked up each minute, and when one has ended. The environment of a process is read once:
it is in its memory, so a rank that hangs in a driver may keep that from returning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from healthd.core.hang.suspects.rank_processes import PodTask, rank_numbers, rank_processes
from healthd.core.hang.work.rank_time import RankTime
from healthd.core.untrusted import LARGEST_GANG
from healthd.probes.hang.pods import PodFolders, pids_of
from healthd.probes.hang.siblings import connected_ranks
from healthd.probes.hang.tasks import KnownTasks
from healthd.probes.process_stat import parse_schedstat
from healthd.probes.sysfs import read_bytes

LOOK_AGAIN_S = 60.0
"""A launcher may start its ranks long after the pod began."""
FORGOTTEN_AFTER_S = 300.0
"""A pod that is not asked for any more. Those of a node are asked for one after the other."""


class PodRankTimes:
    """Of pods that are asked for again and again."""

    def __init__(self, proc: str = "/proc", now: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._now = now
        self._pods: dict[str, _Pod] = {}

    @property
    def pids(self) -> list[int]:
        """The processes of all ranks that are known."""
        return [pid for pod in self._pods.values() for pid in pod.ranks.values()]

    def read(self, pods: Mapping[str, PodFolders]) -> dict[str, list[RankTime]]:
        """By uid. A pod without ranks that are known is left out, and so is one of which a rank has just ended."""
        now = self._now()
        self._pods = {uid: pod for uid, pod in self._pods.items() if 0 <= now - pod.asked_at < FORGOTTEN_AFTER_S}
        times = dict[str, list[RankTime]]()
        for uid, folders in pods.items():
            pod = self._pods.setdefault(uid, _Pod(self._proc))
            if mine := pod.times(folders, now):
                times[uid] = mine
        return times


class _Pod:
    """The ranks of one pod."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._tasks = KnownTasks(proc)
        self._looked_at: float | None = None
        self.asked_at = 0.0
        self.ranks: Mapping[int, int] = {}
        """Their processes, by number."""

    def times(self, folders: PodFolders, now: float) -> list[RankTime]:
        """Of each rank; none where one has just ended."""
        self.asked_at = now
        if self._looked_at is None or not 0 <= now - self._looked_at < LOOK_AGAIN_S:
            self._look_again(folders, now)
        times = list[RankTime]()
        for number, pid in self.ranks.items():
            scheduled = parse_schedstat(read_bytes(f"{self._proc}/{pid}/schedstat"))
            if scheduled is None:
                self._looked_at, self.ranks = None, {}
                return []
            times.append(RankTime(number=number, pid=pid, ran=scheduled.ran, starved=scheduled.starved))
        return times

    def _look_again(self, folders: PodFolders, now: float) -> None:
        self._looked_at = now
        found = _by_number(self._tasks.read(pids_of(folders)), self._proc)
        if found.keys() != self.ranks.keys():  # else they are as they were found first, and those that ended are seen
            self.ranks = found


def _by_number(tasks: Sequence[PodTask], proc: str) -> Mapping[int, int]:
    """
    The processes of the ranks by their numbers, in the order of their start where they have none and are connected with
    each other. None where they are not: these may be sidecars.
    """
    ranks = [rank for rank in rank_processes(tasks) if rank.mark]
    if len(ranks) < 2 and (connected := connected_ranks(tasks, proc)):
        return {number: rank.pid for number, rank in enumerate(connected)}
    numbers: Sequence[int] = rank_numbers([rank.mark for rank in ranks])
    if max(numbers, default=0) > LARGEST_GANG:  # anybody may set such a variable
        numbers = range(len(ranks))
    return {number: rank.pid for number, rank in zip(numbers, ranks, strict=True)}
