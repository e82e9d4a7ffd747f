"""
The real JobSet controller beside a control plane, with its webhooks on loopback.

It runs as an administrator outside of the cluster, so its own RBAC, Service and certificates are left out; everything
that a JobSet's user can notice is there: defaults, what may not be edited, restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import quick_yaml
from tests.lab.api import ApiError, Json
from tests.lab.build import carried, program
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import webhooks
from tests.lab.kinds.configured import write_config
from tests.lab.modules import JOBSET
from tests.lab.programs import Program, free_port

_UP = 30
_GROUP = "/apis/jobset.x-k8s.io/v1alpha2"
_TRIAL: Json = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "trial"},
    "spec": {
        "replicatedJobs": [
            {
                "name": "w",
                "template": {
                    "spec": {
                        "template": {
                            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
                        }
                    }
                },
            }
        ]
    },
}


@contextmanager
def jobset(control_plane: ControlPlane) -> Iterator[Program]:
    """It runs, and JobSets can be created, until the block ends. Raises LabError, CannotBuild."""
    running = start_jobset(control_plane)
    yield running
    running.stop()
    webhooks.remove(control_plane, _webhooks(carried(JOBSET), 0, control_plane.authority))


def start_jobset(control_plane: ControlPlane) -> Program:
    """Return when JobSets can be created; the controller ends with the control plane. Raises LabError, CannotBuild."""
    manifests, port = carried(JOBSET), free_port()
    control_plane.apply(manifests / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml")
    control_plane.wait_until_served(f"{_GROUP}/jobsets")
    config = write_config(control_plane, "jobset", "config.jobset.x-k8s.io/v1alpha1", port)
    environment = {"KUBECONFIG": str(control_plane.kubeconfig)}
    running = control_plane.run("jobset", [str(program(JOBSET)), f"--config={config}"], environment=environment)
    running.wait_until("serving its webhooks", lambda: webhooks.listens(port), limit=_UP)
    control_plane.apply(quick_yaml.dump_all(_webhooks(manifests, port, control_plane.authority)))
    running.wait_until("asked about a JobSet", lambda: _accepts(control_plane), limit=_UP)
    return running


def _webhooks(manifests: Path, port: int, authority: Path) -> list[Json]:
    """The controller's own, those for pods for pods of JobSets alone."""
    return webhooks.by_address(
        manifests / "webhook" / "manifests.yaml",
        port,
        authority,
        name=lambda name: f"jobset-{name}",
        pods_with="jobset.sigs.k8s.io/jobset-name",
    )


def _accepts(control_plane: ControlPlane) -> bool:
    """True once a JobSet passes, with the defaults of its webhook filled in: the API server knows of it."""
    try:
        made = control_plane.api.create(f"{_GROUP}/namespaces/default/jobsets?dryRun=All", _TRIAL)
    except ApiError:
        return False
    return bool(made["spec"].get("network"))
