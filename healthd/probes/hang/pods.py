"""
What the processes of a pod do, from its control group and the host's /proc. For the component `hang-evidence` alone:
it needs the host's process numbers, CAP_SYS_PTRACE, and CAP_DAC_READ_SEARCH for pods of other users.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from healthd.core.hang.suspects.evidence import ProcessEvidence, RankEvidence
from healthd.core.hang.suspects.rank_processes import PodTask, rank_processes
from healthd.probes.errors import CannotRead
from healthd.probes.hang.network import read_networks
from healthd.probes.hang.processes import read_processes
from healthd.probes.hang.siblings import connected_ranks
from healthd.probes.hang.stacks import read_stack
from healthd.probes.hang.tasks import read_task
from healthd.probes.sysfs import read_bytes

MOST_TASKS = 4096
"""Processes of a pod that are looked at."""
STACK_S = 1.0
"""Seconds for one stack at most."""


def ranks_of_pods(
    pods: Mapping[str, str],
    *,
    until: float,
    proc: str = "/proc",
    now: Callable[[], float] = time.monotonic,
) -> dict[str, list[RankEvidence]]:
    """
    Each rank of these pods, which are their control groups by uid: its state, its network and its stack. The ranks of a
    pod are numbered from 0.

    *until* is a time of *now*. Networks and stacks that cannot be read until then are left out.
    """
    half = now() + (until - now()) / 2  # the rest is for stacks
    ranks = {uid: _ranks(_tasks(group, proc), lambda: now() < half, proc) for uid, group in pods.items()}
    pids = {uid: [task.pid for task in mine] for uid, mine in ranks.items()}
    all_pids, states = [pid for mine in pids.values() for pid in mine], dict[int, ProcessEvidence]()

    def ask_states() -> None:
        states.update(read_processes(all_pids, proc=proc))

    networks = read_networks(all_pids, until=half, meanwhile=ask_states, proc=proc, now=now)

    def seen(number: int, pid: int) -> RankEvidence:
        return RankEvidence(number, process=states[pid], network=networks.get(pid))

    return {
        uid: [_with_stack(seen(number, pid), pid, until - now()) for number, pid in enumerate(mine)]
        for uid, mine in pids.items()
    }


def _with_stack(known: RankEvidence, pid: int, left_s: float) -> RankEvidence:
    if left_s <= 0:
        return known
    try:
        return replace(known, stack=read_stack(pid, deadline_s=min(STACK_S, left_s)))
    except CannotRead:
        return known


def _ranks(tasks: Sequence[PodTask], is_time: Callable[[], bool], proc: str) -> Sequence[PodTask]:
    """Those that a launcher has numbered, else those that are connected with each other, else one."""
    numbered = rank_processes(tasks)
    if len({task.mark for task in numbered if task.mark}) > 1:
        return numbered
    return connected_ranks(tasks, proc, is_time=is_time) or numbered


def _tasks(group: str, proc: str) -> list[PodTask]:
    return [task for pid in pids_of(group) if (task := read_task(pid, proc)) is not None]


def pids_of(group: str) -> list[int]:
    """Of a pod, its containers, and groups that a container made below its own. None of a pod that is gone."""
    words = (word for folder, _, _ in os.walk(group) for word in read_bytes(f"{folder}/cgroup.procs").split())
    return [pid for pid in dict.fromkeys(int(word) for word in words if word.isdigit()) if pid][:MOST_TASKS]
