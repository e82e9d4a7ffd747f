"""Gangs as their users write them: four members, or with a launcher five."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENABLED = {"healthd.dev/restart": "enabled"}


def pods(
    *, labels: Mapping[str, str] | None = None, notes: Mapping[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    """A pod template."""
    return {
        "metadata": {"labels": dict(labels or {}), "annotations": dict(notes or {})},
        "spec": {"containers": [{"name": "main", "image": "none"}], "restartPolicy": "Never", **spec},
    }


def job(name: str = "train", *, template: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """An Indexed Job unless *spec* says otherwise."""
    usual = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "backoffLimit": 3}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": ENABLED},
        "spec": {**usual, "template": template or pods(), **spec},
    }


def jobset(*, template: Mapping[str, Any] | None = None, backoff_limit: int = 0, **spec: Any) -> dict[str, Any]:
    """A leader and a Job of three workers."""

    def part(name: str, members: int) -> dict[str, Any]:
        one = {"parallelism": members, "completions": members, "backoffLimit": backoff_limit}
        return {"name": name, "template": {"spec": {**one, "template": template or pods()}}}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "annotations": ENABLED},
        "spec": {"replicatedJobs": [part("leader", 1), part("workers", 3)], **spec},
    }


def stateful_set(*, notes: Mapping[str, str] | None = None, replicas: int = 4) -> dict[str, Any]:
    """A StatefulSet whose pods start together."""
    labels = {"app": "train"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "train", "annotations": {**ENABLED, **(notes or {})}},
        "spec": {
            "replicas": replicas,
            "serviceName": "train",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": pods(labels=labels, restartPolicy="Always"),
        },
    }


def plain_pods(*names: str, notes: Mapping[str, str] | None = None, **spec: Any) -> list[dict[str, Any]]:
    """Pods that a script makes."""
    one = pods(labels={"healthd.dev/gang": "train"}, notes={**ENABLED, **(notes or {})}, **spec)
    return [{"apiVersion": "v1", "kind": "Pod", **one, "metadata": {**one["metadata"], "name": name}} for name in names]


def launcher() -> dict[str, Any]:
    """The Job that starts the work on the pods of the StatefulSet `train`."""
    one = {"parallelism": 1, "completions": 1, "completionMode": "NonIndexed"}
    made = job("mpirun", template=pods(labels={"healthd.dev/gang": "train"}), **one)
    return {**made, "metadata": {"name": "mpirun"}}
