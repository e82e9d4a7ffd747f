"""
NVIDIA's helpers on the host: nvidia-persistenced, the fabric manager, and the module nvidia-peermem.

Modules are visible to every process. Daemons are not: a pod has a /run, a /proc and a network of its own, and a socket
that a container runtime mounted into it goes stale when the daemon restarts. So a daemon is reported only where the
host's own folder is visible. Where NVML answers, its persistence mode and fabric state are the better witnesses.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.probes.sysfs import read_number

_NAMES = {"nvidia-persistenced": "persistenced", "nvidia-fabricmanager": "fabric_manager"}
"""Folders in /run, and their names in readings."""


class Services:
    """
    `services.peermem` (`loaded` or `absent`), where both GPUs and RDMA have drivers; `services.persistenced` and
    `services.fabric_manager` (`answers` or `dead`), where they ran on this host and are visible.

    *run* and *proc*: the host's own /run and /proc. None where they are not visible.
    """

    source = "services"
    every = timedelta(seconds=30)

    def __init__(self, sys: Path = Path("/sys"), *, run: Path | None = None, proc: Path | None = None) -> None:
        self._modules = sys / "module"
        self._run = run
        self._proc = proc

    def sample(self, now: datetime) -> Sample:
        """Connects to sockets and sends nothing."""
        return Sample(source=self.source, at=now, readings=[*self._peermem(), *self._daemons()])

    def _peermem(self) -> Iterator[Reading]:
        if self._has_module("nvidia") and self._has_module("ib_core"):
            is_loaded = self._has_module("nvidia_peermem") or self._has_module("nv_peer_mem")
            yield Reading(NODE, "services.peermem", "loaded" if is_loaded else "absent")

    def _has_module(self, name: str) -> bool:
        return (self._modules / name).exists()

    def _daemons(self) -> Iterator[Reading]:
        for folder, name in _NAMES.items() if self._run is not None else ():
            place = Path(self._run or "", folder)
            answers = _answers(place / "socket")
            if answers is None:
                answers = self._runs(place)
            if answers is not None:
                yield Reading(NODE, f"services.{name}", "answers" if answers else "dead")

    def _runs(self, place: Path) -> bool | None:
        """By the number in its pid file. None: there is no such file, or no /proc to find the process in."""
        pids = [pid for file in place.glob("*.pid") if (pid := read_number(str(file))) is not None]
        if self._proc is None or not pids:
            return None
        return any((self._proc / str(pid)).exists() for pid in pids)


def _answers(path: Path) -> bool | None:
    """Whether a process listens at the socket. None: there is none, or access is denied."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.setblocking(False)
        refusal = caller.connect_ex(str(path))
    if refusal in {0, errno.EAGAIN, errno.EINPROGRESS}:
        return True
    return False if refusal == errno.ECONNREFUSED else None
