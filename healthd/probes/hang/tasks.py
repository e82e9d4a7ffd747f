"""A process as one that may be a rank: what it has used, and what its launcher told it."""

from __future__ import annotations

from healthd.core.hang.suspects.rank_processes import PodTask
from healthd.probes.process_stat import read_stat
from healthd.probes.sysfs import read_bytes

_NUMBERS = (b"RANK", b"LOCAL_RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"SLURM_PROCID")
_PORT = b"MASTER_PORT"
_LONGEST = 16
"""Characters of one of them."""


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
    return PodTask(pid, stat.parent, stat.cpu, mark, values.get(_PORT, ""))


def _word(value: bytes) -> str:
    return "_".join(value.decode(errors="replace")[:_LONGEST].split()) or "-"
