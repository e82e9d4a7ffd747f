"""Which siblings have TCP connections with each other, from /proc: ranks that no launcher has numbered."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from healthd.core.hang.suspects.rank_processes import PodTask
from healthd.core.hang.suspects.sibling_ranks import (
    Connected,
    Siblings,
    connected_siblings,
    held_by_one,
    ranks_among,
    sibling_sets,
)
from healthd.probes.hang.network import connections_of, socket_inodes

MOST_DESCRIPTORS = 32_768
"""Of siblings and their parent together that are read, an equal part of each: a process that has more is left out."""


def connected_ranks(
    tasks: Sequence[PodTask], proc: str = "/proc", *, is_time: Callable[[], bool] = lambda: True
) -> tuple[PodTask, ...]:
    """The ranks among the processes of a pod, by one look at those that are connected now. Empty: there are none."""
    connected = first_connected(sibling_sets(tasks), proc, is_time=is_time)
    return ranks_among(*connected) if connected is not None else ()


def first_connected(
    sets: Sequence[Siblings], proc: str = "/proc", *, is_time: Callable[[], bool] = lambda: True
) -> Connected | None:
    """The first of *sets* in which some are connected, and which. None: none, or no time is left to see it."""
    for siblings in sets:
        if is_time() and (pids := read_connected(siblings, proc)):
            return Connected(siblings, pids)
    return None


def read_connected(siblings: Siblings, proc: str = "/proc", *, most: int = MOST_DESCRIPTORS) -> frozenset[int]:
    """
    See `connected_siblings`. None where the descriptors of the parent are not read: it may have handed on its own.

    The kernel makes the tables of connections only where one of them has a socket of its own.
    """
    of_each = most // len(siblings.pids)
    inodes = {pid: found for pid in siblings.pids if (found := socket_inodes(pid, proc, of_each)) is not None}
    own = {pid: mine for pid, mine in held_by_one(inodes).items() if mine}
    if siblings.parent.pid not in inodes or not own.keys() - {siblings.parent.pid}:
        return frozenset()
    sockets = connections_of(siblings.children[0].pid, set().union(*own.values()), proc)
    return connected_siblings(
        siblings, {pid: [sockets[inode] for inode in mine & sockets.keys()] for pid, mine in own.items()}
    )
