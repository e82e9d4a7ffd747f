"""
The real Volcano scheduler and controllers: Job of batch.volcano.sh/v1alpha1 and its PodGroup.

Its admission webhooks are left out: a Job names its minAvailable, queue, scheduler and maxRetry itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from tests.lab.build import carried, program
from tests.lab.control_plane import ControlPlane
from tests.lab.modules import VOLCANO_CONTROLLERS, VOLCANO_SCHEDULER
from tests.lab.programs import Program, free_port

_UP = 60


_PLUGINS = (("priority", "gang", "conformance"), ("drf", "predicates", "proportion", "nodeorder", "binpack"))
_QUEUE = "/apis/scheduling.volcano.sh/v1beta1/queues/default"


@contextmanager
def volcano(control_plane: ControlPlane) -> Iterator[Program]:
    """They run, and the queue `default` is open, until the block ends. Raises LabError, CannotBuild."""
    for folder in ("volcano", "jobflow"):  # without the latter the controllers wait for ever
        for manifest in sorted((carried(VOLCANO_CONTROLLERS) / folder / "bases").glob("*.yaml")):
            control_plane.apply(manifest)
    control_plane.wait_until_served("/apis/batch.volcano.sh/v1alpha1/jobs")
    control_plane.wait_until_served("/apis/flow.volcano.sh/v1alpha1/jobflows")
    controllers = _controllers(control_plane)
    scheduler = _scheduler(control_plane)
    scheduler.wait_until("its queue", lambda: control_plane.has(_QUEUE), limit=_UP)
    controllers.wait_until("its queue open", lambda: _is_open(control_plane), limit=_UP)
    yield controllers
    scheduler.stop()
    controllers.stop()


def _is_open(control_plane: ControlPlane) -> bool:
    return bool(control_plane.api.get(_QUEUE).get("status", {}).get("state") == "Open")


def _controllers(control_plane: ControlPlane) -> Program:
    command = [
        str(program(VOLCANO_CONTROLLERS)),
        f"--kubeconfig={control_plane.kubeconfig}",
        "--leader-elect=false",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        "--scheduler-name=volcano",
        f"--healthz-address=127.0.0.1:{free_port()}",
    ]
    return control_plane.run("volcano-controllers", command)


def _scheduler(control_plane: ControlPlane) -> Program:
    tiers = [{"plugins": [{"name": name} for name in tier]} for tier in _PLUGINS]
    config = control_plane.directory / "volcano-scheduler.yaml"
    config.write_text(yaml.safe_dump({"actions": "enqueue, allocate, backfill", "tiers": tiers}))
    command = [
        str(program(VOLCANO_SCHEDULER)),
        f"--kubeconfig={control_plane.kubeconfig}",
        "--leader-elect=false",
        f"--scheduler-conf={config}",
        "--scheduler-name=volcano",
        "--schedule-period=500ms",
        "--cache-dumper=false",
        f"--listen-address=127.0.0.1:{free_port()}",
        f"--healthz-address=127.0.0.1:{free_port()}",
    ]
    environment = {"KUBECONFIG": str(control_plane.kubeconfig)}
    return control_plane.run("volcano-scheduler", command, environment=environment)
