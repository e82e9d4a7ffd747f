"""Which process of a rank does its work: its command, or what the shell around it started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from healthd.core.untrusted import number_or
from healthd.probes.process_stat import read_stat

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "timeout", "time"})
"""Programs that start another and wait for it."""
_DEEPEST = 8
_MOST = 256
"""Processes whose processor time is read."""


def main_process(pid: int, shim: int, *, proc: str = "/proc") -> int:
    """
    The process below *pid*, a child of *shim*, that is no shell. 0: *pid* has ended.

    Of several that a shell started, such as a collector of metrics in the background or the rest of a pipeline, it is
    the one that used most processor time, with all that it started itself.
    """
    known = read_stat(pid, proc) if pid else None
    if known is None or known.parent != shim:
        return 0
    for _ in range(_DEEPEST):
        children = _children(pid, proc) if _text(f"{proc}/{pid}/comm") in _SHELLS else []
        if not children:
            break
        pid = max(children, key=lambda child: sum(_cpu(each, proc) for each in _tree(child, proc)))
    return pid


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
