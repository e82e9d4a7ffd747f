"""
Asks NCCL's RAS about the ranks of a run, where that is safe: the version of their NCCL is known not to crash when it is
asked, and the port belongs to these ranks. It may belong to another job on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from healthd.core.hang.suspects.ras import FIRST_SAFE, RasRank, Version, refusal
from healthd.core.untrusted import number_or
from healthd.probes.errors import CannotRead
from healthd.probes.hang.nccl_ras import PORT, RasRefused, ask_ras, version_of_library

_LISTENS = "0A"
_LIBRARY = "/libnccl.so"
_REMEDY = "ask by hand: echo 'verbose status' | nc localhost 28028"


def ask_nccl(
    pids: Sequence[int],
    *,
    port: int = PORT,
    deadline_s: float,
    first_safe: Version = FIRST_SAFE,
    proc: str = "/proc",
) -> dict[int, RasRank]:
    """
    What RAS says of each of the ranks whose processes are *pids*, all of one gang. Empty where they do not use NCCL.

    Raises CannotRead, also where they must not be asked.
    """
    paths = {path for pid in pids for path in _libraries(pid, proc)}
    if not paths:
        return {}
    versions = {_version(path) for path in paths}
    oldest = None if None in versions else min(version for version in versions if version is not None)
    if why := refusal(oldest, first_safe):
        raise RasRefused("NCCL RAS", why, _REMEDY)
    if not _is_owned(port, pids, proc):
        raise CannotRead("NCCL RAS", f"port {port} is not of this run, or not of it alone", _REMEDY)
    return ask_ras(len(pids), oldest, port=port, deadline_s=deadline_s, first_safe=first_safe)


def _libraries(pid: int, proc: str) -> Iterator[str]:
    """The files of NCCL that a process has mapped."""
    with suppress(OSError), open(f"{proc}/{pid}/maps", errors="replace") as maps:
        for line in maps:
            if _LIBRARY in line:
                yield line.rstrip("\n").split(maxsplit=5)[-1]


def _version(path: str) -> Version | None:
    """None where it cannot be read: it was replaced since."""
    try:
        return version_of_library(path)
    except OSError:
        return None


def _is_owned(port: int, pids: Sequence[int], proc: str) -> bool:
    """Whether all sockets that listen at *port* belong to *pids*, and there is one."""
    listening = {inode for table in ("tcp", "tcp6") for inode in _listening(f"{proc}/net/{table}", port)}
    return bool(listening) and listening <= {inode for pid in pids for inode in _sockets(pid, proc)}


def _listening(table: str, port: int) -> Iterator[str]:
    """The inodes of the sockets that listen at *port*."""
    with suppress(OSError), open(table) as rows:
        for row in rows:
            fields = row.split()
            if len(fields) > 9 and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _sockets(pid: int, proc: str) -> Iterator[str]:
    """The inodes of the sockets that a process has open."""
    with suppress(OSError):
        for descriptor in Path(f"{proc}/{pid}/fd").iterdir():
            with suppress(OSError):
                yield str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]")


def port_in(address: str) -> int:
    """The port of `NCCL_RAS_ADDR`, which is `host:port` or `:port`."""
    return number_or(address.rpartition(":")[2], PORT, most=65535)
