"""
Which pods have processes on this node, by the control groups that the kubelet makes for them.

Only numbers of tasks are read (`pids.current`): they are right whoever looks. A list of process ids is not: it leaves
out (cgroup v1), or names 0 (v2), what lies outside the reader's own PID namespace, so that to a container every other
pod would seem empty. Reads the names of both cgroup drivers: `kubepods/burstable/pod<uid>` and
`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`, the latter with `_` for `-`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path

from healthd.core.pod_lives import ContainerTasks, PodTasks
from healthd.probes.errors import CannotRead

CGROUPS = Path("/sys/fs/cgroup")
DEPTH = 3
"""Folders below the root in which the kubelet's own may lie: it may be told to stay below a group (`cgroupRoot`)."""

_KUBEPODS = re.compile(r"(?:.+-)?kubepods(?:\.slice)?")
_CLASS = re.compile(r"(?:.*-)?(?:burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.*-)?pod(?P<uid>[0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?")
_REMEDY = "mount the host's /sys/fs/cgroup read-only; without it only kubelets prove the end of pods"
_VANISHED = {errno.ENOENT, errno.ENODEV}


class PodProcesses:
    """
    The pods of the kubelet that runs pod *own_uid*, which must be among them: who does not find itself looks at the
    wrong machine. Without *own_uid*, the pods of all kubelets below *root*.
    """

    def __init__(self, root: Path = CGROUPS, *, own_uid: str = "") -> None:
        self._root = root
        self._own_uid = own_uid
        self._folders: list[Path] = []

    def read(self) -> list[PodTasks]:
        """Every pod that has a control group. Raises CannotRead, and never answers half of them."""
        try:
            return self._read()
        except CannotRead:
            self._folders = []  # look for them anew
            raise
        except OSError as error:
            self._folders = []
            raise CannotRead(error.filename or str(self._root), error.strerror or str(error), _REMEDY) from error

    def _read(self) -> list[PodTasks]:
        folders = self._folders or list(_kubepods(_hierarchy(self._root), DEPTH))
        if not folders:
            raise CannotRead(str(self._root), "there is no control group of a kubelet", _REMEDY)
        pods = {folder: list(_pods_in(folder)) for folder in folders}
        if self._own_uid:
            pods = {folder: inside for folder, inside in pods.items() if any(p.uid == self._own_uid for p in inside)}
        if not pods:
            raise CannotRead(str(self._root), f"this agent's own pod {self._own_uid} is not among the pods", _REMEDY)
        self._folders = list(pods)
        return [pod for inside in pods.values() for pod in inside]


def _hierarchy(root: Path) -> Path:
    """Version 2 is one tree; of version 1 the tree of the controller that counts tasks."""
    return root if (root / "cgroup.controllers").exists() else root / "pids"


def _kubepods(folder: Path, depth: int) -> Iterator[Path]:
    for child in _folders_in(folder):
        if _KUBEPODS.fullmatch(child.name):
            yield child
        elif depth > 1:
            yield from _kubepods(child, depth - 1)


def _pods_in(folder: Path) -> Iterator[PodTasks]:
    for child in _folders_in(folder):
        if found := _POD.fullmatch(child.name):
            pod = _read_pod(child, found["uid"].replace("_", "-"))
            if pod is not None:
                yield pod
        elif _CLASS.fullmatch(child.name):
            yield from _pods_in(child)


def _read_pod(folder: Path, uid: str) -> PodTasks | None:
    """None when the pod's group went away meanwhile, which only an empty one can."""
    containers = [_read_container(child) for child in _folders_in(folder, may_vanish=True)]
    tasks = _tasks(folder)
    if tasks is None:
        return None
    return PodTasks(uid, tasks, tuple(container for container in containers if container is not None))


def _read_container(folder: Path) -> ContainerTasks | None:
    """Its id is the kernel's number of the folder, which grows in the order of creation."""
    try:
        number = folder.stat().st_ino
    except FileNotFoundError:
        return None
    tasks = _tasks(folder)
    return None if tasks is None else ContainerTasks(number, tasks)


def _tasks(folder: Path) -> int | None:
    """All threads in the group and below it; None when it went away. Raises OSError when it does not count them."""
    try:
        return int((folder / "pids.current").read_text())
    except OSError as error:
        if error.errno in _VANISHED and not folder.is_dir():
            return None
        raise


def _folders_in(folder: Path, *, may_vanish: bool = False) -> list[Path]:
    try:
        return [child for child in folder.iterdir() if child.is_dir()]
    except OSError as error:
        if may_vanish and error.errno in _VANISHED:
            return []
        raise
