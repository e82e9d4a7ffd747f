"""
The states of the processes of ranks, from /proc: stopped, blocked in the kernel, or asleep and in which system call.

A rank is a tree: its main process, workers of its data loader, shells around it. One stopped worker stops the rank, so
the tree is as bad as its worst process. One that was stopped before it had done anything does not count. A state counts
when it holds over several looks: a process may be uninterruptible for a moment at any time. What vanishes while it is
read is left out.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from healthd.core.hang.samples import takes_part
from healthd.core.hang.suspects.evidence import ProcessEvidence, TaskState, bounded
from healthd.core.hang.suspects.system_calls import system_call
from healthd.probes.process_stat import read_stat, read_stat_file

LOOKS = 3
PAUSE_S = 0.1
MOST_PROCESSES = 4096
"""Of one rank. The others are left out."""
MOST_THREADS = 4096
"""Of one process."""
_LONGEST = 4096
_STATES = {
    "R": TaskState.RUNNING,
    "S": TaskState.SLEEPING,
    "I": TaskState.SLEEPING,
    "D": TaskState.UNINTERRUPTIBLE,
    "T": TaskState.STOPPED,
    "t": TaskState.STOPPED,
    "Z": TaskState.ZOMBIE,
    "X": TaskState.GONE,
}
_LASTING = (TaskState.STOPPED, TaskState.UNINTERRUPTIBLE)
"""The worst first."""


class _Process(NamedTuple):
    pid: int
    parent: int
    started: int
    """In clock ticks since boot: a number that is used again belongs to another process."""
    cpu: float
    """Seconds of processor time so far."""
    name: str
    states: frozenset[TaskState]
    """Of all its threads."""

    @property
    def key(self) -> tuple[int, int]:
        return self.pid, self.started


_Tree = dict[tuple[int, int], _Process]


def read_processes(
    pids: Sequence[int], *, proc: str = "/proc", looks: int = LOOKS, sleep: Callable[[float], None] = time.sleep
) -> dict[int, ProcessEvidence]:
    """
    What the trees of processes below *pids* are doing, by pid. *pids* are numbers of the namespace that *proc* shows. A
    rank may have started another one, which is no part of its tree.

    Takes `PAUSE_S` for each of *looks* after the first. A process that was never seen is unknown, not gone.
    """
    seen: list[dict[int, _Tree]] = []
    for number in range(looks):
        if number:
            sleep(PAUSE_S)
        parents = _parents(proc)
        seen.append({pid: {each.key: each for each in _tree(pid, parents, proc, without=pids)} for pid in pids})
    return {pid: _evidence(pid, [look[pid] for look in seen], proc) for pid in pids}


def _evidence(pid: int, looks: Sequence[_Tree], proc: str) -> ProcessEvidence:
    roots = [next((process for process in tree.values() if process.pid == pid), None) for tree in looks]
    root, last = roots[-1], looks[-1]
    if root is None:
        was = next((process for process in roots if process is not None), None)
        return ProcessEvidence(TaskState.UNKNOWN if was is None else TaskState.GONE, was.name if was else "", pid)
    if any(process is None or process.key != root.key for process in roots):
        return ProcessEvidence(TaskState.UNKNOWN, root.name, pid, processes=len(last))
    if root.states == {TaskState.ZOMBIE}:
        return ProcessEvidence(TaskState.ZOMBIE, root.name, pid, processes=len(last))
    state, process = _worst(root, looks)
    call, wchan = _waits_in(process.pid, proc)
    return ProcessEvidence(state, process.name, process.pid, call, wchan, len(last))


def _worst(root: _Process, looks: Sequence[_Tree]) -> tuple[TaskState, _Process]:
    """The worst state that one process of the tree had in every look; else whether the main process always ran."""
    for state in _LASTING:
        lasting = [key for key in looks[-1] if all(key in look and state in look[key].states for look in looks)]
        if state is TaskState.STOPPED:
            busiest = max(process.cpu for process in looks[-1].values())
            lasting = [key for key in lasting if takes_part(looks[-1][key].cpu, busiest)]
        if lasting:
            return state, looks[-1][min(lasting)]
    runs = all(root.key in look and TaskState.RUNNING in look[root.key].states for look in looks)
    return (TaskState.RUNNING if runs else TaskState.SLEEPING), root


def _parents(proc: str) -> dict[int, list[int]]:
    """The children of each process, by the parent."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid in _numbers(proc):
        if (stat := read_stat(pid, proc)) is not None:
            children[stat.parent].append(pid)
    return children


def _tree(pid: int, children: Mapping[int, Iterable[int]], proc: str, without: Iterable[int]) -> Iterator[_Process]:
    waiting, known = [pid], {pid, *without}
    most = len(known) + MOST_PROCESSES
    while waiting and len(known) < most:
        at = waiting.pop()
        if (process := _read(at, proc)) is not None:
            yield process
        for child in children.get(at, ()):
            if child not in known:
                known.add(child)
                waiting.append(child)


def _read(pid: int, proc: str) -> _Process | None:
    main = read_stat(pid, proc)
    if main is None:
        return None
    threads = _numbers(f"{proc}/{pid}/task")[:MOST_THREADS]
    each = (read_stat_file(f"{proc}/{pid}/task/{thread}/stat") for thread in threads)
    states = {_STATES.get(stat.state, TaskState.UNKNOWN) for stat in [main, *each] if stat is not None}
    return _Process(pid, main.parent, main.started, main.cpu, bounded(main.name), frozenset(states))


def _waits_in(pid: int, proc: str) -> tuple[str, str]:
    """System call and kernel function, each empty where it may not be read."""
    words = _text(f"{proc}/{pid}/syscall").split()
    call = system_call(int(words[0]), os.uname().machine) if words and words[0].isdecimal() else ""
    wchan = _text(f"{proc}/{pid}/wchan")
    return call, "" if wchan == "0" else bounded(wchan)


def _text(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return file.read(_LONGEST).decode(errors="replace").strip()
    except OSError:
        return ""


def _numbers(folder: str) -> list[int]:
    try:
        with os.scandir(folder) as entries:
            return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())
    except OSError:
        return []
