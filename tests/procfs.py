"""The files of a process file system, written as the kernel writes them."""

from __future__ import annotations


def a_stat_line(
    pid: int,
    name: str = "python3",
    *,
    state: str = "S",
    parent: int = 1,
    faults: int = 0,
    ticks: int = 0,
    started: int = 5,
) -> str:
    """`/proc/PID/stat`. *ticks* of processor time, *started* in ticks since boot."""
    before = f"{pid} ({name}) {state} {parent} {pid} {pid} 0 -1 4194304 {faults} 0 0 0"
    return f"{before} {ticks} 0 0 0 20 0 1 0 {started} 0 0\n"


def a_tcp_line(
    local: str,
    remote: str,
    inode: int,
    *,
    state: str = "01",
    unsent: int = 0,
    unread: int = 0,
    timer: str = "00",
    retransmissions: int = 0,
) -> str:
    """A line of `/proc/PID/net/tcp`. Endpoints are as the kernel writes them: `0100007F:7148`."""
    queues = f"{unsent:08X}:{unread:08X} {timer}:00000049 {retransmissions:08X}"
    return f"   0: {local} {remote} {state} {queues}     0        0 {inode} 2 ffff888000000000 652 4 10 1 -1\n"
