"""A process as one that may be a rank: what it has used, and the number that its launcher gave it."""

from __future__ import annotations

from collections.abc import Iterable

from healthd.core.hang.suspects.rank_processes import NUMBERS, PodTask
from healthd.probes.process_stat import read_stat
from healthd.probes.sysfs import read_bytes

_NUMBERS = tuple(map(str.encode, NUMBERS))
_PORT = b"MASTER_PORT"
_LONGEST = 16
"""Characters of one of them."""
BEGUN = 0.5
"""Seconds of processor time. What has used less may be about to start its program: until then it has the environment of
its parent."""


def read_task(pid: int, proc: str = "/proc") -> PodTask | None:
    """
    Process *pid*. None: it has ended. Its environment is in its memory, so a process that hangs in a driver may keep
    this from returning. Nothing else is kept of it.
    """
    stat = read_stat(pid, proc)
    if stat is None:
        return None
    pairs = (each.partition(b"=") for each in read_bytes(f"{proc}/{pid}/environ").split(b"\0"))
    values = {name: _word(value) for name, _, value in pairs if name in (*_NUMBERS, _PORT)}
    is_numbered = any(name in values for name in _NUMBERS)
    mark = " ".join(values.get(name, "-") for name in _NUMBERS) if is_numbered else ""
    return PodTask(pid, stat.parent, stat.cpu, mark, values.get(_PORT, ""), stat.started)


class KnownTasks:
    """The processes of one pod, of which it reads what is new."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._known: dict[int, PodTask] = {}
        """By pid."""

    def read(self, pids: Iterable[int]) -> list[PodTask]:
        """These, without such as have ended."""
        found = [task for pid in pids if (task := self._read(pid)) is not None]
        self._known = {task.pid: task for task in found}
        return found

    def _read(self, pid: int) -> PodTask | None:
        stat, known = read_stat(pid, self._proc), self._known.get(pid)
        if stat is None:
            return None
        if known is not None and known.started == stat.started and known.cpu >= BEGUN:
            return known._replace(parent=stat.parent, cpu=stat.cpu)
        return read_task(pid, self._proc)


def _word(value: bytes) -> str:
    return "_".join(value.decode(errors="replace")[:_LONGEST].split()) or "-"
