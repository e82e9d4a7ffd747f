"""
Names of the system calls in which processes wait for long, by the number that /proc shows.

The numbers are those of `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h` of Linux.
"""

from __future__ import annotations

from collections.abc import Iterable

_X86_64 = {
    0: "read", 1: "write", 7: "poll", 16: "ioctl", 17: "pread64", 18: "pwrite64", 23: "select", 24: "sched_yield",
    34: "pause", 35: "nanosleep", 42: "connect", 43: "accept", 44: "sendto", 45: "recvfrom", 46: "sendmsg",
    47: "recvmsg", 61: "wait4", 62: "kill", 72: "fcntl", 73: "flock", 74: "fsync", 75: "fdatasync", 202: "futex",
    230: "clock_nanosleep", 232: "epoll_wait", 234: "tgkill", 247: "waitid", 257: "openat", 262: "newfstatat",
    270: "pselect6", 271: "ppoll", 281: "epoll_pwait", 332: "statx", 426: "io_uring_enter", 441: "epoll_pwait2",
    449: "futex_waitv",
}  # fmt: skip
_GENERIC = {
    22: "epoll_pwait", 25: "fcntl", 29: "ioctl", 32: "flock", 56: "openat", 63: "read", 64: "write", 67: "pread64",
    68: "pwrite64", 72: "pselect6", 73: "ppoll", 79: "newfstatat", 82: "fsync", 83: "fdatasync", 95: "waitid",
    98: "futex", 101: "nanosleep", 115: "clock_nanosleep", 124: "sched_yield", 129: "kill", 131: "tgkill",
    202: "accept", 203: "connect", 206: "sendto", 207: "recvfrom", 211: "sendmsg", 212: "recvmsg", 260: "wait4",
    291: "statx", 426: "io_uring_enter", 441: "epoll_pwait2", 449: "futex_waitv",
}  # fmt: skip
_MACHINES = {"x86_64": _X86_64, "aarch64": _GENERIC}


def system_call(number: int, machine: str) -> str:
    """The name of system call *number* on *machine*, as `uname -m` says it. Its number where it has no name here."""
    return _MACHINES.get(machine, {}).get(number, f"system call {number}")


def numbers_of(names: Iterable[str], machine: str) -> list[int]:
    """The numbers of the system calls *names* on *machine*, of those that it has."""
    wanted = set(names)
    return [number for number, name in _MACHINES.get(machine, {}).items() if name in wanted]
