"""
A machine of the lab: processes that have a root, a network, cgroups and process numbers of their own.

It knows nothing of Kubernetes. When its first process dies everything in it dies, which the kernel sees to: that is
how it is switched off, and why a crash of the lab leaves no process, mount or network behind. Its cgroups and its
directory are all that has to be removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.lab.programs import LabError, Program, started_at, wait_until
from tests.lab.real.cgroups import Cgroup

_BOOT = Path(__file__).with_name("boot.sh")
_CGROUP = "cgroup"
"""The file with the directories of the machine's cgroup, for the cleanup after a crash."""
_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup")


class Machine:
    """
    Off until `start`. What it writes to its root survives `stop` and `start`, as on a disk; /run does not.

    *system* is the tree of its operating system, shared and not written to. *visible* maps paths in the machine to
    files and directories of the host.
    """

    def __init__(
        self,
        name: str,
        *,
        directory: Path,
        system: Path,
        visible: Mapping[str, Path],
        cgroup: Cgroup,
        stays: bool = False,
    ) -> None:
        self.name = name
        self.directory = directory
        self.cgroup = cgroup
        self._stays = stays
        command = [
            *cgroup.enter(),
            *("unshare", *_NAMESPACES, "--propagation", "private", "--fork", "--kill-child"),
            *("sh", str(_BOOT), str(directory), str(system), name, " ".join(cgroup.hierarchies)),
            *(word for target, source in visible.items() for word in (str(source), target)),
        ]
        self.keeper = Program(f"machine {name}", command, log=directory / "boot.log", stays=stays)

    @property
    def pid(self) -> int:
        """Of its first process, as the host counts. Raises LabError when the machine is off."""
        if self.keeper.pid is None:
            raise LabError(f"the machine {self.name} is off")
        return int((self.directory / "pid").read_text())

    @property
    def boot_id(self) -> str:
        """Another one at each start."""
        return self.run("cat", "/proc/sys/kernel/random/boot_id").strip()

    def start(self) -> None:
        """Switch it on; returns when its root stands. Raises LabError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.keeper.log.unlink(missing_ok=True)
        (self.directory / _CGROUP).write_text("\n".join(map(str, self.cgroup.directories)))
        self.cgroup.create()
        self.keeper.start()
        self.keeper.wait_until("its root stands", lambda: self.keeper.log.read_text().endswith("ready\n"), limit=20)

    def stop(self) -> None:
        """Switch it off as a power cut does: everything in it is gone when this returns."""
        if self.keeper.pid is not None and (self.directory / "pid").exists():
            pid = self.pid
            started = started_at(pid)
            os.kill(pid, signal.SIGKILL)
            wait_until(f"{self.name} is off", lambda: started_at(pid) != started, limit=20)
        self.keeper.stop()
        self.cgroup.remove()

    def inside(self, *command: str) -> list[str]:
        """A command line for the host that runs *command* in the machine, which has no other TMPDIR than /tmp."""
        target = f"--target={self.pid}"
        return [
            *self.cgroup.enter(),
            *("env", "--unset=TMPDIR"),
            *("nsenter", target, "--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--wd=/", "--", *command),
        ]

    def run(self, *command: str, text: str = "") -> str:
        """What *command* prints in the machine. Raises LabError when it fails."""
        done = subprocess.run(self.inside(*command), input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{self.name}: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def program(self, name: str, *command: str) -> Service:
        """Start *command* in the machine; its log lies in the machine's directory."""
        log = self.directory / f"{name}.log"
        service = Service(f"{name} of {self.name}", self.inside(*command), log=log, stays=self._stays)
        service.start()
        return service


class Service(Program):
    """A program in a machine. Between it and us stands `nsenter`, so it is ended by its own number."""

    def stop(self, *, grace: float = 0.0) -> None:
        """Kill it (or ask it to end first), and nothing that it started."""
        inside = self._inside()
        for pid in inside:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if grace else signal.SIGKILL)
        super().stop(grace=grace)
        wait_until(f"{self.name} has ended", lambda: not _still_run(inside), limit=20)

    def _inside(self) -> dict[int, str]:
        """The program itself, by its number, with the moment of its start."""
        if self.pid is None:
            return {}
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return {int(pid): start for pid in children if (start := started_at(int(pid)))}


def _still_run(processes: Mapping[int, str]) -> bool:
    return any(started_at(pid) == start for pid, start in processes.items())


def remove_cgroups(directory: Path) -> None:
    """Remove the cgroups of the machine whose directory this is, once the last of its processes is gone."""
    known = directory / _CGROUP
    if known.exists():
        left = Cgroup(hierarchies=(), directories=tuple(map(Path, known.read_text().split())))
        left.remove()
