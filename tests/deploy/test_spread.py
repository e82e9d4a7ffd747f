"""Where the two replicas of the controller come to stand."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.deploy.accounts import SYSTEM
from tests.deploy.kustomized import with_component
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

GPUS = {"nvidia.com/gpu.present": "true"}
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/healthd-controller"


def places(installed: ControlPlane) -> list[str]:
    """The nodes of the controllers that run."""
    found = installed.api.get(f"{PODS}?labelSelector=app.kubernetes.io/component=controller")["items"]
    return [pod["spec"]["nodeName"] for pod in found if pod["status"].get("phase") == "Running"]


def stand(installed: ControlPlane, count: int) -> bool:
    """Whether so many run."""
    return len(places(installed)) == count


def started_anew(installed: ControlPlane) -> list[str]:
    """Where both controllers stand after none ran."""
    for wanted in (0, 2):
        installed.api.patch(DEPLOYMENT, {"spec": {"replicas": wanted}})
        wait_until(f"{wanted} controllers", partial(stand, installed, wanted), limit=60)
    return places(installed)


def test_the_controllers_keep_off_gpus_and_where_they_may_not_they_stand_apart(
    installed: ControlPlane, simulated_nodes: SimulatedNodes, tmp_path: Path
) -> None:
    (without,) = simulated_nodes.add(1, gpus=0)
    simulated_nodes.add(2, labels=GPUS)

    kept = started_anew(installed)
    installed.apply(with_component("controller-on-gpu-nodes", tmp_path))
    apart = [len(set(started_anew(installed))) for _ in range(3)]

    assert kept == [without, without]
    assert apart == [2, 2, 2]
