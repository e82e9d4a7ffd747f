"""
A gang of four members of each kind, as its user writes it, and how its user stops and starts it.

Every member wants a whole node. A launcher or submitter is one pod more and wants none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lab.api import Json
from tests.lab.kinds.kueue import POD_GROUP, POD_GROUP_SIZE, QUEUE
from tests.lab.simulated import GPUS

NAME = "train"
_ROOM = {"limits": {GPUS: "8"}}


def pods(container: str = "main", *, gpus: bool = True, **spec: Any) -> Json:
    """A pod template with one container of this name."""
    room = {"resources": _ROOM} if gpus else {}
    return {"metadata": {}, "spec": {"containers": [{"name": container, "image": "none", **room}], **spec}}


def kubeflow_job(kind: str, roles: Mapping[str, int], *, restart_policy: str = "OnFailure", **policy: Any) -> Json:
    """One of the kinds of the training-operator: its members by role."""
    flavor = kind.removesuffix("Job").lower()
    prefix = {"xgboost": "xgb", "tensorflow": "tf"}.get(flavor, flavor)
    container = {"tf": "tensorflow"}.get(flavor, flavor)
    replicas = {
        role: {"replicas": count, "restartPolicy": restart_policy, "template": pods(container)}
        for role, count in roles.items()
    }
    spec = {"runPolicy": {"cleanPodPolicy": "None", **policy}, f"{prefix}ReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": {"name": NAME}, "spec": spec}


def mpi_job(**policy: Any) -> Json:
    """A launcher and four workers."""
    roles = {
        "Launcher": {"replicas": 1, "restartPolicy": "OnFailure", "template": pods("launcher", gpus=False)},
        "Worker": {"replicas": 4, "restartPolicy": "Never", "template": pods("worker")},
    }
    run_policy = {"cleanPodPolicy": "None", "backoffLimit": 3, **policy}
    spec = {"slotsPerWorker": 8, "runPolicy": run_policy, "mpiReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": NAME}, "spec": spec}


def job() -> Json:
    """An Indexed Job."""
    spec = {
        "parallelism": 4,
        "completions": 4,
        "completionMode": "Indexed",
        "backoffLimit": 3,
        "template": pods(restartPolicy="Never"),
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": NAME}, "spec": spec}


def stateful_set() -> Json:
    """Four replicas that start together."""
    labels = {"app": NAME}
    template = pods()
    template["metadata"]["labels"] = labels
    spec = {
        "replicas": 4,
        "serviceName": NAME,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME}, "spec": spec}


def jobset(**spec: Any) -> Json:
    """A leader and a Job of three workers."""

    def part(name: str, members: int) -> Json:
        one = {"parallelism": members, "completions": members, "backoffLimit": 0}
        return {"name": name, "template": {"spec": {**one, "template": pods(restartPolicy="Never")}}}

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": NAME},
        "spec": {"replicatedJobs": [part("leader", 1), part("workers", 3)], **spec},
    }


def plain_pods() -> list[Json]:
    """Four, as a script makes them: no controller makes them again."""
    spec = pods(restartPolicy="Never")["spec"]
    metadata = {"labels": {"healthd.dev/gang": NAME}}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": f"{NAME}-{rank}"}, "spec": spec}
        for rank in range(4)
    ]


def queued_pods() -> list[Json]:
    """The same as a group in a queue."""
    group, size = {QUEUE: NAME, POD_GROUP: NAME}, {POD_GROUP_SIZE: "4"}
    return [
        {**pod, "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], **group}, "annotations": size}}
        for pod in plain_pods()
    ]


def train_job() -> list[Json]:
    """A TrainJob of four nodes with a runtime of its own."""
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    node = {"metadata": step, "spec": {"backoffLimit": 0, "template": pods("node", restartPolicy="Never")}}
    template = {"spec": {"failurePolicy": {"maxRestarts": 3}, "replicatedJobs": [{"name": "node", "template": node}]}}
    policy = {"numNodes": 4, "torch": {"numProcPerNode": "auto"}}
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {"name": NAME, "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {"mlPolicy": policy, "template": template},
    }
    spec = {"runtimeRef": {"kind": "TrainingRuntime", "name": NAME}, "trainer": {"numNodes": 4}}
    made = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    return [runtime, made]


def ray_cluster_spec() -> Json:
    """A head and three workers."""
    workers = {"replicas": 3, "minReplicas": 3, "maxReplicas": 3, "rayStartParams": {}, "template": pods("ray-worker")}
    return {
        "rayVersion": "2.46.0",
        "headGroupSpec": {"rayStartParams": {}, "template": pods("ray-head")},
        "workerGroupSpecs": [{"groupName": "w", **workers}],
    }


def ray_cluster() -> Json:
    """A head and three workers."""
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": NAME}, "spec": ray_cluster_spec()}


def ray_job() -> Json:
    """A head, three workers, and the submitter. Only with `shutdownAfterJobFinishes` it can be suspended."""
    spec = {
        "entrypoint": "python train.py",
        "submissionMode": "K8sJobMode",
        "backoffLimit": 2,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": ray_cluster_spec(),
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": NAME}, "spec": spec}


def leader_worker_set() -> Json:
    """One group of four."""
    template = {"size": 4, "restartPolicy": "RecreateGroupOnPodRestart", "workerTemplate": pods()}
    spec = {"replicas": 1, "leaderWorkerTemplate": template}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": NAME},
        "spec": spec,
    }


def app_wrapper(component: Json) -> Json:
    """Around a gang of another kind."""
    spec = {"components": [{"template": component}]}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": NAME},
        "spec": spec,
    }


def volcano_job(**spec: Any) -> Json:
    """Four members that start together or not at all."""
    usual = {
        "minAvailable": 4,
        "schedulerName": "volcano",
        "queue": "default",
        "maxRetry": 20,
        "plugins": {"svc": [], "env": []},
        "policies": [{"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"}],
        "tasks": [{"name": "w", "replicas": 4, "template": pods(restartPolicy="Never")}],
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": NAME},
        "spec": {**usual, **spec},
    }


def scheduled_by_volcano() -> list[Json]:
    """An Indexed Job whose members Volcano places together or not at all, and the group that says so."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": NAME},
        "spec": {"minMember": 4, "queue": "default"},
    }
    made = job()
    made["spec"]["template"]["metadata"] = {"annotations": {"scheduling.k8s.io/group-name": NAME}}
    made["spec"]["template"]["spec"]["schedulerName"] = "volcano"
    return [group, made]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How one kind is written, stopped and started by its user."""

    controllers: tuple[str, ...]
    """By their names in `controllers.py`, in the order in which they start."""
    manifests: tuple[Json, ...]
    patched: str = ""
    """What its user patches to stop and start it, as kubectl names it; empty: its user can only delete it."""
    root: str = ""
    """The gang's own object, where its user stops it by another one, or not at all."""
    stop: Any = field(default_factory=lambda: {"spec": {"suspend": True}})
    """A merge patch; a list is a JSON patch."""
    start: Any = field(default_factory=lambda: {"spec": {"suspend": False}})
    """None: its user makes it again."""
    pods: int = 4

    @property
    def deleted(self) -> str:
        """What its user deletes, as kubectl names it."""
        return self.root or self.patched


def _run_policy(suspend: bool) -> Json:
    return {"spec": {"runPolicy": {"suspend": suspend}}}


def _kubeflow(kind: str, **roles: int) -> Kind:
    return Kind(
        controllers=("training-operator",),
        manifests=(kubeflow_job(kind, roles),),
        patched=f"{kind.lower()}s.kubeflow.org/{NAME}",
        stop=_run_policy(True),
        start=_run_policy(False),
    )


def _volcano(members: int) -> list[Json]:
    """Its suspension counts as a retry; no members do not."""
    return [
        {"op": "replace", "path": "/spec/minAvailable", "value": members},
        {"op": "replace", "path": "/spec/tasks/0/replicas", "value": members},
    ]


def _queued(resource: str, controllers: Sequence[str], *made: Json, pods: int = 4) -> Kind:
    """The last of what is *made*, in a queue of Kueue, which starts and stops it."""
    *before, gang = made
    metadata = {**gang["metadata"], "labels": {QUEUE: NAME}}
    return Kind(
        controllers=(*controllers, "kueue"),
        manifests=(*before, {**gang, "metadata": metadata}),
        root=f"{resource}/{NAME}",
        patched=_LOCAL_QUEUE,
        stop=_DRAIN,
        start={"spec": {"stopPolicy": "None"}},
        pods=pods,
    )


_LOCAL_QUEUE = f"localqueues.kueue.x-k8s.io/{NAME}"
_DRAIN: Json = {"spec": {"stopPolicy": "HoldAndDrain"}}


KINDS = {
    "Job": Kind(controllers=(), manifests=(job(),), patched=f"jobs.batch/{NAME}"),
    "JobSet": Kind(
        controllers=("jobset",),
        manifests=(jobset(failurePolicy={"maxRestarts": 3}),),
        patched=f"jobsets.jobset.x-k8s.io/{NAME}",
    ),
    "StatefulSet": Kind(
        controllers=(),
        manifests=(stateful_set(),),
        patched=f"statefulsets.apps/{NAME}",
        stop={"spec": {"replicas": 0}},
        start={"spec": {"replicas": 4}},
    ),
    "plain pods": Kind(controllers=(), manifests=tuple(plain_pods()), root=f"podgangs.healthd.dev/{NAME}"),
    "PyTorchJob": _kubeflow("PyTorchJob", Master=1, Worker=3),
    "TFJob": _kubeflow("TFJob", Chief=1, Worker=3),
    "XGBoostJob": _kubeflow("XGBoostJob", Master=1, Worker=3),
    "PaddleJob": _kubeflow("PaddleJob", Master=1, Worker=3),
    "JAXJob": _kubeflow("JAXJob", Worker=4),
    "MPIJob": Kind(
        controllers=("mpi-operator",),
        manifests=(mpi_job(),),
        patched=f"mpijobs.kubeflow.org/{NAME}",
        stop=_run_policy(True),
        start=_run_policy(False),
        pods=5,
    ),
    "TrainJob": Kind(
        controllers=("jobset", "trainer"),
        manifests=tuple(train_job()),
        patched=f"trainjobs.trainer.kubeflow.org/{NAME}",
    ),
    "RayCluster": Kind(controllers=("kuberay",), manifests=(ray_cluster(),), patched=f"rayclusters.ray.io/{NAME}"),
    "RayJob": Kind(controllers=("kuberay",), manifests=(ray_job(),), patched=f"rayjobs.ray.io/{NAME}", pods=5),
    "LeaderWorkerSet": Kind(
        controllers=("leaderworkerset",),
        manifests=(leader_worker_set(),),
        patched=f"leaderworkersets.leaderworkerset.x-k8s.io/{NAME}",
        stop={"spec": {"replicas": 0}},
        start={"spec": {"replicas": 1}},
    ),
    "AppWrapper": Kind(
        controllers=("appwrapper",),
        manifests=(app_wrapper(job()),),
        patched=f"appwrappers.workload.codeflare.dev/{NAME}",
    ),
    "VolcanoJob": Kind(
        controllers=("volcano",),
        manifests=(volcano_job(),),
        patched=f"jobs.batch.volcano.sh/{NAME}",
        stop=_volcano(0),
        start=_volcano(4),
    ),
    "Job scheduled by Volcano": Kind(
        controllers=("volcano",), manifests=tuple(scheduled_by_volcano()), patched=f"jobs.batch/{NAME}"
    ),
    "Job in a queue": _queued("jobs.batch", (), job()),
    "JobSet in a queue": _queued("jobsets.jobset.x-k8s.io", ("jobset",), jobset(failurePolicy={"maxRestarts": 3})),
    "PyTorchJob in a queue": _queued(
        "pytorchjobs.kubeflow.org", ("training-operator",), kubeflow_job("PyTorchJob", {"Master": 1, "Worker": 3})
    ),
    "MPIJob in a queue": _queued("mpijobs.kubeflow.org", ("mpi-operator",), mpi_job(), pods=5),
    "TrainJob in a queue": _queued("trainjobs.trainer.kubeflow.org", ("jobset", "trainer"), *train_job()),
    "RayJob in a queue": _queued("rayjobs.ray.io", ("kuberay",), ray_job(), pods=5),
    "plain pods in a queue": Kind(
        controllers=("kueue",),
        manifests=tuple(queued_pods()),
        root=f"podgangs.healthd.dev/{NAME}",
        patched=_LOCAL_QUEUE,
        stop=_DRAIN,
        start=None,
    ),
}
