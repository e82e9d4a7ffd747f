"""Objects of the kinds that are described by data, as their users write them and their controllers report on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import CustomObject, ObjectMeta, OwnerReference, Pod
from healthd.core.patches import merged
from healthd.core.recovery.gang import Root
from healthd.gangs.described import DescribedAdapter
from healthd.gangs.held import HeldAdapter
from healthd.gangs.kinds import ALL
from healthd.gangs.switch import Switch
from tests.builders import a_pod
from tests.gangs.builders import ENABLED

SINCE = "2026-03-01T12:00:00Z"


def adapter_of(kind: str) -> DescribedAdapter:
    """The adapter of a shipped kind."""
    held = ALL[kind]
    adapter = held.inner if isinstance(held, HeldAdapter) else held
    assert isinstance(adapter, DescribedAdapter)
    return adapter


def a_template(container: str = "main", **spec: Any) -> dict[str, Any]:
    """A pod template."""
    return {
        "metadata": {"labels": {"app": "train"}, "annotations": {}},
        "spec": {"containers": [{"name": container, "image": "localhost/none"}], **spec},
    }


def replicas(count: int, container: str = "pytorch", **spec: Any) -> dict[str, Any]:
    """One entry of a training job's replica specs."""
    return {"replicas": count, "restartPolicy": "OnFailure", "template": a_template(container, **spec)}


RAY: dict[str, Any] = {
    "headGroupSpec": {"rayStartParams": {}, "template": a_template("ray-head")},
    "workerGroupSpecs": [
        {"groupName": "small", "replicas": 1, "numOfHosts": 1, "template": a_template("ray-worker")},
        {"groupName": "large", "replicas": 1, "numOfHosts": 2, "template": a_template("ray-worker")},
    ],
}
SPECS: Mapping[str, dict[str, Any]] = {
    "PyTorchJob": {
        "runPolicy": {"suspend": False, "cleanPodPolicy": "None", "backoffLimit": 3},
        "pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(3)},
    },
    "TFJob": {
        "runPolicy": {"suspend": False},
        "tfReplicaSpecs": {"Chief": replicas(1, "tensorflow"), "Worker": replicas(3, "tensorflow")},
    },
    "XGBoostJob": {
        "runPolicy": {"suspend": False},
        "xgbReplicaSpecs": {"Master": replicas(1, "xgboost"), "Worker": replicas(3, "xgboost")},
    },
    "PaddleJob": {
        "runPolicy": {"suspend": False},
        "paddleReplicaSpecs": {"Master": replicas(1, "paddle"), "Worker": replicas(3, "paddle")},
    },
    "JAXJob": {"runPolicy": {"suspend": False}, "jaxReplicaSpecs": {"Worker": replicas(4, "jax")}},
    "MPIJob": {
        "slotsPerWorker": 8,
        "runPolicy": {"suspend": False, "backoffLimit": 3},
        "mpiReplicaSpecs": {"Launcher": replicas(1, "launcher"), "Worker": replicas(3, "worker")},
    },
    "TrainJob": {"runtimeRef": {"kind": "TrainingRuntime", "name": "rt"}, "trainer": {"numNodes": 4}},
    "LeaderWorkerSet": {
        "replicas": 1,
        "leaderWorkerTemplate": {"size": 4, "workerTemplate": a_template()},
    },
    "RayCluster": RAY,
    "RayJob": {"entrypoint": "python x.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": RAY},
    "VolcanoJob": {
        "minAvailable": 4,
        "maxRetry": 3,
        "policies": [{"event": "PodEvicted", "action": "RestartJob"}],
        "tasks": [
            {"name": "master", "replicas": 1, "minAvailable": 1, "template": a_template()},
            {"name": "worker", "replicas": 3, "template": a_template()},
        ],
    },
    "AppWrapper": {"components": [{"template": {"apiVersion": "batch/v1", "kind": "Job"}}]},
}
"""A running gang of four of each kind."""
_ONE_GROUP = {
    "workerGroupSpecs": [
        {"groupName": "w", "replicas": 3, "minReplicas": 2, "maxReplicas": 3, "template": a_template("ray-worker")}
    ]
}
WITH_THREE_WORKERS: Mapping[str, dict[str, Any]] = {
    "PyTorchJob": {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 3}},
    "MPIJob": {},
    "RayCluster": _ONE_GROUP,
    "RayJob": {"rayClusterSpec": _ONE_GROUP},
}
"""Of each elastic kind, what makes the usual gang one whose three workers may be two."""
RUNS: Mapping[str, dict[str, Any]] = {
    "LeaderWorkerSet": {"replicas": 1, "readyReplicas": 1},
    "AppWrapper": {"phase": "Running", "componentStatus": [{"podSets": [{"replicas": 4, "path": "template.spec"}]}]},
    "RayJob": {"jobDeploymentStatus": "Running", "rayClusterName": "train-8xk2p"},
    "VolcanoJob": {"state": {"phase": "Running"}, "minAvailable": 4, "running": 4, "version": 2},
}
"""What its controller says of such a gang, where that matters."""
STOPPED: Mapping[str, dict[str, Any]] = {
    "LeaderWorkerSet": {"replicas": None, "readyReplicas": None},
    "AppWrapper": {"phase": "Suspended"},
    "RayJob": {"jobDeploymentStatus": "Suspended", "rayClusterName": None},
    "VolcanoJob": {"state": {"phase": "Running"}, "minAvailable": None, "running": None},
    "RayCluster": {"conditions": [{"type": "RayClusterSuspended", "status": "True", "lastTransitionTime": SINCE}]},
}
"""What it says of one that has stopped, where that is not the condition Suspended."""


def an_object(
    kind: str,
    *,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    owner: OwnerReference | None = None,
    name: str = "train",
) -> CustomObject:
    """A gang of this kind that healthd may restart. *spec* is a merge patch of the usual one."""
    made: CustomObject = adapter_of(kind).kind(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            labels=dict(labels or {}),
            annotations=dict(ENABLED if annotations is None else annotations),
            owner_references=[owner] if owner else [],
        ),
        spec=merged(SPECS[kind], spec or {}),
        status=merged(RUNS.get(kind, {}), status or {}),
    )
    return made


def switched(kind: str, is_off: bool) -> dict[str, Any]:
    """The merge patch with which its user stops a usual gang, or starts it."""
    switch, whole = Switch(adapter_of(kind).description), {"spec": SPECS[kind]}
    return switch.suspending(is_off) or (switch.stopped(whole) if is_off else whole)


def with_workers(kind: str, number: int) -> dict[str, Any]:
    """The patch of the spec that asks for so many workers in a gang of `WITH_THREE_WORKERS`."""
    if "Ray" in kind:
        groups = {"workerGroupSpecs": [{**_ONE_GROUP["workerGroupSpecs"][0], "replicas": number}]}
        return groups if kind == "RayCluster" else {"rayClusterSpec": groups}
    specs = next(key for key in SPECS[kind] if key.endswith("ReplicaSpecs"))
    return {specs: {"Worker": {"replicas": number}}}


def says_stopped(kind: str) -> dict[str, Any]:
    """What the controller of this kind reports when it has stopped a gang."""
    return STOPPED.get(kind) or conditions("Suspended")


def conditions(*types: str, **values: str) -> dict[str, Any]:
    """A status with these conditions True, and others as given."""
    listed = [*((each, "True") for each in types), *values.items()]
    return {"conditions": [{"type": t, "status": status, "lastTransitionTime": SINCE} for t, status in listed]}


def read(kind: str, obj: CustomObject) -> Root:
    """As the controller reads it."""
    root = adapter_of(kind).read(obj)
    assert root is not None
    return root


async def stored(cluster: EmbeddedCluster, kind: str, **fields: Any) -> CustomObject:
    """An object of this kind that is in the cluster, with its status."""
    wanted = an_object(kind, **fields)
    obj = await cluster.create(wanted)
    return await reports(cluster, obj, wanted.status) if wanted.status else obj


async def reports(cluster: EmbeddedCluster, obj: CustomObject, status: Mapping[str, Any]) -> CustomObject:
    """What its controller writes of it."""
    meta = obj.metadata
    return await cluster.patch(type(obj), meta.name, {"status": status}, namespace=meta.namespace, subresource="status")


async def now(cluster: EmbeddedCluster, kind: str) -> CustomObject:
    """The object as it stands."""
    return await cluster.get(adapter_of(kind).kind, "train", "default")


def made_by(kind: str, name: str = "train", uid: str = "uid-1") -> OwnerReference:
    """The reference of a pod to its controller."""
    return OwnerReference(kind=kind, name=name, uid=uid, controller=True)


def a_member(owner: OwnerReference, name: str = "train-worker-0", **fields: Any) -> Pod:
    """A pod that *owner* controls."""
    return msgspec.structs.replace(
        pod := a_pod(name, **fields), metadata=msgspec.structs.replace(pod.metadata, owner_references=[owner])
    )
