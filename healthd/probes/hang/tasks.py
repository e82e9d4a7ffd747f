"""A process as one that may be a rank: what it has used, and what its launcher told it."""

from __future__ import annotations

from healthd.core.hang.suspects.rank_processes import PodTask
from healthd.probes.process_stat import read_stat
from healthd.probes.sysfs import read_bytes

_MARKS = (b"RANK", b"LOCAL_RANK", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK", b"SLURM_PROCID")
_LONGEST = 16
"""Characters of one of them."""


def read_task(pid: int, proc: str = "/proc") -> PodTask | None:
    """
    Process *pid*. None: it has ended. Its environment is in its memory, so a process that hangs in a driver may keep
    this from returning.
    """
    stat = read_stat(pid, proc)
    return PodTask(pid, stat.parent, stat.cpu, _mark(f"{proc}/{pid}/environ")) if stat is not None else None


def _mark(environ: str) -> str:
    """The variables that tell a process its number as a rank. Nothing else is kept of its environment."""
    pairs = (each.partition(b"=") for each in read_bytes(environ).split(b"\0"))
    values = {name: value for name, _, value in pairs if name in _MARKS}
    return " ".join(_word(values[name]) if name in values else "-" for name in _MARKS if values)


def _word(value: bytes) -> str:
    return "_".join(value.decode(errors="replace")[:_LONGEST].split()) or "-"
