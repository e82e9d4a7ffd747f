"""Where the two replicas of the controller come to stand."""

from __future__ import annotations

from functools import partial

import pytest

from tests.deploy.accounts import SYSTEM
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

GPUS = {"nvidia.com/gpu.present": "true"}
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"


def places(installed: ControlPlane) -> list[str]:
    """The nodes of the controllers that run."""
    found = installed.api.get(f"{PODS}?labelSelector=app.kubernetes.io/component=controller")["items"]
    return [pod["spec"]["nodeName"] for pod in found if pod["status"].get("phase") == "Running"]


def stand(installed: ControlPlane, count: int) -> bool:
    """Whether so many run."""
    return len(places(installed)) == count


def test_the_controllers_stand_apart_though_one_node_alone_has_no_gpu(
    installed: ControlPlane, simulated_nodes: SimulatedNodes
) -> None:
    simulated_nodes.add(1, gpus=0)
    simulated_nodes.add(2, labels=GPUS)
    both = {"spec": {"replicas": 0}}, {"spec": {"replicas": 2}}
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/healthd-controller"
    seen = []
    for _ in range(3):
        for body in both:
            installed.api.patch(path, body)
            wanted = body["spec"]["replicas"]
            wait_until(f"{wanted} controllers", partial(stand, installed, wanted), limit=60)
        seen.append(len(set(places(installed))))

    assert seen == [2, 2, 2]
