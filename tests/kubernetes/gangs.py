"""Gangs of four members as their users write them, one for each kind; each member needs a whole node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from healthd.core.api import Pod

NAME = "llama"
ENABLED = {"healthd.dev/restart": "enabled"}
GANG = {"healthd.dev/gang": NAME}
LAUNCHER = "launcher"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Gang:
    """A kind of gang, and how one is written."""

    kind: str
    """Of its root, as healthd names it."""
    resource: str
    """As kubectl does."""
    write: Callable[[Mapping[str, Any], Mapping[str, str], int], list[Manifest]]
    """From what the spec of every pod has, the annotations of its root, and how many members."""
    beside: int = 0
    """Members that need no GPU."""
    can_suspend: bool = True
    is_member: Callable[[Pod], bool] = lambda pod: True
    """Whether a pod of its namespace is a member: a pod that submits a job is none."""


def template(pod: Mapping[str, Any], *, labels: Mapping[str, str] | None = None, **spec: Any) -> Manifest:
    """Of pods that take all GPUs of a node."""
    container = {"name": "main", "image": "localhost/none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "metadata": {"labels": dict(labels or {})},
        "spec": {"containers": [container], "restartPolicy": "Never", **pod, **spec},
    }


def job(pod: Mapping[str, Any], notes: Mapping[str, str], members: int) -> list[Manifest]:
    """With no retry of its own: a failure that is counted is the end."""
    spec = {"parallelism": members, "completions": members, "completionMode": "Indexed", "backoffLimit": 0}
    meta = {"name": NAME, "annotations": {**ENABLED, **notes}}
    return [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**spec, "template": template(pod)}},
    ]


def jobset(pod: Mapping[str, Any], notes: Mapping[str, str], members: int) -> list[Manifest]:
    """A leader and workers, and no restart of its own."""

    def part(name: str, count: int) -> Manifest:
        one = {"parallelism": count, "completions": count, "backoffLimit": 0, "template": template(pod)}
        return {"name": name, "template": {"spec": one}}

    meta = {"name": NAME, "annotations": {**ENABLED, **notes}}
    spec = {"replicatedJobs": [part("leader", 1), part("workers", members - 1)]}
    return [{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta, "spec": spec}]


def stateful_set(pod: Mapping[str, Any], notes: Mapping[str, str], members: int) -> list[Manifest]:
    """Its pods start together."""
    labels = {"app": NAME}
    spec = {
        "replicas": members,
        "serviceName": NAME,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": template(pod, labels=labels, restartPolicy="Always"),
    }
    meta = {"name": NAME, "annotations": {**ENABLED, **notes}}
    return [{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta, "spec": spec}]


def with_launcher(pod: Mapping[str, Any], notes: Mapping[str, str], members: int) -> list[Manifest]:
    """A StatefulSet of workers, and a Job that starts the work on them."""
    one = template(pod, labels=GANG, containers=[{"name": "main", "image": "localhost/none"}])
    spec = {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": one}
    launcher = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": LAUNCHER}, "spec": spec}
    return [launcher, *stateful_set(pod, {**notes, "healthd.dev/launcher": LAUNCHER}, members)]


def plain_pods(pod: Mapping[str, Any], notes: Mapping[str, str], members: int) -> list[Manifest]:
    """Pods that a script makes, and nothing else makes again."""
    one = template(pod)
    meta = {"labels": GANG, "annotations": {**ENABLED, **notes}}
    names = [f"{NAME}-{index}" for index in range(members)]
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**meta, "name": name}, "spec": one["spec"]} for name in names
    ]


GANGS = {
    "Job": Gang("Job", "job", job),
    "JobSet": Gang("JobSet", "jobset", jobset),
    "StatefulSet": Gang("StatefulSet", "statefulset", stateful_set, can_suspend=False),
    "StatefulSet with a launcher": Gang("StatefulSet", "statefulset", with_launcher, beside=1),
    "plain pods": Gang("PodGang", "podgang", plain_pods, can_suspend=False),
}
