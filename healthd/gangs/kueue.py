"""
Gangs in a queue of Kueue, stopped and started by `spec.active` of their Workload.

Kueue starts again at once what others suspend. While its Workload is not active, it stops the gang, takes the quota
back and admits nothing. A Workload that becomes active waits in its queue like any other: others may have taken the
quota meanwhile.

While the gang is stopped, Kueue writes the pod templates of a Job back as it knows them, and some changes of a template
make the Workload active. So nothing is written there. The hint reaches the pods by the admission policy alone, which
knows them by the label `healthd.dev/gang`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from healthd.cluster.port import Cluster, Conflict, Forbidden, NotFound, Reader
from healthd.core.api import (
    ANNOTATION_STOPPED_BY,
    LABEL_GANG,
    LABEL_JOB_UID,
    LABEL_QUEUE,
    Condition,
    ObjectMeta,
    Workload,
)
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.untrusted import InvalidText, read_text, shown
from healthd.gangs.annotations import LONGEST_NAME
from healthd.gangs.held import Holder

LABEL_ORIGIN = "kueue.x-k8s.io/multikueue-origin"
"""On a Workload that MultiKueue made here for another cluster."""
DEACTIVATED = "Deactivated"
"""The reason of an eviction by `spec.active`, or how such a reason begins."""
SUBMITTER = ("RayJob", "submitter")
"""A kind, and those of its pods that are no members of a gang."""
UNREADABLE = "healthd cannot read its Workload: Kueue is not there, or the rights of deploy/components/kueue"
_UNKNOWN = Condition(type="")


class KueueHolder(Holder):
    """The Workloads of Kueue."""

    kind = Workload

    def queue_of(self, meta: ObjectMeta) -> str:
        """From the label with the queue."""
        return meta.labels.get(LABEL_QUEUE, "")

    def root_of(self, obj: Any, kind: str) -> str | None:
        """From the owner that the Workload was made for."""
        owners = obj.metadata.owner_references
        return next((owner.name for owner in owners if owner.controller and owner.kind == kind), None)

    async def complete(self, cluster: Reader, root: Root) -> Root:
        """*root* with what its Workload says. Without one that may be read, a gang that runs is left alone."""
        try:
            found = await _workloads(cluster, root)
        except (Forbidden, NotFound):
            return left_alone(root, UNREADABLE)
        if len(found) == 1:
            return _with_workload(root, found[0])
        if not found and (root.suspended or root.deleting or root.ending is not RootOutcome.NOT_ENDED):
            return dataclasses.replace(root, unadmitted=f"Kueue has no Workload for it in queue {shown(root.queue)}")
        count = f"{len(found)} Workloads are" if found else "no Workload is"
        return left_alone(root, f"{count} there for it, where one should be")

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Deactivate its Workload."""
        await _patch(cluster, root, recovery, active=False)

    async def start(self, cluster: Cluster, root: Root) -> None:
        """Activate its Workload."""
        await _patch(cluster, root, None, active=True)


def queue_trouble(meta: ObjectMeta) -> tuple[str, ...]:
    """Why a root whose pods Kueue admits one by one is left alone; empty where it is in no queue."""
    queue = meta.labels.get(LABEL_QUEUE)
    if not queue:
        return ()
    return (f"it is in Kueue's queue {shown(queue)}, where Kueue holds its pods and not the object itself",)


def queue_trouble_below(kind: str, meta: ObjectMeta) -> tuple[str, ...]:
    """Why a root in no queue is left alone, of which the object *meta* of *kind* is in one; empty where it is not."""
    queue = meta.labels.get(LABEL_QUEUE)
    if not queue:
        return ()
    where = f"the {kind} that it made is in Kueue's queue {shown(queue)}, and it is not"
    return (f"{where}: Kueue would start again what healthd stops. The label belongs on the object itself",)


async def _workloads(cluster: Reader, root: Root) -> list[Workload]:
    """Those made for this very root."""
    listed = await cluster.list(Workload, namespace=root.ref.namespace, labels={LABEL_JOB_UID: root.ref.uid})
    return [each for each in listed.items if any(o.uid == root.ref.uid for o in each.metadata.owner_references)]


async def _patch(cluster: Cluster, root: Root, stopped_by: str | None, *, active: bool) -> None:
    """In one write, if the Workload did not change since it was read."""
    if not root.companions:
        raise Conflict(f"{root.ref.kind} {root.ref.name} has no Workload now")
    patch = {"metadata": {"annotations": {ANNOTATION_STOPPED_BY: stopped_by}}, "spec": {"active": active}}
    for name, version in root.companions.items():
        await cluster.patch(Workload, name, patch, namespace=root.ref.namespace, resource_version=version)


def left_alone(root: Root, why: str) -> Root:
    """*root*, to which healthd does nothing, and *why*."""
    reason = f"it is in Kueue's queue {shown(root.queue)}, and {why}"
    return dataclasses.replace(root, invalid=(*root.invalid, reason))


def _with_workload(root: Root, workload: Workload) -> Root:
    is_active, unadmitted = workload.spec.active, not_admitted(root, workload)
    try:
        stopped_by = read_text(workload.metadata.annotations.get(ANNOTATION_STOPPED_BY, ""), LONGEST_NAME)
    except InvalidText as error:
        return left_alone(root, f"{ANNOTATION_STOPPED_BY} on its Workload: {error}")
    root = dataclasses.replace(
        root,
        # Not what the root says: once Kueue has admitted or evicted it, that follows within a moment.
        suspended=not is_active or bool(unadmitted),
        stopped=not is_active and root.stopped,
        stopped_by="" if is_active else stopped_by,
        edited_since_stop=False,
        has_begun=root.has_begun and not unadmitted,
        unadmitted=unadmitted,
        evicted=bool(unadmitted) and is_evicted(workload),
        holds_quota=has_quota(workload),
        companions={workload.metadata.name: workload.metadata.resource_version},
        hint_labels={LABEL_GANG: root.ref.name},
    )
    for why in [*obstacles(workload), *_unlabelled(root, workload)]:
        root = left_alone(root, why)
    return root


def not_admitted(root: Root, workload: Workload) -> str:
    """Why Kueue does not let an active Workload run; empty where it does."""
    quota = _condition(workload, "QuotaReserved")
    if not workload.spec.active or root.ending is not RootOutcome.NOT_ENDED:
        return ""
    if is_evicted(workload):
        evicted = _condition(workload, "Evicted")
        return f"Kueue has evicted it ({evicted.reason}): {evicted.message}"
    if _condition(workload, "Admitted").status == "True" and _condition(workload, "Evicted").status != "True":
        return ""
    waits = f"it waits in Kueue's queue {shown(root.queue)}"
    return f"{waits}: {quota.message}" if quota.status == "False" and quota.message else waits


def is_evicted(workload: Workload) -> bool:
    """Whether Kueue has taken it back for a reason of its own. After a stop of ours the condition stays for a while."""
    evicted = _condition(workload, "Evicted")
    return evicted.status == "True" and not evicted.reason.startswith(DEACTIVATED)


def has_quota(workload: Workload) -> bool:
    """Whether it holds quota of its queue."""
    return _condition(workload, "QuotaReserved").status == "True"


def obstacles(workload: Workload) -> list[str]:
    """Why a gang with such a Workload is left alone; empty for most."""
    status, found = workload.status, []
    if status.cluster_name or LABEL_ORIGIN in workload.metadata.labels:
        found.append("MultiKueue runs it from one cluster in another: both sides would have to stop it")
    if status.admission and any(each.topology_assignment for each in status.admission.pod_set_assignments):
        found.append(
            "Kueue chooses its nodes by topology and replaces a node that fails by itself: only one of the two may act"
        )
    return found


def _unlabelled(root: Root, workload: Workload) -> list[str]:
    sets = [each for each in workload.spec.pod_sets if (root.ref.kind, each.name) != SUBMITTER]
    if all(each.template.metadata.labels.get(LABEL_GANG) == root.ref.name for each in sets):
        return []
    label = f"{LABEL_GANG}: {root.ref.name}"
    why = "its new pods would not know where to resume, as Kueue undoes what is written on the templates"
    return [f"its pod templates do not all carry the label {label}: {why}"]


def _condition(workload: Workload, kind: str) -> Condition:
    return next((each for each in workload.status.conditions if each.type == kind), _UNKNOWN)
