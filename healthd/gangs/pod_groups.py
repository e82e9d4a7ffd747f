"""
Groups of plain pods in a queue of Kueue, which have one Workload of the group's name.

While its Workload is not active, Kueue stops a group as it stops other gangs: it deletes the pods and takes the quota
back. It keeps each pod that has ended, and so its name, until the Workload is deleted. Once all pods are there again,
it makes another Workload for them, which waits in the queue like any other.

So a stop deactivates the Workload, and a start deletes it and makes the pods again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from healthd.cluster.port import Cluster, Conflict, Forbidden, NotFound, Reader
from healthd.core.api import (
    ANNOTATION_MADE_BY,
    ANNOTATION_STOPPED_BY,
    LABEL_GANG,
    LABEL_JOB_UID,
    LABEL_POD_GROUP,
    LABEL_QUEUE,
    Pod,
    PodGang,
    Workload,
)
from healthd.core.phrases import some
from healthd.core.recovery.gang import Root, RootOutcome, StartHint
from healthd.core.recovery.members import attempt_of
from healthd.core.untrusted import InvalidText, number_or, read_text, shown
from healthd.gangs.annotations import LONGEST_NAME
from healthd.gangs.held import HeldAdapter, expect_unchanged
from healthd.gangs.kueue import UNREADABLE, KueueHolder, has_quota, is_evicted, left_alone, not_admitted, obstacles
from healthd.gangs.manifests import ADDED_BY_KUEUE
from healthd.gangs.podgang import PodGangAdapter, plain_members

GATE = "kueue.x-k8s.io/admission"
"""The scheduling gate that Kueue opens when it admits the group."""
STOPPED_BY_KUEUE = "TerminationTarget"
"""The condition that Kueue sets on a pod before it deletes it."""
NOT_OF_PODS = "the Workload of its name was not made for a group of pods"
_IS_GROUP = "kueue.x-k8s.io/is-group-workload"
_SIZE = "kueue.x-k8s.io/pod-group-total-count"
_PREFIX = "kueue.x-k8s.io/"
_KNOWN = frozenset(
    {
        LABEL_QUEUE,
        LABEL_POD_GROUP,
        _SIZE,
        "kueue.x-k8s.io/managed",
        "kueue.x-k8s.io/priority-class",
        "kueue.x-k8s.io/role-hash",
        *ADDED_BY_KUEUE,
    }
)
"""What may stand on its pods, and on those that healthd makes again. Any other word of Kueue's means a group that is
admitted, replaced or ended in another way."""


class PodGroupHolder(KueueHolder):
    """The Workloads of groups of pods."""

    def root_of(self, obj: Any, kind: str) -> str | None:
        """From its name, which is the group's."""
        del kind
        return obj.metadata.name if obj.metadata.annotations.get(_IS_GROUP) == "true" else None

    async def complete(self, cluster: Reader, root: Root) -> Root:
        """*root* with what its Workload and its pods say."""
        root = dataclasses.replace(root, hint_labels={LABEL_GANG: root.ref.name})
        try:
            workload = await _workload(cluster, root)
            if workload is None:
                await cluster.list(Workload, namespace=root.ref.namespace, labels={LABEL_JOB_UID: root.ref.uid})
            marked = read_text(_mark(workload), LONGEST_NAME)
        except (Forbidden, NotFound):  # of a kind that is not there; a list of none is no error
            return left_alone(root, UNREADABLE)
        except InvalidText as error:
            return left_alone(root, f"{ANNOTATION_STOPPED_BY} on its Workload: {error}")
        if root.stopped_by:
            if workload is not None and (why := await _foreign(cluster, root, workload)):
                return left_alone(root, why)
            return dataclasses.replace(root, holds_quota=bool(marked) and workload is not None and has_quota(workload))
        members = [pod for pod in await plain_members(cluster, root) if attempt_of(pod) == root.attempt]
        for why in _trouble_of(root, members):
            root = left_alone(root, why)
        if workload is None or workload.metadata.deletion_timestamp is not None:
            return _without_workload(root, workload, members)
        return _with_workload(root, workload, members, marked)

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Deactivate its Workload, if healthd may delete it, too: without that the group could not start again."""
        workload = await _workload(cluster, root)
        await expect_unchanged(cluster, PodGang, root)
        now = await self.complete(cluster, root)  # as it is with this version of the Workload, or the write fails
        if workload is None or now.suspended or now.deleting or now.invalid:
            raise Conflict(f"the group {root.ref.name} or its Workload has been changed")
        await _delete(cluster, workload, dry_run=True)
        await _deactivate(cluster, workload, recovery)

    async def release(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """
        Delete the Workload of the attempt that was stopped: its pods go. Raises Conflict until it is gone.

        The one that Kueue makes for the pods of this start stays, and one that is not of this gang.
        """
        workload = await _workload(cluster, root)
        if workload is None:
            return
        await expect_unchanged(cluster, PodGang, root)
        if why := await _foreign(cluster, root, workload):
            raise Conflict(why)
        if not _mark(workload):
            if any(_is_of(pod, hint) for pod in await plain_members(cluster, root)):
                return
            await _deactivate(cluster, workload, hint.recovery)  # of a start that another one has taken over
        elif workload.metadata.deletion_timestamp is None:
            await _delete(cluster, workload)
        raise Conflict(f"Kueue still has the Workload {workload.metadata.name} of the pods that were stopped")


class PodGroupAdapter(HeldAdapter[PodGang]):
    """The adapter of plain pods, whose Workload holds them where they are a group in a queue."""

    def __init__(self, inner: PodGangAdapter, holder: PodGroupHolder) -> None:
        super().__init__(inner, holder)
        self._groups = holder

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """The Workload first: where healthd may not write to it, nothing is done."""
        await super().stop(cluster, root, recovery)
        if root.queue:
            await self.inner.stop(cluster, root, recovery)

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Let the old pods go with their Workload, then make the new ones."""
        if root.queue:
            await self.inner.clear(cluster, root, hint)
            await self._groups.release(cluster, root, hint)
        await self.inner.start(cluster, root, hint)

    async def maintain(self, cluster: Cluster, root: Root, pods: Sequence[Pod]) -> None:
        """As of other plain pods; and finish a stop of which only the Workload knows, by what both say now."""
        if not _is_half_stopped(root):
            await self.inner.maintain(cluster, root, pods)
            return
        now = await self.find(cluster, root.ref)  # a cache may still show a Workload that was deleted at the start
        if now is not None and _is_half_stopped(now):
            await self.inner.stop(cluster, now, now.stopped_by)


def _is_half_stopped(root: Root) -> bool:
    return bool(root.queue and root.stopped_by) and not root.stopped


async def _foreign(cluster: Reader, root: Root, workload: Workload) -> str:
    """Why the Workload of its name is not that of a gang which healthd has stopped; empty: it is."""
    if not _is_of_pods(workload):
        return NOT_OF_PODS
    if _mark(workload):
        return ""
    ours = {pod.metadata.uid for pod in await plain_members(cluster, root)}
    group = await cluster.list(Pod, namespace=root.ref.namespace, labels={LABEL_POD_GROUP: root.ref.name})
    others = sorted(pod.metadata.name for pod in group.items if pod.metadata.uid not in ours)
    return f"other pods are in the group of its name, such as {shown(others[0])}" if others else ""


def _without_workload(root: Root, workload: Workload | None, members: Sequence[Pod]) -> Root:
    if root.ending is not RootOutcome.NOT_ENDED or root.deleting:
        return root
    if _all_go(members):
        return dataclasses.replace(root, deleting=True)  # its user has deleted the Workload, or all pods
    if workload is None and members and all(_waits(pod) for pod in members):
        why = f"Kueue has no Workload for it in queue {shown(root.queue)}"
        return dataclasses.replace(root, suspended=True, has_begun=False, unadmitted=why)
    return left_alone(root, "no Workload is there for it, where one should be")


def _with_workload(root: Root, workload: Workload, members: Sequence[Pod], marked: str) -> Root:
    is_active, is_over = workload.spec.active, root.ending is not RootOutcome.NOT_ENDED
    stopped = "" if is_over or not is_active else _stopped_by_kueue(members)
    unadmitted = not_admitted(root, workload) or stopped or ("" if is_over else _incomplete(root, members))
    deleted = is_active and not is_over and not unadmitted and _all_go(members)
    root = dataclasses.replace(
        root,
        suspended=not is_active or bool(unadmitted),
        stopped_by="" if is_active else marked,
        has_begun=not unadmitted,
        unadmitted=unadmitted,
        evicted=bool(unadmitted) and (bool(stopped) or is_evicted(workload)),
        deleting=root.deleting or deleted,
        holds_quota=has_quota(workload),
    )
    for why in [*obstacles(workload), *_trouble_with(workload)]:
        root = left_alone(root, why)
    return root


def _all_go(members: Sequence[Pod]) -> bool:
    """All have been deleted. They stay for Kueue's sake."""
    return bool(members) and all(pod.metadata.deletion_timestamp is not None for pod in members)


def _waits(pod: Pod) -> bool:
    return any(gate.name == GATE for gate in pod.spec.scheduling_gates)


def _stopped_by_kueue(members: Sequence[Pod]) -> str:
    """Why Kueue has stopped pods: it starts no pod again. Empty: it did not."""
    reasons = [each.reason for pod in members for each in pod.status.conditions if each.type == STOPPED_BY_KUEUE]
    return f"Kueue has stopped its pods ({reasons[0]}), and their owner has to make them again" if reasons else ""


def _incomplete(root: Root, members: Sequence[Pod]) -> str:
    """What is not there or not recorded yet, while its pods are being made; empty: nothing."""
    known, size = {*root.companions.values()}, max(map(_size, members), default=0)
    unknown = sum(pod.metadata.uid not in known for pod in members)
    if unknown or size > root.world:
        return f"{root.world} of its {size} pods are recorded so far"
    return ""


def _size(pod: Pod) -> int:
    """How many pods its group has; 0: that cannot be read."""
    return number_or(pod.metadata.annotations.get(_SIZE, ""), 0)


def _trouble_of(root: Root, members: Sequence[Pod]) -> Iterator[str]:
    """Why healthd does not restart a group with such pods."""
    if not root.indexes:
        yield "its pods are made again by their owner: healthd cannot know whether the old ones are in the way"
    words = {word for pod in members for word in (*pod.metadata.labels, *pod.metadata.annotations)}
    if unknown := sorted(word for word in words if word.startswith(_PREFIX) and word not in _KNOWN):
        yield f"its pods have {some([*map(shown, unknown)])}: healthd does not know what Kueue makes of that"
    if any(pod.metadata.labels.get(LABEL_POD_GROUP) != root.ref.name for pod in members):
        yield f"its pods do not all carry the label {LABEL_POD_GROUP}: {root.ref.name}, as one group would"
    if any(pod.metadata.labels.get(LABEL_QUEUE) != root.queue for pod in members):
        yield "its pods are not all in that queue"
    if len({_size(pod) for pod in members}) > 1 or any(_size(pod) < root.world for pod in members):
        yield f"{_SIZE} on its pods is not their number, {root.world}"


def _trouble_with(workload: Workload) -> Iterator[str]:
    """Why healthd does not delete such a Workload."""
    if not _is_of_pods(workload):
        yield NOT_OF_PODS
    if workload.status.admission_checks:
        yield "what an admission check has added to its pods would be in the way of the next one"


def _is_of_pods(workload: Workload) -> bool:
    owners = workload.metadata.owner_references
    is_group = workload.metadata.annotations.get(_IS_GROUP) == "true"
    return is_group and all(owner.kind == "Pod" and not owner.controller for owner in owners)


def _is_of(pod: Pod, hint: StartHint) -> bool:
    return attempt_of(pod) == hint.attempt and pod.metadata.annotations.get(ANNOTATION_MADE_BY) == hint.recovery


def _mark(workload: Workload | None) -> str:
    """The recovery that has stopped it; empty: none has."""
    if workload is None or workload.spec.active:
        return ""
    return workload.metadata.annotations.get(ANNOTATION_STOPPED_BY, "")


async def _workload(cluster: Reader, root: Root) -> Workload | None:
    try:
        return await cluster.get(Workload, root.ref.name, root.ref.namespace)
    except NotFound:
        return None


async def _deactivate(cluster: Cluster, workload: Workload, recovery: str) -> None:
    meta = workload.metadata
    patch = {"metadata": {"annotations": {ANNOTATION_STOPPED_BY: recovery}}, "spec": {"active": False}}
    await cluster.patch(
        Workload, meta.name, patch, namespace=meta.namespace, uid=meta.uid, resource_version=meta.resource_version
    )


async def _delete(cluster: Cluster, workload: Workload, *, dry_run: bool = False) -> None:
    meta = workload.metadata
    await cluster.delete(
        Workload,
        meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        dry_run=dry_run,
    )
