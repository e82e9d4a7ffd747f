"""The real Kubeflow Trainer: TrainJob of trainer.kubeflow.org/v1alpha1, on JobSets. JobSet must run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests import quick_yaml
from tests.lab.api import Json
from tests.lab.build import carried
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import rotated, webhooks
from tests.lab.kinds.certificates import Rotated
from tests.lab.modules import TRAINER
from tests.lab.programs import Program, free_port

_UP = 60
_ROTATED = Rotated(
    authority="kubeflow-trainer-ca",
    namespace="kubeflow-system",
    service="kubeflow-trainer-controller-manager",
    secret="kubeflow-trainer-webhook-cert",
)
_GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
_NODE: Json = {
    "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "node", "image": "none"}]}}},
}
_TRIAL: Json = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainingRuntime",
    "metadata": {"name": "trial"},
    "spec": {"template": {"spec": {"replicatedJobs": [{"name": "node", "template": _NODE}]}}},
}


@contextmanager
def trainer(control_plane: ControlPlane) -> Iterator[Program]:
    """It runs, and its kinds can be created, until the block ends. Raises LabError, CannotBuild, CannotMount."""
    manifests, port = carried(TRAINER), free_port()
    for kind in ("trainjobs", "trainingruntimes", "clustertrainingruntimes"):
        control_plane.apply(manifests / "crds" / f"trainer.kubeflow.org_{kind}.yaml")
        control_plane.wait_until_served(f"{_GROUP}/{kind}")
    control_plane.ensure_namespace(_ROTATED.namespace)
    arguments = [
        "--kubeconfig={kubeconfig}",
        f"--webhook-server-port={port}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
    ]
    running = rotated.start(control_plane, TRAINER, _ROTATED, arguments)
    hooks = webhooks.by_address(
        manifests / "webhook" / "manifests.yaml",
        port,
        rotated.authority(control_plane, TRAINER),
        name=lambda _: "validator.trainer.kubeflow.org",
    )
    control_plane.apply(quick_yaml.dump_all(hooks))
    running.wait_until("serving its webhooks", lambda: webhooks.listens(port), limit=_UP)
    path = f"{_GROUP}/namespaces/default/trainingruntimes"
    running.wait_until("asked", lambda: webhooks.accepts(control_plane, path, _TRIAL), limit=_UP)
    yield running
    running.stop()
    webhooks.remove(control_plane, hooks)
