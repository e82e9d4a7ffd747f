"""
Which pods have processes on this node, by the control groups that the kubelet makes for them.

Only numbers of tasks are read (`pids.current`): they are right for every reader. A list of process ids is not: it
leaves out (cgroup v1), or names 0 (v2), what lies outside the reader's own PID namespace. So every other pod would seem
empty to a container. Reads the names of both cgroup drivers: `kubepods/burstable/pod<uid>` and
`kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice`, the latter with `_` for `-`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from healthd.core.node.pod_groups import PodGroup, PodGroups
from healthd.core.node.pod_liveness import ContainerTasks, PodTasks
from healthd.probes.errors import CannotRead
from healthd.probes.sysfs import KeptOpen, read_text

CGROUPS = Path("/sys/fs/cgroup")
DEPTH = 3
"""Folders below the root in which the kubelet's own may lie: its `cgroupRoot` may put it below a group."""

_KUBEPODS = re.compile(r"(?:.+-)?kubepods(?:\.slice)?")
_CLASS = re.compile(r"(?:.*-)?(?:burstable|besteffort)(?:\.slice)?")
_POD = re.compile(r"(?:.*-)?pod(?P<uid>[0-9a-f]{32}|[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?")
_REMEDY = "mount the host's /sys/fs/cgroup read-only; without it only kubelets prove the end of pods"
_VANISHED = {errno.ENOENT, errno.ENODEV}


class PodProcesses:
    """
    The pods of the kubelet that runs pod *own_uid*. That pod must be among them; otherwise this is the wrong machine.
    Without *own_uid*, the pods of all kubelets below *root*.

    The groups are listed again only when one was made or removed, which the kernel counts as links of the folder above.
    A group that was replaced by another in between no longer answers. While a pod has as many tasks as before, and more
    than one, its containers are not read: they matter only when one task is left.
    """

    def __init__(self, root: Path = CGROUPS, *, own_uid: str = "") -> None:
        self._root = root
        self._own_uid = own_uid
        self._top: list[str] = []
        """The kubelets' own folders."""
        self._is_stale = True
        """The known groups must not be trusted, whatever the kernel reports of their number."""
        self._listed: dict[str, _Links] = {}
        self._pods: list[_Pod] = []
        self._last: list[PodTasks] = []
        self._read_file = KeptOpen()
        self.groups = PodGroups(str(root), False, {})
        """As of the last list: another object after each. Kept when a list fails that may work the next time."""

    def read(self) -> list[PodTasks]:
        """
        Every pod that has a control group; the same list object again when nothing changed.

        Raises CannotRead, and never returns a part of them.
        """
        try:
            return self._read()
        except CannotRead:
            self._forget()
            self.groups = PodGroups(str(self._root), False, {})  # there are none, or they are another machine's
            raise
        except OSError as error:
            self._forget()
            raise CannotRead(error.filename or str(self._root), error.strerror or str(error), _REMEDY) from error

    def _read(self) -> list[PodTasks]:
        if self._is_stale or not self._has_same_pods():
            self._list()
        pods = self._read_pods()
        if self._is_stale:
            self._list()
            pods = self._read_pods()
        if self._own_uid and all(pod.uid != self._own_uid for pod in pods):
            raise self._not_among_them()
        if pods != self._last:
            self._last = pods
        return self._last

    def _read_pods(self) -> list[PodTasks]:
        """Without pods that went away; only an empty pod can."""
        tasks = []
        for pod in self._pods:
            try:
                tasks.append(pod.read(self._read_file))
            except _Vanished:
                self._is_stale = True
        self._is_stale |= any(pod.is_stale for pod in self._pods)
        return tasks

    def _has_same_pods(self) -> bool:
        try:
            return all(_links(folder) == links for folder, links in self._listed.items())
        except FileNotFoundError:
            return False

    def _list(self) -> None:
        self._is_stale = False
        self._listed.clear()
        self._read_file.close()
        top = self._top or list(_kubepods(_hierarchy(self._root), DEPTH))
        if not top:
            raise CannotRead(str(self._root), "there is no control group of a kubelet", _REMEDY)
        pods = {folder: list(self._pods_in(folder)) for folder in top}
        if self._own_uid:
            pods = {folder: inside for folder, inside in pods.items() if any(p.uid == self._own_uid for p in inside)}
        if not pods:
            raise self._not_among_them()
        self._top = list(pods)
        self._pods = [pod for inside in pods.values() for pod in inside]
        hierarchy = _hierarchy(self._root)
        known = {pod.uid: pod.group_below(hierarchy) for pod in self._pods}
        self.groups = PodGroups(str(self._root), _is_v2(self._root), known)

    def _pods_in(self, folder: str) -> Iterator[_Pod]:
        self._listed[folder] = _links(folder)  # before its list: a change meanwhile is seen the next time
        for name, child in _folders_in(folder):
            if found := _POD.fullmatch(name):
                if (pod := self._list_pod(child, found["uid"].replace("_", "-"))) is not None:
                    yield pod
            elif _CLASS.fullmatch(name):
                yield from self._pods_in(child)

    def _list_pod(self, folder: str, uid: str) -> _Pod | None:
        """None when its group goes away at this moment, which only an empty one can."""
        try:
            return _Pod(uid, folder)
        except OSError as error:
            if error.errno not in _VANISHED:
                raise
            self._is_stale = True
            return None

    def _forget(self) -> None:
        """List everything again."""
        self._top = []
        self._is_stale = True
        self._read_file.close()

    def _not_among_them(self) -> CannotRead:
        return CannotRead(str(self._root), f"this agent's own pod {self._own_uid} is not among the pods", _REMEDY)


class _Vanished(Exception):
    """A group went away, which only an empty one can."""


class _Pod:
    """One pod's group and those of its containers, as they were listed once. Raises OSError."""

    def __init__(self, uid: str, folder: str) -> None:
        self.uid = uid
        self._folder = folder
        self._file = f"{folder}/pids.current"
        self._links = _links(folder)
        self._containers = [container for _, container in _folders_in(folder)]
        self._last: PodTasks | None = None
        self.is_stale = False
        """There are other containers than those listed."""

    def group_below(self, hierarchy: str) -> PodGroup:
        """Where it is, in a tree that begins at *hierarchy*."""
        containers = frozenset(folder.rpartition("/")[2] for folder in self._containers)
        return PodGroup(self._folder.removeprefix(hierarchy), containers)

    def read(self, read: Callable[[str], str]) -> PodTasks:
        """Raises _Vanished, and OSError when its tasks are not counted."""
        tasks, last = _tasks(self._folder, self._file, read), self._last
        if last is not None and tasks == last.tasks and tasks > 1:
            return last
        containers = [_read_container(folder) for folder in self._containers]
        self.is_stale = None in containers or _links_if_any(self._folder) != self._links
        self._last = PodTasks(self.uid, tasks, tuple(container for container in containers if container is not None))
        return self._last


_Links = tuple[int, int]


def _links(folder: str) -> _Links:
    """A value that changes when a folder below was made or removed: the number of links; outside of /sys, the date."""
    state = os.stat(folder)  # noqa: PTH116 - paths are words in probes
    return state.st_nlink, state.st_mtime_ns


def _links_if_any(folder: str) -> _Links | None:
    try:
        return _links(folder)
    except FileNotFoundError:
        return None


def _hierarchy(root: Path) -> str:
    """Version 2 is one tree. Of version 1, the tree of the controller that counts tasks."""
    return str(root if _is_v2(root) else root / "pids")


def _is_v2(root: Path) -> bool:
    return (root / "cgroup.controllers").exists()


def _kubepods(folder: str, depth: int) -> Iterator[str]:
    for name, child in _folders_in(folder):
        if _KUBEPODS.fullmatch(name):
            yield child
        elif depth > 1:
            yield from _kubepods(child, depth - 1)


def _read_container(folder: str) -> ContainerTasks | None:
    """Its id is the kernel's number of the folder, which grows in the order of creation."""
    try:
        number = os.stat(folder).st_ino  # noqa: PTH116 - paths are words in probes
        return ContainerTasks(number, _tasks(folder, f"{folder}/pids.current", read_text))
    except (FileNotFoundError, _Vanished):
        return None


def _tasks(folder: str, file: str, read: Callable[[str], str]) -> int:
    """All threads in the group and below it. Raises _Vanished, and OSError when they are not counted."""
    try:
        return int(read(file))
    except OSError as error:
        if error.errno in _VANISHED and not os.path.isdir(folder):  # noqa: PTH112 - paths are words in probes
            raise _Vanished from error
        raise


def _folders_in(folder: str) -> list[tuple[str, str]]:
    """Name and path of each."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.path) for entry in entries if entry.is_dir(follow_symlinks=True)]
