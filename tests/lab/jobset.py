"""
The real JobSet controller beside a control plane, with its webhooks on loopback.

It runs as an administrator outside of the cluster, so its own RBAC, Service and certificates are left out; everything
that a JobSet's user can notice is there: defaults, what may not be edited, restarts.
"""

from __future__ import annotations

import base64
import socket
from pathlib import Path

import yaml

from tests.lab.api import ApiError, Json
from tests.lab.build import JOBSET, carried, program
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import Program, free_port

_UP = 30
_KEPT = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_OF_JOBSETS = {"matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]}
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


def start_jobset(control_plane: ControlPlane) -> Program:
    """Return when JobSets can be created; the controller ends with the control plane. Raises LabError, CannotBuild."""
    manifests, port = carried(JOBSET), free_port()
    control_plane.apply(manifests / "crd" / "bases" / "jobset.x-k8s.io_jobsets.yaml")
    control_plane.wait_until_served("/apis/jobset.x-k8s.io/v1alpha2/jobsets")
    config = _write_config(control_plane.directory / "jobset", port, control_plane.directory)
    environment = {"KUBECONFIG": str(control_plane.kubeconfig)}
    running = control_plane.run("jobset", [str(program(JOBSET)), f"--config={config}"], environment=environment)
    running.wait_until("serving its webhooks", lambda: _listens(port), limit=_UP)
    control_plane.apply(yaml.safe_dump_all(_webhooks(manifests, port, control_plane.authority)))
    running.wait_until("asked about a JobSet", lambda: _accepts(control_plane), limit=_UP)
    return running


def _write_config(folder: Path, port: int, certificates: Path) -> Path:
    folder.mkdir()
    for name in ("key", "crt"):
        (folder / f"tls.{name}").symlink_to(certificates / f"server.{name}")
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"},
        "clientConnection": {"qps": 500, "burst": 1000},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def _webhooks(manifests: Path, port: int, authority: Path) -> list[Json]:
    """The controller's own webhooks, called by address instead of through a Service, for pods of JobSets alone."""
    bundle = base64.b64encode(authority.read_bytes()).decode()
    text = (manifests / "webhook" / "manifests.yaml").read_text()
    found: list[Json] = [each for each in yaml.safe_load_all(text) if each and each["kind"] in _KEPT]
    for each in found:
        each["metadata"]["name"] = f"jobset-{each['metadata']['name']}"
        for hook in each["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
            if path.endswith("-pod"):
                hook["objectSelector"] = _OF_JOBSETS
    return found


def _listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def _accepts(control_plane: ControlPlane) -> bool:
    """True once a JobSet passes, with the defaults of its webhook filled in: the API server knows of it."""
    try:
        made = control_plane.api.create("/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets?dryRun=All", _TRIAL)
    except ApiError:
        return False
    return bool(made["spec"].get("network"))
