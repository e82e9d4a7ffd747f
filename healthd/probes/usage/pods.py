"""
What the pods of this node have used, by their control groups: the processor time of all of them now and then, and all
signals of a few each second.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from healthd.core.hang.samples import Stall, Usage
from healthd.core.node.pod_groups import PodGroup, PodGroups
from healthd.probes.usage.cgroup import CgroupUsage, processor_seconds
from healthd.probes.usage.cgroup_stall import read_stall


class PodUsages:
    """The pods that *groups* has at the moment of each read. The files of those that were read last stay open."""

    def __init__(self, groups: Callable[[], PodGroups]) -> None:
        self._groups = groups
        self._known = groups()
        self._open: dict[str, CgroupUsage] = {}

    def processor_times(self) -> dict[str, float]:
        """Seconds of processor time that each pod has used so far, by uid. One that cannot be read is left out."""
        root, is_v2, pods = self._groups()
        times = {uid: processor_seconds(root, group.path, is_v2=is_v2) for uid, group in pods.items()}
        return {uid: seconds for uid, seconds in times.items() if seconds is not None}

    def read(self, uids: Collection[str]) -> dict[str, Usage]:
        """
        What these pods have used so far, by uid. One that is gone or cannot be read is left out.

        So is, once, a pod that has lost a container: it may start again, and what was usual is so no more.
        """
        groups = self._groups()
        changed = self._changed(groups)
        self._close([uid for uid in self._open if uid in changed or uid not in uids])
        used = {uid: self._opened(uid, groups).read() for uid in uids if uid in groups.pods and uid not in changed}
        self._close([uid for uid, usage in used.items() if usage is None])
        return {uid: usage for uid, usage in used.items() if usage is not None}

    def stalls(self, uids: Collection[str]) -> dict[str, Stall]:
        """Why these pods may do nothing, by uid. One that is gone is left out."""
        root, is_v2, pods = self._groups()
        known = {uid: pods[uid] for uid in uids if uid in pods}
        return {uid: read_stall(root, pod.path, pod.containers, is_v2=is_v2) for uid, pod in known.items()}

    def _changed(self, groups: PodGroups) -> set[str]:
        """The pods that are sampled, and are gone or have lost a container."""
        before, self._known = self._known, groups
        if groups is before:
            return set()
        return {uid for uid in self._open if _has_lost(before.pods.get(uid), groups.pods.get(uid))}

    def _opened(self, uid: str, groups: PodGroups) -> CgroupUsage:
        if uid not in self._open:
            self._open[uid] = CgroupUsage(groups.root, groups.pods[uid].path, is_v2=groups.is_v2)
        return self._open[uid]

    def _close(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._open.pop(uid).close()


def _has_lost(before: PodGroup | None, now: PodGroup | None) -> bool:
    return before is None or now is None or before.path != now.path or not before.containers <= now.containers
