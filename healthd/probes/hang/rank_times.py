"""
How long the main thread of each rank of a pod ran, and was left without a processor. For the component `hang-evidence`.

Which processes are ranks is looked up each minute, more often at first, and when one has ended. The environment of a
process that has begun to work is read once: it is in its memory, so a rank that hangs in a driver may keep that from
returning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf

from healthd.core.hang.suspects.rank_processes import PodTask, rank_numbers, rank_processes
from healthd.core.hang.work.rank_time import RankTime
from healthd.core.untrusted import LARGEST_GANG
from healthd.probes.hang.pods import pids_of
from healthd.probes.hang.siblings import connected_ranks
from healthd.probes.hang.tasks import KnownTasks
from healthd.probes.process_stat import parse_schedstat
from healthd.probes.sysfs import read_bytes

SOONEST_S = 2.0
"""Between the first look at a pod and the second, for its launcher may just have started a part of its ranks. Each
further pause is twice as long."""
LOOK_AGAIN_S = 60.0
"""The longest of these pauses. A launcher may start its ranks long after the pod began."""
SETTLED = 2.0
"""Seconds of processor time. Which process of a rank trains is not known before: the shell around it begins first."""
LOOKS_S = 0.2
"""Seconds that one question may take to look for ranks: the agent waits for half a second. A pod that is not reached is
looked at with the next question."""
MOST_TASKS = 1024
"""Processes of a pod that are looked at."""
FORGOTTEN_AFTER_S = 300.0
"""A pod that is not asked for any more. Those of a node are asked for one after the other."""


class PodRankTimes:
    """Of pods that are asked for again and again."""

    def __init__(self, proc: str = "/proc", now: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._now = now
        self._pods: dict[str, _KnownRanks] = {}

    @property
    def pids(self) -> list[int]:
        """The processes of the ranks that have others in their pod."""
        return [rank.pid for pod in self._pods.values() if len(pod.ranks) > 1 for rank in pod.ranks.values()]

    def read(self, pods: Mapping[str, str]) -> dict[str, list[RankTime]]:
        """
        By uid, as *pods*, which are their control groups. A pod without ranks that are known is left out, and so is one
        of which a rank has just ended.
        """
        now = self._now()
        self._pods = {uid: pod for uid, pod in self._pods.items() if 0 <= now - pod.asked_at < FORGOTTEN_AFTER_S}
        times = dict[str, list[RankTime]]()
        for uid, group in pods.items():
            pod = self._pods.setdefault(uid, _KnownRanks(self._proc))
            pod.look(group, now, is_time=lambda: self._now() - now < LOOKS_S)
            if mine := pod.times():
                times[uid] = mine
        return times


class _KnownRanks:
    """Those of one pod."""

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._tasks = KnownTasks(proc)
        self._pause_s = SOONEST_S
        self._looked_at: float | None = None
        self.asked_at = 0.0
        self.ranks: Mapping[int, PodTask] = {}
        """By number."""

    def look(self, group: str, now: float, *, is_time: Callable[[], bool]) -> None:
        """
        Find its ranks, where that was long ago. One that has worked stays the process that it was found to be, as long
        as that lives: what a loader uses changes with the time.
        """
        self.asked_at = now
        waited = inf if self._looked_at is None else now - self._looked_at
        if 0 <= waited < self._pause_s or not is_time():
            return
        self._pause_s = SOONEST_S if self._looked_at is None else min(LOOK_AGAIN_S, 2 * self._pause_s)
        self._looked_at = now
        tasks = self._tasks.read(pids_of(group)[:MOST_TASKS])
        living = {(task.pid, task.started) for task in tasks}
        found = _by_number(tasks, self._proc, is_time)
        stays = {number for number, rank in self.ranks.items() if rank.cpu >= SETTLED and _key(rank) in living}
        if found.keys() == self.ranks.keys():
            found = {number: self.ranks[number] if number in stays else rank for number, rank in found.items()}
        self.ranks = found

    def times(self) -> list[RankTime]:
        """Of each rank; none where one has just ended."""
        times = list[RankTime]()
        for number, rank in self.ranks.items():
            scheduled = parse_schedstat(read_bytes(f"{self._proc}/{rank.pid}/schedstat"))
            if scheduled is None:
                self._looked_at, self.ranks = None, {}
                return []
            times.append(RankTime(number=number, pid=rank.pid, ran=scheduled.ran, starved=scheduled.starved))
        return times


def _key(task: PodTask) -> tuple[int, int]:
    return task.pid, task.started


def _by_number(tasks: Sequence[PodTask], proc: str, is_time: Callable[[], bool]) -> Mapping[int, PodTask]:
    """
    The ranks by their numbers, in the order of their start where they have none and are connected with each other. None
    where they are not: these may be sidecars.
    """
    ranks = [rank for rank in rank_processes(tasks) if rank.mark]
    if len(ranks) < 2 and (connected := connected_ranks(tasks, proc, is_time=is_time)):
        return dict(enumerate(connected))
    numbers: Sequence[int] = rank_numbers([rank.mark for rank in ranks])
    if max(numbers, default=0) > LARGEST_GANG:  # anybody may set such a variable
        numbers = range(len(ranks))
    return dict(zip(numbers, ranks, strict=True))
