"""
One subtree of cgroups for each machine of the lab, in every hierarchy, below the cgroup that this process is in.

Below, so that limits on the user of the lab hold for the lab too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.programs import wait_until

_MOUNTS = Path("/sys/fs/cgroup")
_INHERITED = ("cpuset.cpus", "cpuset.mems")
"""A new cpuset is empty, and nothing may enter it until it says which CPUs and memory it has."""


@dataclass(frozen=True, kw_only=True)
class Cgroup:
    """The same directory in each hierarchy. `hierarchies` are named as in /proc/self/cgroup, e.g. `memory`."""

    hierarchies: tuple[str, ...]
    directories: tuple[Path, ...]

    def create(self) -> None:
        """Make the directories. Raises OSError."""
        for directory in self.directories:
            directory.mkdir(exist_ok=True)
            for name in _INHERITED:
                if (directory / name).exists():
                    (directory / name).write_text((directory.parent / name).read_text())

    def enter(self) -> list[str]:
        """The beginning of a command line whose rest then runs in this cgroup."""
        script = 'for group in $0; do echo 0 > "$group/cgroup.procs" || exit; done; exec "$@"'
        return ["sh", "-c", script, " ".join(map(str, self.directories))]

    def processes(self, part: str = "") -> set[int]:
        """Processes in the directories below whose name has *part*, or in any of them."""
        found: set[int] = set()
        for directory in self._below(part):
            try:
                found.update(map(int, (directory / "cgroup.procs").read_text().split()))
            except OSError:  # it went while we looked
                continue
        return found

    def remove(self) -> None:
        """Remove the directories, whose processes were killed. Raises LabError when one does not end."""
        wait_until(f"{self.directories[:1]} is removed", self._is_removed, limit=20)

    def _is_removed(self) -> bool:
        """A process that was killed is counted for a moment longer, and keeps the directory busy."""
        try:
            for directory in self.directories:
                for path, _, _ in os.walk(directory, topdown=False):
                    Path(path).rmdir()
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    def _below(self, part: str) -> Iterator[Path]:
        for top in self.directories:
            for path, _, _ in os.walk(top):
                if part in path[len(str(top)) :]:
                    yield Path(path)


def cgroup(name: str) -> Cgroup:
    """The cgroup *name* below our own."""
    rows = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    places = {
        hierarchy: _MOUNTS / hierarchy.removeprefix("name=") / path.lstrip("/") / name
        for _, hierarchy, path in rows
        if hierarchy  # without a name: the unified one, which has no controllers while these exist
    }
    return Cgroup(hierarchies=tuple(places), directories=tuple(places.values()))


def are_legacy() -> bool:
    """True with cgroup v1, which is what the machines of the lab can be given today."""
    return (_MOUNTS / "memory" / "cgroup.procs").exists()
