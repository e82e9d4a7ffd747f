"""The real LeaderWorkerSet controller: leaderworkerset.x-k8s.io/v1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests import quick_yaml
from tests.lab.api import Json
from tests.lab.build import carried, program
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import webhooks
from tests.lab.kinds.configured import write_config
from tests.lab.modules import LEADERWORKERSET
from tests.lab.programs import Program, free_port

_UP = 60
_GROUP = "/apis/leaderworkerset.x-k8s.io/v1"
_TRIAL: Json = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "trial"},
    "spec": {
        "leaderWorkerTemplate": {
            "size": 1,
            "workerTemplate": {"spec": {"containers": [{"name": "main", "image": "none"}]}},
        }
    },
}


@contextmanager
def leaderworkerset(control_plane: ControlPlane) -> Iterator[Program]:
    """It runs, and its kind can be created, until the block ends. Raises LabError, CannotBuild."""
    manifests, port = carried(LEADERWORKERSET), free_port()
    control_plane.apply(manifests / "crd" / "bases" / "leaderworkerset.x-k8s.io_leaderworkersets.yaml")
    control_plane.wait_until_served(f"{_GROUP}/leaderworkersets")
    config = write_config(control_plane, "leaderworkerset", "config.lws.x-k8s.io/v1alpha1", port)
    command = [str(program(LEADERWORKERSET)), f"--config={config}"]
    running = control_plane.run("leaderworkerset", command, environment={"KUBECONFIG": str(control_plane.kubeconfig)})
    running.wait_until("serving its webhooks", lambda: webhooks.listens(port), limit=_UP)
    hooks = webhooks.by_address(
        manifests / "webhook" / "manifests.yaml",
        port,
        control_plane.authority,
        name=lambda name: f"lws-{name}",
        pods_with="leaderworkerset.sigs.k8s.io/name",
    )
    control_plane.apply(quick_yaml.dump_all(hooks))
    path = f"{_GROUP}/namespaces/default/leaderworkersets"
    running.wait_until("asked", lambda: webhooks.accepts(control_plane, path, _TRIAL), limit=_UP)
    yield running
    running.stop()
    webhooks.remove(control_plane, hooks)
