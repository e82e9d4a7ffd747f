"""
The real training-operator: PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob of kubeflow.org/v1.

Its own MPIJob (v1) is left out: the one that people use is v2beta1, of the mpi-operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests import quick_yaml
from tests.lab.api import Json
from tests.lab.build import carried
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import rotated, webhooks
from tests.lab.kinds.certificates import Rotated
from tests.lab.modules import TRAINING_OPERATOR
from tests.lab.programs import Program, free_port

KINDS = ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")

_UP = 60
_ROTATED = Rotated(
    authority="training-operator-ca",
    namespace="kubeflow",
    service="training-operator",
    secret="training-operator-webhook-cert",
)
_PATH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
_TRIAL: Json = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "trial"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}}
        }
    },
}


@contextmanager
def training_operator(control_plane: ControlPlane) -> Iterator[Program]:
    """It runs, and its kinds can be created, until the block ends. Raises LabError, CannotBuild, CannotMount."""
    manifests, port = carried(TRAINING_OPERATOR), free_port()
    for kind in KINDS:
        control_plane.apply(manifests / "crds" / f"kubeflow.org_{kind}s.yaml")
        control_plane.wait_until_served(f"/apis/kubeflow.org/v1/{kind}s")
    control_plane.ensure_namespace(_ROTATED.namespace)
    running = rotated.start(control_plane, TRAINING_OPERATOR, _ROTATED, _arguments(port))
    hooks = webhooks.by_address(
        manifests / "webhook" / "manifests.yaml",
        port,
        rotated.authority(control_plane, TRAINING_OPERATOR),
        name=lambda _: "validator.training-operator.kubeflow.org",
    )
    control_plane.apply(quick_yaml.dump_all(hooks))
    running.wait_until("serving its webhooks", lambda: webhooks.listens(port), limit=_UP)
    running.wait_until("asked", lambda: webhooks.accepts(control_plane, _PATH, _TRIAL), limit=_UP)
    yield running
    running.stop()
    webhooks.remove(control_plane, hooks)


def _arguments(port: int) -> list[str]:
    return [
        "--kubeconfig={kubeconfig}",
        *(f"--enable-scheme={kind}" for kind in KINDS),
        f"--webhook-server-port={port}",
        "--metrics-bind-address=0",
        f"--health-probe-bind-address=127.0.0.1:{free_port()}",
        "--controller-threads=4",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]
