"""Which siblings have TCP connections with each other, from /proc."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from healthd.core.hang.suspects.sibling_ranks import Connected, Siblings, connected_siblings, held_by_one
from healthd.probes.hang.network import connections_of, socket_inodes


def first_connected(
    sets: Sequence[Siblings], proc: str = "/proc", *, is_time: Callable[[], bool] = lambda: True
) -> Connected | None:
    """The first of *sets* in which some are connected, and which. None: none, or no time is left to see it."""
    for siblings in sets:
        if is_time() and (pids := read_connected(siblings, proc)):
            return Connected(siblings, pids)
    return None


def read_connected(siblings: Siblings, proc: str = "/proc") -> frozenset[int]:
    """
    See `connected_siblings`. None where the descriptors of the parent cannot be read: it may have handed on its own.

    The kernel makes the tables of connections only where one of them has a socket of its own.
    """
    inodes = {pid: found for pid in siblings.pids if (found := socket_inodes(pid, proc)) is not None}
    own = {pid: mine for pid, mine in held_by_one(inodes).items() if mine}
    if siblings.parent.pid not in inodes or not own.keys() - {siblings.parent.pid}:
        return frozenset()
    sockets = connections_of(siblings.children[0].pid, set().union(*own.values()), proc)
    return connected_siblings(
        siblings, {pid: [sockets[inode] for inode in mine & sockets.keys()] for pid, mine in own.items()}
    )
