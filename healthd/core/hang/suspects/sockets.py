"""
What the kernel shows of a process and its TCP connections, read twice, as evidence. Pure.

A peer that no longer receives shows at those that talk to it: what they sent stays in the send queue, and is sent again
and again. One that only does not read shows nothing of the kind, because its kernel acknowledges. The columns are those
of `get_tcp4_sock` in net/ipv4/tcp_ipv4.c.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from healthd.core.hang.suspects.evidence import MOST_CONNECTIONS, Connection, NetworkEvidence

FEWEST_RETRANSMISSIONS = 3
"""
In a row without an answer: a second and a half at least. A silence is ten seconds old when it is looked at, so a
connection that was lost with it has sent five times; one that lost a few packets has recovered.
"""
_ESTABLISHED = b"01"
_RETRANSMITS = b"01"
"""The timer that runs. A peer that does not read is probed by another one."""
_ROW = re.compile(rb"\d+:")
_COLUMNS = 12
_SOCKET = re.compile(r"socket:\[(\d{1,18})\]")
_ON_A_SOCKET = frozenset({"read", "recvfrom", "recvmsg", "write", "sendto", "sendmsg"})
"""They wait until the peer sends, or reads what was sent."""
_READS_OR_WRITES = frozenset({"read", "write"})
_ELSEWHERE = frozenset(
    {"nanosleep", "clock_nanosleep", "futex", "pread64", "pwrite64", "fsync", "fdatasync", "openat", "newfstatat"}
)
"""
System calls that wait for nothing on the network, unless a file lies there. Left out is what may wait for anything:
poll, a lock on a file, the end of a child, a signal.
"""
RUNNING = "running"
"""In the place of a system call: the thread is in none."""


class TcpSocket(NamedTuple):
    """One established connection."""

    local: str
    remote: str
    lost: int
    """Bytes that are sent again and again. 0: none."""


class ThreadCall(NamedTuple):
    """What a thread does."""

    call: str
    """The system call in which it waits, or `RUNNING`. Empty: that could not be read."""
    target: str = ""
    """What the first argument stands for, where it is a descriptor: `socket:[4711]`, `pipe:[4712]`, a path."""


class Look(NamedTuple):
    """One look at a process."""

    sockets: Mapping[int, TcpSocket]
    """Its own, by inode."""
    threads: Sequence[ThreadCall]
    """The main thread first. Empty: they could not be read, or are too many."""


def read_table(lines: Iterable[bytes], inodes: Collection[int]) -> Iterator[tuple[int, TcpSocket]]:
    """The established connections among *inodes*, by lines of `/proc/PID/net/tcp` or `tcp6`."""
    for line in lines:
        fields = line.split()
        if len(fields) < _COLUMNS or fields[3] != _ESTABLISHED or not _ROW.fullmatch(fields[0]):
            continue
        try:
            inode = int(fields[9])
            if inode in inodes:
                yield inode, TcpSocket(_endpoint(fields[1]), _endpoint(fields[2]), _lost(fields))
        except ValueError:
            continue


def _lost(fields: Sequence[bytes]) -> int:
    """The bytes in the send queue of a connection on which nothing is acknowledged any more."""
    timer, retransmissions = fields[5].partition(b":")[0], int(fields[6], 16)
    if timer != _RETRANSMITS or retransmissions < FEWEST_RETRANSMISSIONS:
        return 0
    return int(fields[4].partition(b":")[0], 16)


def _endpoint(field: bytes) -> str:
    """`0100007F:7148` is 127.0.0.1:29000: words of 32 bits in the order of this machine, which is little-endian."""
    address, _, port = field.partition(b":")
    raw = bytes.fromhex(address.decode("ascii"))
    data = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    if len(data) == 4:
        return f"{IPv4Address(data)}:{int(port, 16)}"
    whole = IPv6Address(data)
    return f"{whole.ipv4_mapped}:{int(port, 16)}" if whole.ipv4_mapped else f"[{whole}]:{int(port, 16)}"


def socket_inode(target: str) -> int | None:
    """The inode of a descriptor's *target*. None: it is no socket."""
    match = _SOCKET.fullmatch(target)
    return int(match[1]) if match else None


def network_evidence(first: Look, second: Look, namespace: int = 0) -> NetworkEvidence:
    """What holds in both looks at one process."""
    awaited = _awaited(first) if _awaited(first) == _awaited(second) else None
    both = [(inode, socket) for inode, socket in second.sockets.items() if _is_same(first.sockets.get(inode), socket)]
    connections = (
        Connection(socket.local, socket.remote, min(socket.lost, first.sockets[inode].lost), inode == awaited)
        for inode, socket in both
    )
    return NetworkEvidence(telling(connections), _is_elsewhere(first) and _is_elsewhere(second), namespace)


def _is_same(before: TcpSocket | None, after: TcpSocket) -> bool:
    """A number that was used again in between is another connection."""
    return before is not None and (before.local, before.remote) == (after.local, after.remote)


def telling(connections: Iterable[Connection], most: int = MOST_CONNECTIONS) -> tuple[Connection, ...]:
    """*most* of *connections*: those that are lost or awaited first."""
    return tuple(sorted(connections, key=_less_telling)[:most])


def _less_telling(connection: Connection) -> tuple[bool, bool, str, str]:
    return not connection.unacknowledged, not connection.is_awaited, connection.local, connection.remote


def _awaited(look: Look) -> int | None:
    """The inode of the connection on which the main thread waits."""
    main = look.threads[0] if look.threads else ThreadCall("")
    return socket_inode(main.target) if main.call in _ON_A_SOCKET else None


def _is_elsewhere(look: Look) -> bool:
    return bool(look.threads) and all(map(_waits_elsewhere, look.threads))


def _waits_elsewhere(thread: ThreadCall) -> bool:
    if thread.call in _READS_OR_WRITES:
        is_file = thread.target.startswith("/") and not thread.target.startswith("/dev/")
        return is_file or thread.target.startswith("pipe:[")
    return thread.call == RUNNING or thread.call in _ELSEWHERE
