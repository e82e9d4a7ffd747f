"""
The real AppWrapper controller: workload.codeflare.dev/v1beta2, around a gang of another kind, without Kueue.

Its webhooks listen on port 9443, hard-wired: one at a time on a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from tests import quick_yaml
from tests.lab.api import Json
from tests.lab.build import carried
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import rotated, webhooks
from tests.lab.kinds.certificates import Rotated
from tests.lab.modules import APPWRAPPER
from tests.lab.programs import Program, free_port

_UP = 60
_PORT = 9443
_SECOND = 1_000_000_000
_ROTATED = Rotated(
    authority="appwrapper-ca",
    namespace="appwrapper-system",
    service="appwrapper-webhook-service",
    secret="appwrapper-webhook-server-cert",
)
_GROUP = "/apis/workload.codeflare.dev/v1beta2"
_TRIAL: Json = {
    "apiVersion": "workload.codeflare.dev/v1beta2",
    "kind": "AppWrapper",
    "metadata": {"name": "trial"},
    "spec": {
        "components": [
            {
                "template": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {"name": "trial"},
                    "spec": {
                        "template": {
                            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
                        }
                    },
                }
            }
        ]
    },
}


@contextmanager
def appwrapper(control_plane: ControlPlane) -> Iterator[Program]:
    """It runs, and its kind can be created, until the block ends. Raises LabError, CannotBuild, CannotMount."""
    manifests = carried(APPWRAPPER)
    control_plane.apply(manifests / "crd" / "bases" / "workload.codeflare.dev_appwrappers.yaml")
    control_plane.wait_until_served(f"{_GROUP}/appwrappers")
    control_plane.ensure_namespace(_ROTATED.namespace)
    control_plane.apply(yaml.safe_dump(_config()))
    environment = {"NAMESPACE": _ROTATED.namespace}
    running = rotated.start(control_plane, APPWRAPPER, _ROTATED, ["--kubeconfig={kubeconfig}"], environment=environment)
    hooks = webhooks.by_address(
        manifests / "webhook" / "manifests.yaml",
        _PORT,
        rotated.authority(control_plane, APPWRAPPER),
        name=lambda name: f"appwrapper-{name}",
    )
    control_plane.apply(quick_yaml.dump_all(hooks))
    running.wait_until("serving its webhooks", lambda: webhooks.listens(_PORT), limit=_UP)
    path = f"{_GROUP}/namespaces/default/appwrappers"
    running.wait_until("asked", lambda: webhooks.accepts(control_plane, path, _TRIAL), limit=_UP)
    yield running
    running.stop()
    webhooks.remove(control_plane, hooks)


def _config() -> Json:
    """Its graces are minutes as shipped. Durations are nanoseconds."""
    config = {
        "appwrapper": {
            "userRBACAdmissionCheck": False,
            "autopilot": {"injectAntiAffinities": False, "monitorNodes": False},
            "faultTolerance": {
                "admissionGracePeriod": 5 * _SECOND,
                "warmupGracePeriod": 10 * _SECOND,
                "failureGracePeriod": 3 * _SECOND,
                "resetPause": 3 * _SECOND,
                "retryLimit": 3,
            },
        },
        "controllerManager": {
            "health": {"bindAddress": f"127.0.0.1:{free_port()}"},
            "metrics": {"bindAddress": "0"},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "appwrapper-operator-config", "namespace": _ROTATED.namespace},
        "data": {"config.yaml": yaml.safe_dump(config)},
    }
