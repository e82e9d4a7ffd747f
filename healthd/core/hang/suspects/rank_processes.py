"""
Which processes of a pod are ranks: a pod may have one for each of its GPUs, with launchers, shells and loaders around.

Launchers tell each rank its number by a variable (`RANK`, `LOCAL_RANK`), which all processes below it inherit. So a
rank is a tree of processes with the same mark. In it, the first process that has worked much is the one that trains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

MOST_RANKS = 16
"""Of one pod that are asked."""
LEADS = 0.2
"""Of the processor time of the busiest in its tree. Shells and launchers, which come first, have less."""


class PodTask(NamedTuple):
    """One process of a pod."""

    pid: int
    parent: int
    cpu: float
    """Seconds of processor time so far."""
    mark: str = ""
    """Its number as a rank, as its launcher says it. Empty: it has none, or that cannot be read."""


def rank_processes(tasks: Sequence[PodTask]) -> list[int]:
    """The process of each rank of a pod, by pid; `MOST_RANKS` at most, in the order of their trees."""
    known = {task.pid: task for task in tasks}
    children: dict[int, list[PodTask]] = defaultdict(list)
    for task in tasks:
        children[task.parent].append(task)
    tops = [task for task in tasks if _begins_tree(task, known)]
    if any(task.mark for task in tops):
        launchers = {pid for task in tops if task.mark for pid in _above(task, known)}
        tops = [task for task in tops if task.mark and task.pid not in launchers]
    return [_leading(list(_tree(top, children))) for top in tops[:MOST_RANKS]]


def _begins_tree(task: PodTask, known: Mapping[int, PodTask]) -> bool:
    """Whether no process above it in the pod is of the same rank."""
    parent = known.get(task.parent)
    return parent is None or parent.mark != task.mark


def _above(task: PodTask, known: Mapping[int, PodTask]) -> Iterator[int]:
    """The processes above it in the pod. A launcher may have a mark of its own, as the launcher of its node."""
    seen = {task.pid}
    while (parent := known.get(task.parent)) is not None and parent.pid not in seen:
        seen.add(parent.pid)
        yield parent.pid
        task = parent


def _tree(top: PodTask, children: Mapping[int, Sequence[PodTask]]) -> Iterator[PodTask]:
    """*top* and those below it of the same rank, those closer to it first."""
    waiting, seen = [top], {top.pid}
    while waiting:
        task = waiting.pop(0)
        yield task
        below = [child for child in children.get(task.pid, ()) if child.mark == top.mark and child.pid not in seen]
        seen |= {child.pid for child in below}
        waiting += below


def _leading(tree: Sequence[PodTask]) -> int:
    most = max(task.cpu for task in tree)
    return next(task.pid for task in tree if task.cpu >= LEADS * most)
