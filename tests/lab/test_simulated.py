"""
Simulated kubelets do what real ones do, in the same order: what healthd reads from them must mean the same.
"""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from healthd.clock import SystemClock
from healthd.core.api import Pod, PodStatus
from healthd.core.recovery.fence import fence_pods
from healthd.core.recovery.gang import GangView
from tests.lab.control_plane import ControlPlane
from tests.lab.pods import Pods, a_gang
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def nodes(simulated_nodes: SimulatedNodes) -> list[str]:
    """The names of six nodes."""
    return simulated_nodes.add(6)


@pytest.fixture
def pods(control_plane: ControlPlane, namespace: str) -> Pods:
    """Of this test's namespace."""
    return Pods(control_plane, namespace)


def test_a_pod_shows_how_its_containers_ended_before_it_goes(pods: Pods, nodes: list[str]) -> None:
    pods.create("stopped", nodes[0])

    pods.delete("stopped")
    wait_until("gone", lambda: not pods.names(), limit=30)

    assert pods.seen()["stopped"] == ["Pending waiting", "Running running", "Failed terminated 143", "gone"]


def test_a_program_may_end_well_when_it_is_stopped(pods: Pods, nodes: list[str]) -> None:
    pods.create("minds", nodes[0], exit_when_stopped="0")

    pods.delete("minds")
    wait_until("gone", lambda: not pods.names(), limit=30)

    assert pods.seen()["minds"][-2:] == ["Succeeded terminated 0", "gone"]


@pytest.mark.parametrize(("exit_code", "reason"), [("143", "PodFailed"), ("0", "PodCompleted")])
def test_of_a_pod_that_is_always_started_again_the_kubelet_says_that_it_is_over(
    control_plane: ControlPlane, pods: Pods, nodes: list[str], exit_code: str, reason: str
) -> None:
    pods.create("server", nodes[0], restart_policy="Always", exit_when_stopped=exit_code)
    control_plane.api.patch(f"{pods.path}/server", {"metadata": {"finalizers": ["lab.healthd.dev/held"]}})

    pods.delete("server")
    wait_until("stopped", lambda: pods.get("server")["metadata"].get("deletionGracePeriodSeconds") == 0, limit=30)
    over = msgspec.convert(pods.get("server"), Pod)
    control_plane.api.patch(f"{pods.path}/server", {"metadata": {"finalizers": None}})
    (fenced,) = fence_pods(GangView(root=None, pods=(running(over),)), [], SystemClock().now())
    (proven,) = fence_pods(GangView(root=None, pods=(over,)), [fenced], SystemClock().now())

    assert [c.reason for c in over.status.conditions if c.type == "ContainersReady"] == [reason]
    assert proven.proof == f"the kubelet of {nodes[0]} reports every container terminated"


def running(pod: Pod) -> Pod:
    """As it was before it was stopped."""
    return replace(pod, status=PodStatus(phase="Running"))


def test_a_finalizer_holds_a_pod_that_has_ended(control_plane: ControlPlane, pods: Pods, nodes: list[str]) -> None:
    pods.create("held", nodes[0])
    control_plane.api.patch(f"{pods.path}/held", {"metadata": {"finalizers": ["lab.healthd.dev/held"]}})

    pods.delete("held")
    wait_until("stopped", lambda: pods.get("held")["metadata"].get("deletionGracePeriodSeconds") == 0, limit=30)

    assert pods.get("held")["status"]["phase"] == "Failed"
    control_plane.api.patch(f"{pods.path}/held", {"metadata": {"finalizers": None}})
    wait_until("gone", lambda: not pods.names(), limit=30)


def test_a_container_ends_by_itself_only_on_request(
    simulated_nodes: SimulatedNodes, namespace: str, pods: Pods, nodes: list[str]
) -> None:
    pods.create("crashing", nodes[0])

    simulated_nodes.end_containers(namespace, "crashing", exit_code=3)
    pods.await_phase("crashing", "Failed")

    assert pods.get("crashing")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_dead_kubelet_leaves_its_pods_as_they_are(
    simulated_nodes: SimulatedNodes, pods: Pods, nodes: list[str]
) -> None:
    pods.create("orphan", nodes[0])
    pods.create("other", nodes[1])

    simulated_nodes.kill_kubelet(nodes[0])
    pods.delete("orphan")
    pods.delete("other")
    wait_until("the other gone", lambda: pods.names() == ["orphan"], limit=30)

    assert pods.get("orphan")["status"]["phase"] == "Running"
    simulated_nodes.start_kubelet(nodes[0])
    wait_until("gone", lambda: not pods.names(), limit=30)


def test_a_reboot_gives_a_node_another_boot_id(
    control_plane: ControlPlane, simulated_nodes: SimulatedNodes, nodes: list[str]
) -> None:
    def boot_id() -> str:
        return str(control_plane.api.get(f"/api/v1/nodes/{nodes[0]}")["status"]["nodeInfo"]["bootID"])

    before = boot_id()
    simulated_nodes.reboot(nodes[0])

    assert boot_id() != before


def test_every_pod_of_a_suspended_gang_is_seen_to_end(
    control_plane: ControlPlane, namespace: str, pods: Pods, nodes: list[str]
) -> None:
    control_plane.apply(a_gang(namespace, 4))
    pods.await_count(4, "Running")

    control_plane.api.patch(f"/apis/batch/v1/namespaces/{namespace}/jobs/train", {"spec": {"suspend": True}})
    wait_until("all gone", lambda: not pods.names(), limit=30)

    assert [states[-2:] for states in pods.seen().values()] == [["Failed terminated 143", "gone"]] * 4
