"""
Which processes are ranks though no launcher has numbered them, as those of `torch.multiprocessing.spawn`. Pure.

They are children of one process, which has used little itself, and each has a TCP connection with another one: process
groups make those. Loaders, pools and managers use pipes and unix sockets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from healthd.core.hang.suspects.rank_processes import LAUNCHES, LEADS, MOST_RANKS, PodTask
from healthd.core.hang.suspects.sockets import TcpSocket

MOST_SIBLINGS = 64
"""Children of one process that are looked at. The connections of more are not read."""
MOST_SETS = 4
"""Parents below which connections are read in one look. A launcher is above the ranks, and they above their loaders."""
IDLE_CORES = 0.1
"""A rank that asks its store whether the others have come uses less."""


class Siblings(NamedTuple):
    """Children of one process, some of which may be ranks."""

    parent: PodTask
    children: tuple[PodTask, ...]
    """The oldest first."""

    @property
    def pids(self) -> list[int]:
        """All of which the connections matter."""
        return [self.parent.pid, *(child.pid for child in self.children)]

    @property
    def alike(self) -> frozenset[int]:
        """Those that have worked about as much as the busiest. A tracker of resources, or a manager, does not."""
        busiest = max(child.cpu for child in self.children)
        return frozenset(child.pid for child in self.children if child.cpu >= LEADS * busiest)


class Connected(NamedTuple):
    """Siblings, and those of them that are connected with each other."""

    siblings: Siblings
    pids: frozenset[int]


def sibling_sets(tasks: Sequence[PodTask]) -> list[Siblings]:
    """Those among *tasks* whose connections are worth a look, the highest first. Their parent has used little."""
    known = {task.pid: task for task in tasks}
    below: dict[int, list[PodTask]] = defaultdict(list)
    for task in tasks:
        if task.parent in known and task.parent != task.pid:
            below[task.parent].append(task)
    found = [
        Siblings(known[pid], tuple(sorted(children, key=lambda child: (child.started, child.pid))))
        for pid, children in below.items()
        if 2 <= len(children) <= MOST_SIBLINGS and known[pid].cpu < LAUNCHES * _cpu(children)
    ]
    likely = [each for each in found if len(each.alike) > 1]
    return sorted(likely, key=lambda each: (_depth(each.parent, known), -_cpu(each.children)))[:MOST_SETS]


def _depth(task: PodTask, known: Mapping[int, PodTask]) -> int:
    """How many processes are above it."""
    seen = {task.pid}
    while (parent := known.get(task.parent)) is not None and parent.pid not in seen:
        seen.add(parent.pid)
        task = parent
    return len(seen)


def _cpu(tasks: Sequence[PodTask]) -> float:
    return sum(task.cpu for task in tasks)


def held_by_one(inodes: Mapping[int, AbstractSet[int]]) -> dict[int, set[int]]:
    """The sockets that one process alone has, by pid. A copy of one that was forked off is no connection of its own."""
    holders = Counter(inode for mine in inodes.values() for inode in mine)
    return {pid: {inode for inode in mine if holders[inode] == 1} for pid, mine in inodes.items()}


def connected_siblings(siblings: Siblings, own: Mapping[int, Collection[TcpSocket]]) -> frozenset[int]:
    """
    The most of them that are connected with each other, by the connections that each has alone. Else one that is
    connected with itself, as the first rank of torch is with its store before another one has come.

    None where they may be ranks of their parent: it is connected with one of them, and works as they do.
    """
    owners = {socket.local: pid for pid, mine in own.items() for socket in mine}
    peers: dict[int, set[int]] = defaultdict(set)
    for pid, mine in own.items():
        for socket in mine:
            if (peer := owners.get(socket.remote)) is not None:
                peers[pid].add(peer)
                peers[peer].add(pid)
    of_parent = peers.pop(siblings.parent.pid, set())
    groups = [each for each in _groups(peers, without=siblings.parent.pid) if any(peers[pid] & each for pid in each)]
    group = max(groups, key=len, default=frozenset[int]())
    busiest = max(child.cpu for child in siblings.children)
    works_with_them = bool(of_parent & group) and siblings.parent.cpu >= LEADS * busiest
    return frozenset() if works_with_them else group


def _groups(peers: Mapping[int, Collection[int]], without: int) -> list[frozenset[int]]:
    """Processes that are connected, directly or by others, but not by *without*."""
    groups: list[frozenset[int]] = []
    seen = {without}
    for pid in peers:
        group, waiting = set[int](), [pid]
        while waiting:
            at = waiting.pop()
            if at not in seen:
                seen.add(at)
                group.add(at)
                waiting += peers[at]
        groups.append(frozenset(group))
    return groups


def ranks_among(
    siblings: Siblings,
    connected: AbstractSet[int],
    cores: Mapping[int, float] = {},
    helpers: AbstractSet[int] = frozenset(),
    *,
    waits: bool = False,
) -> tuple[PodTask, ...]:
    """
    The ranks, the oldest first. None: that is not clear yet, or they are not what works most below their parent.

    *cores*: what each has used of late. One that is not connected, but has worked as much as the others so far, may
    come yet, so while it works it is waited for, if *waits*. Where nothing of all that works, it is one of the ranks:
    for it the others wait. Where the others work without it, it is none, and one of the *helpers* from then on.
    """
    missing = siblings.alike - connected - helpers
    if missing and waits and not _idle(missing, cores):
        return ()
    pids = connected | missing if _idle(missing, cores) and _idle(connected, cores) else connected
    chosen = tuple(child for child in siblings.children if child.pid in pids)
    if not connected or len(chosen) < 2 or _cpu(chosen) <= _cpu(siblings.children) / 2:
        return ()
    return chosen[:MOST_RANKS]


def _idle(pids: Collection[int], cores: Mapping[int, float]) -> bool:
    return all(cores.get(pid, IDLE_CORES) < IDLE_CORES for pid in pids)
