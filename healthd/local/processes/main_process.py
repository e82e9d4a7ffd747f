"""Which process of a rank does its work: its command, or what the shell or launcher around it started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from healthd.core.hang.suspects.system_calls import system_call
from healthd.core.untrusted import number_or
from healthd.probes.process_stat import read_stat

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "timeout", "time"})
"""Programs that start another and wait for it."""
_WAITS_FOR_A_CHILD = frozenset({"wait4", "waitid"})
"""System calls."""
_LAUNCHES = 0.2
"""Of the processor time of what it started: a launcher has used less. A trainer that waits for a copy has more."""
_DEEPEST = 8
_MOST = 256
"""Processes whose processor time is read."""


def main_process(pid: int, shim: int, *, proc: str = "/proc") -> int:
    """
    The process below *pid*, a child of *shim*, that is no shell and no launcher. 0: *pid* has ended.

    A launcher waits for a child to end, and has done little itself. Of several processes that a shell or a launcher
    started, such as a collector of metrics in the background or the rest of a pipeline, it is the one that used most
    processor time, with all that it started itself.
    """
    known = read_stat(pid, proc) if pid else None
    if known is None or known.parent != shim:
        return 0
    for _ in range(_DEEPEST):
        used = {child: sum(_cpu(each, proc) for each in _tree(child, proc)) for child in _children(pid, proc)}
        if not used:
            break
        busiest = max(used, key=lambda child: used[child])
        if not (_is_shell(pid, proc) or _launches(pid, used[busiest], proc)):
            break
        pid = busiest
    return pid


def _is_shell(pid: int, proc: str) -> bool:
    return _text(f"{proc}/{pid}/comm") in _SHELLS


def _launches(pid: int, cpu_below: float, proc: str) -> bool:
    call = _text(f"{proc}/{pid}/syscall").split()[:1]
    if not call or system_call(number_or(call[0], -1), os.uname().machine) not in _WAITS_FOR_A_CHILD:
        return False
    return _cpu(pid, proc) < _LAUNCHES * cpu_below


def _tree(pid: int, proc: str) -> Iterator[int]:
    """*pid* and those below it, `_MOST` at most."""
    waiting, known = [pid], {pid}
    while waiting:
        yield (at := waiting.pop())
        new = [child for child in _children(at, proc) if child not in known][: _MOST - len(known)]
        known.update(new)
        waiting += new


def _children(pid: int, proc: str) -> list[int]:
    """The oldest first. Without those that a thread started which is not the first."""
    words = _text(f"{proc}/{pid}/task/{pid}/children").split()
    return [number for word in words if (number := number_or(word, 0))]


def _cpu(pid: int, proc: str) -> float:
    """Seconds of processor time."""
    stat = read_stat(pid, proc)
    return stat.cpu if stat is not None else 0.0


def _text(path: str) -> str:
    """Empty where it cannot be read: the process is gone, or the kernel lacks the file."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
