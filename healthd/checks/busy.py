"""
Whether any process computes on this machine's GPUs: no check may disturb a gang.

NVML counts the processes on each GPU. /proc names them: a process that computes has `/dev/nvidia-uvm` open, which few
monitors have. In a container both see only what runs in it, unless it shares the host's processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from healthd.checks.devices import GpuInfo

_UVM = "/dev/nvidia-uvm"
MONITORS = frozenset({"nvidia-persiste", "nv-hostengine", "nv-fabricmanage", "dcgm-exporter"})
"""Daemons that may have it open too, by their names as the kernel cuts them. NVML counts what really computes."""
_POD = re.compile(r"pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")


class GpuProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that computes on a GPU. *pod* is the uid of its pod, where it has one."""

    pid: int
    name: str
    pod: str = ""

    def __str__(self) -> str:
        pod = f" of pod {self.pod}" if self.pod else ""
        return f"{self.name} (process {self.pid}{pod})"


def workers(proc: Path = Path("/proc")) -> list[GpuProcess]:
    """The processes that this process may see. Those of other users need root."""
    return sorted(_workers(proc), key=lambda worker: worker.pid)


def occupied(gpus: list[GpuInfo]) -> list[str]:
    """The GPUs on which NVML counts processes, in words."""
    return [f"{gpu.processes:g} on GPU {gpu.index} ({gpu.pci})" for gpu in gpus if gpu.processes]


def _workers(proc: Path) -> Iterator[GpuProcess]:
    for folder in proc.iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid() or not _computes(folder):
            continue
        name = name_of(folder)
        if name not in MONITORS:
            yield GpuProcess(pid=int(folder.name), name=name, pod=pod_of(folder))


def _computes(folder: Path) -> bool:
    try:
        with os.scandir(folder / "fd") as descriptors:
            return any(target_of(one.path) == _UVM for one in descriptors)
    except OSError:  # ended meanwhile, or owned by another user
        return False


def target_of(path: str) -> str:
    """What a descriptor at *path* is open on; empty where it was closed meanwhile."""
    try:
        return os.readlink(path)  # noqa: PTH115 - hundreds of thousands on a large machine
    except OSError:
        return ""


def name_of(folder: Path) -> str:
    """What the process of *folder* calls itself."""
    return _read(folder / "comm") or "?"


def pod_of(folder: Path) -> str:
    """The uid of the pod of the process of *folder*; empty: it is in none."""
    found = _POD.search(_read(folder / "cgroup"))
    return found["uid"].replace("_", "-") if found else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
