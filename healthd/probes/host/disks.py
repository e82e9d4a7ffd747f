"""
Disks and file systems: whether they answer, how long they take, and whether they can still be written.

A query of a file system may block for as long as its disk hangs, so `FileSystems` is a probe of its own. `Disks` reads
only the kernel's own counters, which always answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from healthd.core.diagnosis.readings import NODE, Reading, Sample
from healthd.probes.sysfs import names_in, pci_of, read_lines, read_number, read_word

_FEW = 10
"""This few requests in one sample are no measure of a disk's speed."""
_FIELDS = 9
"""Of the file `stat`: every kernel has the first nine."""


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of a disk so far: requests, and the milliseconds that all of them together waited."""

    done: int
    waited_ms: int
    under_way: int
    answered_at: datetime
    """When it was last seen to answer, or to have no request waiting."""


class Disks:
    """
    Real disks under *sys*, by their PCI address where they have one. The part is the name.

    `disk.await_ms`: the average time of a request since the last sample (0: too few requests). `disk.silent_s`: the
    time for which requests wait and none was answered. `disk.writable`: 1, or 0.
    """

    source = "disk"
    every = timedelta(seconds=10)

    def __init__(self, sys: Path = Path("/sys")) -> None:
        self._folder = sys / "class" / "block"
        self._before: dict[str, _Work] = {}

    def sample(self, now: datetime) -> Sample:
        """Reads two small files for each disk. The kernel answers also when the disk does not."""
        names = [name for name in names_in(str(self._folder)) if (self._folder / name / "device").exists()]
        readings = [reading for name in names for reading in self._read(name, now)]
        self._before = {name: work for name, work in self._before.items() if name in names}
        return Sample(source=self.source, at=now, readings=readings)

    def _read(self, name: str, now: datetime) -> Iterator[Reading]:
        folder = self._folder / name
        device = pci_of(os.path.realpath(folder)) or NODE
        if (is_read_only := read_number(f"{folder}/ro")) is not None:
            yield Reading(device, "disk.writable", 1 - is_read_only, name)
        work = _parse_work(read_word(f"{folder}/stat"), now)
        if work is None:
            return
        before = self._before.get(name, work)
        if work.under_way and work.done == before.done:
            work = replace(work, answered_at=before.answered_at)
        self._before[name] = work
        yield Reading(device, "disk.silent_s", (now - work.answered_at).total_seconds(), name)
        yield Reading(device, "disk.await_ms", _average_wait(before, work), name)


class FileSystems:
    """
    The file systems that hold *paths*, which must be writable ones.

    In a pod, /etc/hosts lies on the file system of the kubelet's data, without a mount of its own. The part is the
    mounted device. `filesystem.read_only` (`yes` or `no`, whatever this container's mount shows),
    `filesystem.free_bytes` for unprivileged users, and `filesystem.free_inodes_percent` where there is a limit.
    """

    source = "filesystem"
    every = timedelta(minutes=1)

    def __init__(self, paths: Sequence[Path] = (Path("/etc/hosts"),), proc: Path = Path("/proc")) -> None:
        self._paths = paths
        self._mounts = proc / "self" / "mountinfo"

    def sample(self, now: datetime) -> Sample:
        """May block for as long as a disk or a file server hangs."""
        mounts = [mount for line in read_lines(str(self._mounts), 1 << 20) if (mount := parse_mount(line))]
        by_place = {reading[1:]: reading for path in self._paths for reading in _read_file_system(path, mounts)}
        return Sample(source=self.source, at=now, readings=list(by_place.values()))


@dataclass(frozen=True, slots=True)
class MountInfo:
    """A line of mountinfo. *is_read_only* is about the file system, not about this mount of it."""

    point: str
    source: str
    is_read_only: bool


def parse_mount(line: str) -> MountInfo | None:
    """One line of /proc/self/mountinfo, in the format of proc(5). None for anything else."""
    before, dash, after = line.partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    if not dash or len(fields) < 6 or len(rest) < 3:
        return None
    return MountInfo(_unescaped(fields[4]), _unescaped(rest[1]), "ro" in rest[2].split(","))


def _unescaped(path: str) -> str:
    for escaped, character in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        path = path.replace(escaped, character)
    return path


def _read_file_system(path: Path, mounts: Sequence[MountInfo]) -> Iterator[Reading]:
    mount = _mount_of(str(path), mounts)
    part = mount.source if mount and mount.source.startswith("/") else str(path)
    if mount is not None:
        yield Reading(NODE, "filesystem.read_only", "yes" if mount.is_read_only else "no", part)
    try:
        space = os.statvfs(path)
    except OSError:
        return
    yield Reading(NODE, "filesystem.free_bytes", space.f_bavail * space.f_frsize, part)
    if space.f_files > 0:
        yield Reading(NODE, "filesystem.free_inodes_percent", round(100 * space.f_favail / space.f_files, 1), part)


def _mount_of(path: str, mounts: Sequence[MountInfo]) -> MountInfo | None:
    """The mount of *path*: the longest match, and of several the one on top, which comes last."""
    over = [mount for mount in mounts if path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")]
    return max(reversed(over), key=lambda mount: len(mount.point), default=None)


def _parse_work(stat: str, at: datetime) -> _Work | None:
    """Fields as in the kernel's Documentation/block/stat.rst."""
    try:
        fields = [int(field) for field in stat.split()[:_FIELDS]]
    except ValueError:
        return None
    if len(fields) < _FIELDS:
        return None
    return _Work(done=fields[0] + fields[4], waited_ms=fields[3] + fields[7], under_way=fields[8], answered_at=at)


def _average_wait(before: _Work, now: _Work) -> float:
    done = now.done - before.done
    return round(max(now.waited_ms - before.waited_ms, 0) / done, 1) if done >= _FEW else 0.0
