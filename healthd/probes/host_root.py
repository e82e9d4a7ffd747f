"""Where this process finds the host's own /proc, /sys, /run and /dev: below one folder, `host_root`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
"""Of this process's own PID namespace. The memory and the disks in it are the host's in every container."""


@dataclass(frozen=True, slots=True)
class HostRoot:
    """
    The root of the host's file tree: `/` on the host itself, and a folder such as `/host` in a pod.

    A pod may mount only parts of the tree. Without /run and /proc, `run` and `host_proc` are None, and `proc` is the
    /proc of this process.
    """

    root: Path = Path("/")

    @property
    def sys(self) -> Path:
        """The host's /sys, or what is mounted of it."""
        return self.root / "sys"

    @property
    def cgroups(self) -> Path:
        """The host's control groups."""
        return self.sys / "fs" / "cgroup"

    @property
    def kmsg(self) -> Path:
        """The device of the kernel log."""
        return self.root / "dev" / "kmsg"

    @property
    def run(self) -> Path | None:
        """The host's /run, with the sockets of its daemons."""
        return _folder(self.root / "run")

    @property
    def host_proc(self) -> Path | None:
        """The host's /proc, with its processes."""
        return _folder(self.root / "proc")

    @property
    def proc(self) -> Path:
        """A /proc with the memory and the disks of the host. It has the host's processes where `host_proc` is there."""
        return self.host_proc or PROC


def _folder(path: Path) -> Path | None:
    return path if path.is_dir() else None
