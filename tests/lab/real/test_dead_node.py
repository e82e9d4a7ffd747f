"""
What a dead kubelet looks like from outside, and what it is: the reason why healthd asks for a proof before a restart.
"""

from __future__ import annotations

import pytest

from tests.lab.control_plane import ControlPlane, Options
from tests.lab.programs import wait_until
from tests.lab.real.nodes import RealNodes
from tests.lab.real.pods import Pods, container, spec

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_LIMIT = 90


@pytest.fixture(scope="module")
def control_plane_options() -> Options:
    """A node that is silent for twenty seconds is given up; less, and a busy machine would have nodes that are not."""
    return Options(node_grace_seconds=20)


@pytest.fixture(scope="module")
def real_node_count() -> int:
    """The one that dies."""
    return 1


def test_the_pods_of_a_dead_kubelet_are_deleted_by_force_and_run_on(
    control_plane: ControlPlane, real_nodes: RealNodes, namespace: str
) -> None:
    node, pods = real_nodes[0], Pods(control_plane, namespace)
    uid = pods.start("it", spec(container("sleep", "1000"), nodeName=node.name))
    pods.await_phase("it", "Running")

    node.kill_kubelet()
    wait_until("the node is given up", lambda: readiness(control_plane, node.name) == "Unknown", limit=_LIMIT)
    control_plane.kubectl("delete", "pod", "it", "--namespace", namespace, "--force", "--grace-period=0")

    assert pods.list() == []
    assert len(node.processes(uid)) == 1

    node.start_kubelet()
    wait_until("the kubelet ends what is not wanted", lambda: not node.processes(uid), limit=_LIMIT)


def readiness(control_plane: ControlPlane, name: str) -> str:
    """What the condition Ready of a node says."""
    conditions = control_plane.api.get(f"/api/v1/nodes/{name}")["status"]["conditions"]
    return next(str(condition["status"]) for condition in conditions if condition["type"] == "Ready")
