"""Where the two replicas of the controller come to stand."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.deploy.accounts import SYSTEM
from tests.deploy.kustomized import with_component
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

GPUS = {"nvidia.com/gpu.present": "true"}
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/healthd-controller"


def places(installed: ControlPlane) -> list[str | None]:
    """The nodes of all controllers; None stands for one that waits for its place, starts or is being deleted."""
    found = installed.api.get(f"{PODS}?labelSelector=app.kubernetes.io/component=controller")["items"]
    present = [pod for pod in found if pod["status"].get("phase") not in {"Failed", "Succeeded"}]
    return [pod["spec"]["nodeName"] if runs(pod) else None for pod in present]


def runs(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def started_anew(installed: ControlPlane) -> list[str | None]:
    """Where both controllers stand after there was none."""
    for wanted in (0, 2):
        installed.api.patch(DEPLOYMENT, {"spec": {"replicas": wanted}})
        stand = partial(standing, installed, wanted)
        wait_until(f"{wanted} controllers", stand, limit=60)
    return places(installed)


def standing(installed: ControlPlane, count: int) -> bool:
    """Whether there are so many, and all run."""
    found = places(installed)
    return len(found) == count and None not in found


def test_the_controllers_keep_off_gpus_and_where_they_may_not_they_stand_apart(
    installed: ControlPlane, simulated_nodes: SimulatedNodes, tmp_path: Path
) -> None:
    simulated_nodes.add(1, gpus=0, prefix="without")
    simulated_nodes.add(2, labels=GPUS)

    kept = started_anew(installed)
    installed.apply(with_component("controller-on-gpu-nodes", tmp_path))
    apart = [len(set(started_anew(installed))) for _ in range(3)]

    assert [str(node).partition("-")[0] for node in kept] == ["without", "without"]
    assert apart == [2, 2, 2]
