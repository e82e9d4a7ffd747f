"""
The real Kueue, for the kinds in FRAMEWORKS whose definitions are there when it starts.

Only what says its queue is managed. Its webhooks for other kinds are left out, and those for pods see pods of a queue
alone: as shipped they refuse nearly every pod of the cluster while Kueue is down.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import quick_yaml
from tests.lab.api import Json
from tests.lab.build import carried, program
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import webhooks
from tests.lab.kinds.configured import link_certificate, write_config
from tests.lab.kinds.private import with_mounts
from tests.lab.modules import KUEUE
from tests.lab.programs import Program, free_port

FRAMEWORKS = {
    "batch/job": "batch-v1-job",
    "jobset.x-k8s.io/jobset": "jobset-x-k8s-io-v1alpha2-jobset",
    "kubeflow.org/pytorchjob": "kubeflow-org-v1-pytorchjob",
    "kubeflow.org/mpijob": "kubeflow-org-v2beta1-mpijob",
    "ray.io/rayjob": "ray-io-v1-rayjob",
    "trainer.kubeflow.org/trainjob": "trainer-kubeflow-org-v1alpha1-trainjob",
    "pod": "-v1-pod",
}
"""The names in its configuration, and how the paths of their webhooks end."""
QUEUE = "kueue.x-k8s.io/queue-name"
POD_GROUP, POD_GROUP_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
"""A label and an annotation of plain pods that are admitted together."""

_UP = 60
_GROUP = "/apis/kueue.x-k8s.io/v1beta1"
_KINDS = "kueue.x-k8s.io"
_METRICS = "kueue/metrics/certs"
"""Below /etc: hard-wired, and read although the metrics are off."""
_TRIAL: Json = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ResourceFlavor",
    "metadata": {"name": "trial"},
    "spec": {},
}


@contextmanager
def kueue(control_plane: ControlPlane) -> Iterator[Program]:
    """It runs, and its kinds can be created, until the block ends. Raises LabError, CannotBuild, CannotMount."""
    manifests, port = carried(KUEUE), free_port()
    for manifest in sorted((manifests / "crd" / "bases").glob("*.yaml")):
        control_plane.apply(manifest)
    for kind in ("workloads", "clusterqueues", "localqueues", "resourceflavors"):
        control_plane.wait_until_served(f"{_GROUP}/{kind}")
    running = _run(control_plane, port)
    running.wait_until("serving its webhooks", lambda: webhooks.listens(port), limit=_UP)
    hooks = webhooks.by_address(
        manifests / "webhook" / "manifests.yaml",
        port,
        control_plane.authority,
        name=lambda name: f"kueue-{name}",
        pods_with=QUEUE,
        keep=_is_used,
    )
    control_plane.apply(quick_yaml.dump_all(hooks))
    path = f"{_GROUP}/resourceflavors"
    running.wait_until("asked", lambda: webhooks.accepts(control_plane, path, _TRIAL), limit=_UP)
    yield running
    running.stop()
    webhooks.remove(control_plane, hooks)


def queue(name: str, *, gpus: int, namespace: str, shared: str = "") -> list[Json]:
    """A local queue called *name*, with a cluster queue and a flavor of its own, called *shared* or likewise."""
    shared = shared or name
    quotas: list[Json] = [
        {"name": "cpu", "nominalQuota": 1000},
        {"name": "memory", "nominalQuota": "1000Gi"},
        {"name": "nvidia.com/gpu", "nominalQuota": gpus},
    ]
    covered = {
        "coveredResources": [each["name"] for each in quotas],
        "flavors": [{"name": shared, "resources": quotas}],
    }
    kinds: dict[str, Json] = {
        "ResourceFlavor": {},
        "ClusterQueue": {"namespaceSelector": {}, "resourceGroups": [covered]},
        "LocalQueue": {"clusterQueue": shared},
    }
    return [
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace} if kind == "LocalQueue" else {"name": shared},
            "spec": spec,
        }
        for kind, spec in kinds.items()
    ]


def _is_used(path: str) -> bool:
    return _KINDS.replace(".", "-") in path or any(path.endswith(end) for end in FRAMEWORKS.values())


def _run(control_plane: ControlPlane, port: int) -> Program:
    more: dict[str, Json] = {
        "integrations": {"frameworks": list(FRAMEWORKS)},
        "featureGates": {"VisibilityOnDemand": False},  # it wants to be inside of the cluster
    }
    config = write_config(control_plane, "kueue", "config.kueue.x-k8s.io/v1beta1", port, **more)
    etc = _etc(control_plane)
    command = with_mounts([(etc, "/etc")], [str(program(KUEUE)), f"--config={config}"])
    return control_plane.run("kueue", command, environment={"KUBECONFIG": str(control_plane.kubeconfig)})


def _etc(control_plane: ControlPlane) -> Path:
    etc = control_plane.directory / "kueue-etc"
    (etc / _METRICS).mkdir(parents=True, exist_ok=True)
    link_certificate(control_plane, etc / _METRICS)
    return etc
