"""The real KubeRay operator: RayCluster and RayJob of ray.io/v1. Its webhooks are optional, and left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.lab.build import carried, program
from tests.lab.control_plane import ControlPlane
from tests.lab.kinds import webhooks
from tests.lab.modules import KUBERAY
from tests.lab.programs import Program, free_port

_UP = 60


@contextmanager
def kuberay(control_plane: ControlPlane) -> Iterator[Program]:
    """It runs until the block ends. Raises LabError, CannotBuild."""
    for kind in ("rayclusters", "rayjobs", "rayservices"):
        control_plane.apply(carried(KUBERAY) / "bases" / f"ray.io_{kind}.yaml")
        control_plane.wait_until_served(f"/apis/ray.io/v1/{kind}")
    probes = free_port()
    running = control_plane.run(
        "kuberay",
        [
            str(program(KUBERAY)),
            f"-kubeconfig={control_plane.kubeconfig}",
            "-enable-leader-election=false",
            f"-metrics-addr=127.0.0.1:{free_port()}",
            f"-health-probe-bind-address=127.0.0.1:{probes}",
            "-reconcile-concurrency=4",
            "-qps=500",
            "-burst=1000",
        ],
    )
    running.wait_until("running", lambda: webhooks.listens(probes), limit=_UP)
    yield running
    running.stop()
