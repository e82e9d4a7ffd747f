"""The machine on which the pod of a hand runs, by the root of its first process: what it shows, and its programs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from healthd.checks import busy, programs
from healthd.checks.programs import ProgramResult
from healthd.core.remediation.node_hand import Client
from healthd.probes.klog.kmsg import read_boot_id
from healthd.probes.sysfs import link_name, read_number

ROOT = Path("/proc/1/root")
"""In a pod with the PIDs of its host: the host's own tree."""
_DRIVER_ROOTS = ("", "run/nvidia/driver")
"""Where the programs of the driver are: on the machine, or in the container in which the GPU operator installs it."""
_FOLDERS = ("usr/bin", "bin", "usr/sbin", "sbin", "usr/local/bin")
_ENVIRON = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
_ENTER = "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); os.execv(sys.argv[2], sys.argv[2:])"
"""Becomes a program of another root. The container has the PIDs and the devices of the host, and not its files."""
_NVIDIA, _DISPLAY, _3D = 0x10DE, 0x0300, 0x0302
_UVM = "/dev/nvidia-uvm"
_GPU = re.compile(r"/dev/nvidia\d+")
_KILLED = 1 << 8
"""SIGKILL in the masks of `/proc/PID/status`."""


class CannotSee(Exception):
    """The machine does not show what must be known before anything is done. The message says what."""


class Host(Protocol):
    """What a hand needs of a machine."""

    def boot_id(self) -> str:
        """Of the running boot. Raises CannotSee."""
        ...

    def gpus(self) -> list[str]:
        """The PCI addresses of the GPUs that NVIDIA's driver has. Raises CannotSee."""
        ...

    def clients(self) -> list[Client]:
        """The processes that have a GPU open. Raises CannotSee."""
        ...

    def run(self, *command: str, seconds: float) -> ProgramResult:
        """Run a program of the machine to its end. Raises CannotSee where it has none of this name."""
        ...


class Machine:
    """The machine with its tree at *root*, and its processes at *proc*."""

    def __init__(self, root: Path = ROOT, proc: Path = Path("/proc")) -> None:
        self._root = root
        self._proc = proc

    def boot_id(self) -> str:
        """See `Host`."""
        try:
            return read_boot_id(self._root / "proc/sys/kernel/random/boot_id")
        except OSError as error:
            raise CannotSee(f"the boot id of the machine: {error}") from None

    def gpus(self) -> list[str]:
        """See `Host`."""
        try:
            functions = sorted((self._root / "sys/bus/pci/devices").iterdir())
        except OSError as error:
            raise CannotSee(f"the PCI devices of the machine: {error}") from None
        return [path.name for path in functions if _is_gpu(path)]

    def clients(self) -> list[Client]:
        """See `Host`."""
        return sorted(self._clients(), key=lambda client: client.pid)

    def run(self, *command: str, seconds: float) -> ProgramResult:
        """See `Host`."""
        root, program = self._find(command[0])
        entered = [sys.executable, "-I", "-S", "-c", _ENTER, str(root), program, *command[1:]]
        return programs.run(entered, _ENVIRON, seconds)

    def _find(self, name: str) -> tuple[Path, str]:
        """The root in which a program is, and its path there. A link may be absolute, so it is not followed here."""
        for root in _DRIVER_ROOTS:
            for folder in _FOLDERS:
                if os.path.lexists(self._root / root / folder / name):
                    return self._root / root, f"/{folder}/{name}"
        raise CannotSee(f"{name}: the machine has it in none of {', '.join(f'/{folder}' for folder in _FOLDERS)}")

    def _clients(self) -> Iterator[Client]:
        try:
            folders = [path for path in self._proc.iterdir() if path.name.isdecimal()]
        except OSError as error:
            raise CannotSee(f"the processes of the machine: {error}") from None
        for folder in folders:
            if int(folder.name) == os.getpid():
                continue
            opened = _opened(folder)
            if any(target == _UVM or _GPU.fullmatch(target) for target in opened):
                name = busy.name_of(folder)
                yield Client(
                    pid=int(folder.name),
                    name=name,
                    pod=busy.pod_of(folder),
                    computes=_UVM in opened and name not in busy.MONITORS,
                    is_killed=_is_killed(folder),
                )


def _opened(folder: Path) -> set[str]:
    """What a process has open; nothing of one that ended meanwhile. Raises CannotSee."""
    try:
        with os.scandir(folder / "fd") as descriptors:
            return {busy.target_of(one.path) for one in descriptors}
    except (FileNotFoundError, ProcessLookupError):
        return set()
    except OSError as error:
        raise CannotSee(f"what process {folder.name} has open: {error.strerror}") from None


def _is_killed(folder: Path) -> bool:
    lines: Sequence[str] = ()
    with suppress(OSError):
        lines = (folder / "status").read_text(errors="replace").splitlines()
    masks = [line.partition(":")[2].strip() for line in lines if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(int(mask, 16) & _KILLED for mask in masks)


def _is_gpu(path: Path) -> bool:
    code = (read_number(f"{path}/class") or 0) >> 8
    is_nvidia = read_number(f"{path}/vendor") == _NVIDIA
    return is_nvidia and code in (_DISPLAY, _3D) and link_name(f"{path}/driver") == "nvidia"
