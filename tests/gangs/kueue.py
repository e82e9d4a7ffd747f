"""Workloads of Kueue, as it makes them and reports on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import RESOURCES, Condition, Job, ObjectMeta, OwnerReference, Workload
from healthd.core.api.kubernetes.kueue import PodSet, WorkloadSpec, WorkloadStatus
from tests.builders import a_job
from tests.gangs.builders import ENABLED

QUEUE = {"kueue.x-k8s.io/queue-name": "lq"}
ADMITTED = {"QuotaReserved": ("True", "QuotaReserved", ""), "Admitted": ("True", "Admitted", "")}
EVICTED = {
    "QuotaReserved": ("False", "Pending", "Preempted to accommodate a workload"),
    "Admitted": ("False", "NoReservation", ""),
    "Evicted": ("True", "Preempted", "a workload of higher priority"),
}
STOPPED = {**ADMITTED, "Evicted": ("True", "Deactivated", "The workload is deactivated")}
GIVEN_BACK = {**EVICTED, "Evicted": ("True", "Deactivated", "The workload is deactivated")}
WAITS = {"QuotaReserved": ("False", "Pending", "insufficient unused quota")}


async def queued(cluster: EmbeddedCluster, **changes: Any) -> Job:
    """A Job in a queue, that healthd may restart."""
    job = a_job(annotations=ENABLED)
    meta = msgspec.structs.replace(job.metadata, labels=QUEUE)
    return await cluster.create(msgspec.structs.replace(job, metadata=meta, **changes))


async def a_workload(
    cluster: EmbeddedCluster,
    job: Any,
    conditions: Mapping[str, tuple[str, str, str]] = ADMITTED,
    *,
    active: bool = True,
    marked: str = "",
    labels: Mapping[str, str] | None = None,
    name: str = "job-train",
    pods: Mapping[str, str] | None = None,
    unlabelled: str = "",
    status: Mapping[str, Any] | None = None,
) -> None:
    """What Kueue has made for *job*; its pods carry the label of their gang, but for those of the set *unlabelled*."""
    meta = ObjectMeta(
        name=name,
        namespace=job.metadata.namespace,
        labels={"kueue.x-k8s.io/job-uid": job.metadata.uid, **(labels or {})},
        annotations={"healthd.dev/stopped-by": marked} if marked else {},
        owner_references=[
            OwnerReference(
                api_version=RESOURCES[type(job)].api_version,
                kind=RESOURCES[type(job)].kind,
                name=job.metadata.name,
                uid=job.metadata.uid,
                controller=True,
            )
        ],
    )
    labelled = {"healthd.dev/gang": job.metadata.name} if pods is None else dict(pods)
    sets = [{"name": "main", "template": {"metadata": {"labels": labelled}}}]
    sets += [{"name": unlabelled, "template": {}}] if unlabelled else []
    spec = WorkloadSpec(active=active, pod_sets=msgspec.convert(sets, list[PodSet]))
    made = await cluster.create(Workload(metadata=meta, spec=spec))
    said = [Condition(type=k, status=s, reason=r, message=m) for k, (s, r, m) in conditions.items()]
    body = {**msgspec.to_builtins(WorkloadStatus(conditions=said)), **(status or {})}
    await cluster.patch(Workload, name, {"status": body}, namespace=made.metadata.namespace, subresource="status")
