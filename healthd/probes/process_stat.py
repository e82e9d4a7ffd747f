"""
What the kernel keeps of each process and thread in one line: `/proc/PID/stat`, and `schedstat` beside it.

The second field of the first is a name that the process chose: it may have spaces, parentheses and newlines. So
everything is counted from the last parenthesis. Source of the fields: proc_pid_stat(5).
"""

from __future__ import annotations

import os
from typing import NamedTuple

LONGEST = 4096
"""Bytes that are read: about fifty numbers and a name of 64 characters at most."""
TICK = 1 / os.sysconf("SC_CLK_TCK")
"""Seconds."""


class ProcessStat(NamedTuple):
    """What is read of that line."""

    name: str
    """Chosen by the process: 15 bytes, of a kernel thread up to 64."""
    state: str
    """One letter, such as `S`."""
    parent: int
    """0 where the parent is outside of this PID namespace."""
    faults: int
    """Pages that it touched for the first time, without a read from a disk."""
    cpu: float
    """Seconds of processor time, of all its threads."""
    reaped_cpu: float
    """The same of its children that ended and were waited for."""
    started: int
    """In clock ticks since boot: a number of a process that is used again belongs to another one."""
    in_kernel: float
    """The part of *cpu* that the kernel used for it, for its system calls."""


def parse_stat(line: bytes) -> ProcessStat | None:
    """None: the kernel does not write such a line."""
    head, _, tail = line.rpartition(b")")
    fields = tail.split()
    try:
        parent, faults, user, system, reaped_user, reaped_system, started = map(
            int, (fields[1], fields[7], *fields[11:15], fields[19])
        )
    except (IndexError, ValueError):
        return None
    name, state = head.partition(b"(")[2].decode(errors="replace"), fields[0].decode(errors="replace")
    return ProcessStat(
        name,
        state,
        parent,
        faults,
        (user + system) * TICK,
        (reaped_user + reaped_system) * TICK,
        started,
        system * TICK,
    )


class Scheduled(NamedTuple):
    """How long a thread was scheduled since it began, in seconds."""

    ran: float
    """It had a processor."""
    starved: float
    """It was ready to run, and had none."""


def parse_schedstat(line: bytes) -> Scheduled | None:
    """Of nanoseconds with a processor, without one, and a count. None: it is empty, where the kernel does not count."""
    try:
        ran, starved, *_ = map(int, line.split())
    except ValueError:
        return None
    return Scheduled(ran / 1e9, starved / 1e9)


def read_stat(pid: int, proc: str = "/proc") -> ProcessStat | None:
    """Of process *pid*, from the process file system at *proc*. None: it has ended, or must not be seen."""
    return read_stat_file(f"{proc}/{pid}/stat")


def read_stat_file(path: str) -> ProcessStat | None:
    """The same from *path*, which may be that of a thread (`/proc/PID/task/TID/stat`)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse_stat(os.read(descriptor, LONGEST))
    except OSError:  # it ended between opening and reading
        return None
    finally:
        os.close(descriptor)
