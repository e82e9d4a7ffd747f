"""The Workload of Kueue, by which it starts and stops an object of its queues, as far as healthd uses it."""

from __future__ import annotations

from typing import Any

from healthd.core.api.meta import Condition, ObjectMeta, Slim

LABEL_QUEUE = "kueue.x-k8s.io/queue-name"
"""On an object that Kueue starts and stops: the name of its LocalQueue."""
LABEL_JOB_UID = "kueue.x-k8s.io/job-uid"
"""On a Workload: the uid of that object."""
LABEL_POD_GROUP = "kueue.x-k8s.io/pod-group-name"
"""On each of several plain pods that Kueue admits together: the name of their only Workload."""


class WorkloadTemplate(Slim, frozen=True, kw_only=True):
    """The metadata of a pod template. Its spec is left out: there may be thousands of Workloads."""

    metadata: ObjectMeta = ObjectMeta()


class PodSet(Slim, frozen=True, kw_only=True):
    """Pods of one template."""

    name: str = "main"
    template: WorkloadTemplate = WorkloadTemplate()


class WorkloadSpec(Slim, frozen=True, kw_only=True):
    """What Kueue is asked for. While *active* is false it admits nothing, and stops what runs."""

    active: bool = True
    pod_sets: list[PodSet] = []


class PodSetAssignment(Slim, frozen=True, kw_only=True):
    """What the pods of one set were given. With a *topology_assignment* Kueue has chosen their nodes."""

    name: str = "main"
    topology_assignment: dict[str, Any] | None = None


class Admission(Slim, frozen=True, kw_only=True):
    """The quota that a Workload holds."""

    pod_set_assignments: list[PodSetAssignment] = []


class WorkloadStatus(Slim, frozen=True, kw_only=True):
    """What Kueue says of it. *cluster_name* is another cluster, where MultiKueue lets it run."""

    conditions: list[Condition] = []
    admission: Admission | None = None
    admission_checks: list[dict[str, Any]] = []
    cluster_name: str = ""


class Workload(Slim, frozen=True, kw_only=True):
    """A kueue.x-k8s.io Workload. Kueue makes one for each object of its queues, and starts and stops that by it."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
