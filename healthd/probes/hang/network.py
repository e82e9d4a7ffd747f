"""
What ranks do with the network, from /proc: their TCP connections with what is not acknowledged, and the system calls in
which their threads wait. Nothing of the job is touched: no socket is opened, no thread is stopped.

The tables of a network namespace are read once for all ranks in it. What may not be read, or is too much, is not known.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import NamedTuple

from healthd.core.hang.suspects.evidence import NetworkEvidence
from healthd.core.hang.suspects.sockets import (
    RUNNING,
    Look,
    TcpSocket,
    ThreadCall,
    network_evidence,
    read_table,
    socket_inode,
)
from healthd.core.hang.suspects.system_calls import system_call
from healthd.probes.sysfs import names_in, read_bytes, read_lines

PAUSE_S = 0.1
"""Between the two looks at least."""
MOST_ROWS = 65_536
"""Of the tables of a network namespace. What is beyond is not known."""
MOST_DESCRIPTORS = 16_384
MOST_THREADS = 256
"""Of one process. One with more counts as one whose threads could not be read."""
_TABLES = {"tcp": "sockstat", "tcp6": "sockstat6"}
"""The tables of connections, and where the kernel counts what is in them."""
_NONE_IN_USE = ("TCP: inuse 0 ", "TCP6: inuse 0")
_NAMESPACE = re.compile(r"net:\[(\d{1,18})\]")

Now = Callable[[], float]


def read_networks(
    pids: Sequence[int],
    *,
    until: float,
    meanwhile: Callable[[], object] = lambda: time.sleep(PAUSE_S),
    proc: str = "/proc",
    now: Now = time.monotonic,
) -> dict[int, NetworkEvidence]:
    """
    What holds in two looks at each of *pids*, which are numbers of the namespace that *proc* shows. *meanwhile* is
    called between the two, once in any case, and takes `PAUSE_S` at least.

    One whose descriptors may not be read is left out, and so is each that was not looked at twice by *until*, a time of
    *now*.
    """
    first = _first_looks(pids, proc, until, now)
    meanwhile()
    looks = ((pid, before, _second_look(pid, before.look, proc)) for pid, before in first.items() if now() < until)
    return {pid: network_evidence(before.look, look, before.namespace) for pid, before, look in looks if look}


class _Before(NamedTuple):
    """The first look at a process."""

    namespace: int
    look: Look


def _first_looks(pids: Sequence[int], proc: str, until: float, now: Now) -> dict[int, _Before]:
    in_namespace: dict[int, dict[int, set[int]]] = defaultdict(dict)
    """Inodes, by namespace and process. A process whose namespace is not known is alone in one."""
    for pid in pids:
        if now() < until and (inodes := socket_inodes(pid, proc)) is not None:
            in_namespace[_namespace(pid, proc) or -pid][pid] = inodes
    looks: dict[int, _Before] = {}
    for namespace, together in in_namespace.items():
        if now() < until:
            sockets = connections_of(next(iter(together)), set().union(*together.values()), proc)
            for pid, inodes in together.items():
                own = {inode: sockets[inode] for inode in inodes & sockets.keys()}
                looks[pid] = _Before(max(0, namespace), Look(own, _threads(pid, proc)))
    return looks


def _second_look(pid: int, before: Look, proc: str) -> Look | None:
    """
    The tables are read again only where something seemed lost: the kernel goes through all connections for each.

    None: the process is gone.
    """
    if not names_in(f"{proc}/{pid}/task"):
        return None
    lost = {inode for inode, socket in before.sockets.items() if socket.lost}
    again = connections_of(pid, lost, proc) if lost else {}
    kept = {inode: socket for inode, socket in before.sockets.items() if inode not in lost}
    return Look({**kept, **again}, _threads(pid, proc))


def connections_of(pid: int, inodes: set[int], proc: str) -> dict[int, TcpSocket]:
    """Those of *inodes* in the network namespace of *pid*."""
    net = f"{proc}/{pid}/net"
    tables = [name for name, count in _TABLES.items() if not _is_empty(f"{net}/{count}")]
    return {inode: each for name in tables for inode, each in _table(f"{net}/{name}", inodes)}


def _is_empty(path: str) -> bool:
    """Whether no socket is in use. To make a table the kernel goes through those of all namespaces: milliseconds."""
    return any(line.startswith(_NONE_IN_USE) for line in read_lines(path))


def _table(path: str, inodes: Collection[int]) -> list[tuple[int, TcpSocket]]:
    try:
        with open(path, "rb") as table:
            return list(read_table(islice(table, MOST_ROWS), inodes))
    except OSError:
        return []


def socket_inodes(pid: int, proc: str, most: int = MOST_DESCRIPTORS) -> set[int] | None:
    """The inodes of the sockets of a process. None: its descriptors may not be read, or are more than *most*."""
    folder = f"{proc}/{pid}/fd"
    names = names_in(folder)
    if not names or len(names) > most:
        return None
    return {inode for name in names if (inode := socket_inode(_target(f"{folder}/{name}"))) is not None}


def _threads(pid: int, proc: str) -> tuple[ThreadCall, ...]:
    """The main thread first."""
    threads = [int(name) for name in names_in(f"{proc}/{pid}/task") if name.isdecimal()]
    if len(threads) > MOST_THREADS or pid not in threads:
        return ()
    return tuple(_thread(pid, thread, proc) for thread in sorted(threads, key=lambda thread: (thread != pid, thread)))


def _thread(pid: int, thread: int, proc: str) -> ThreadCall:
    words = read_bytes(f"{proc}/{pid}/task/{thread}/syscall", 4096).decode(errors="replace").split()
    if words[:1] == [RUNNING]:
        return ThreadCall(RUNNING)
    if len(words) < 2 or not words[0].isdecimal():
        return ThreadCall("")
    try:
        descriptor = int(words[1], 16)
    except ValueError:
        return ThreadCall("")
    call = system_call(int(words[0][:9]), os.uname().machine)
    return ThreadCall(call, _target(f"{proc}/{pid}/fd/{descriptor}"))


def _namespace(pid: int, proc: str) -> int:
    """0: not known."""
    match = _NAMESPACE.fullmatch(_target(f"{proc}/{pid}/ns/net"))
    return int(match[1]) if match else 0


def _target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - paths are words in probes
    except OSError:
        return ""
