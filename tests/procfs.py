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
