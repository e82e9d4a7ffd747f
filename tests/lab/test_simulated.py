"""
Simulated kubelets do what real ones do, in the same order: what healthd reads from them must mean the same.
"""

from __future__ import annotations

import json

import pytest
import yaml

from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import GPUS, SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(scope="module")
def nodes(simulated_nodes: SimulatedNodes) -> list[str]:
    """The names of six nodes."""
    return simulated_nodes.add(6)


class Pods:
    """The pods of one namespace, and what was to be seen of them since it was made."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/pods"
        self._api = control_plane.api
        self._since = self._api.get(self.path)["metadata"]["resourceVersion"]

    def create(self, name: str, node: str = "", **annotations: str) -> None:
        """A pod that stays on *node*; annotations of the lab by the last part of their names."""
        notes = {f"lab.healthd.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": a_pod(node)}
        self._api.create(self.path, pod)
        self.await_phase(name, "Running")

    def delete(self, name: str) -> None:
        """Ask for its end."""
        self._api.delete(f"{self.path}/{name}")

    def get(self, name: str) -> Json:
        """As it is now."""
        return self._api.get(f"{self.path}/{name}")

    def names(self) -> list[str]:
        """All that are there."""
        return [pod["metadata"]["name"] for pod in self._api.get(self.path)["items"]]

    def await_phase(self, name: str, phase: str) -> None:
        """Return when it is reached."""
        wait_until(f"{name} {phase}", lambda: self.get(name)["status"]["phase"] == phase, limit=30)

    def await_count(self, count: int, phase: str) -> None:
        """Return when so many pods have this phase."""
        wait_until(f"{count} pods {phase}", lambda: len(self._with(phase)) == count, limit=30)

    def _with(self, phase: str) -> list[Json]:
        return [pod for pod in self._api.get(self.path)["items"] if pod["status"]["phase"] == phase]

    def seen(self, name: str) -> list[str]:
        """What a watch showed of one pod: its phase with the state of its container, and at last "gone"."""
        raw = self._api.raw("GET", f"{self.path}?watch=1&timeoutSeconds=1&resourceVersion={self._since}")[1]
        events = [json.loads(line) for line in raw.splitlines()]
        states = [_state(event) for event in events if event["object"]["metadata"]["name"] == name]
        return list(dict.fromkeys(states))


def _state(event: Json) -> str:
    if event["type"] == "DELETED":
        return "gone"
    status = event["object"]["status"]
    kind, state = next(iter(status.get("containerStatuses", [{"state": {"waiting": {}}}])[0]["state"].items()))
    return " ".join([status["phase"], kind, *(str(state[key]) for key in ("exitCode",) if key in state)])


@pytest.fixture
def pods(control_plane: ControlPlane, namespace: str) -> Pods:
    """Of this test's namespace."""
    return Pods(control_plane, namespace)


def a_pod(node: str = "") -> Json:
    """A pod that wants all GPUs of its node."""
    main = {"name": "main", "image": "none", "resources": {"limits": {GPUS: "8"}}}
    return {"restartPolicy": "Never", "containers": [main], **({"nodeName": node} if node else {})}


def a_gang(namespace: str, size: int) -> str:
    """An Indexed Job, one pod to a node."""
    spec = {"completions": size, "parallelism": size, "completionMode": "Indexed", "template": {"spec": a_pod()}}
    metadata = {"name": "train", "namespace": namespace}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def test_a_pod_shows_how_its_containers_ended_before_it_goes(pods: Pods, nodes: list[str]) -> None:
    pods.create("stopped", nodes[0])

    pods.delete("stopped")
    wait_until("gone", lambda: not pods.names(), limit=30)

    assert pods.seen("stopped") == ["Pending waiting", "Running running", "Failed terminated 143", "gone"]


def test_a_program_may_end_well_when_it_is_stopped(pods: Pods, nodes: list[str]) -> None:
    pods.create("minds", nodes[0], exit_when_stopped="0")

    pods.delete("minds")
    wait_until("gone", lambda: not pods.names(), limit=30)

    assert pods.seen("minds")[-2:] == ["Succeeded terminated 0", "gone"]


def test_a_finalizer_holds_a_pod_that_has_ended(control_plane: ControlPlane, pods: Pods, nodes: list[str]) -> None:
    pods.create("held", nodes[0])
    control_plane.api.patch(f"{pods.path}/held", {"metadata": {"finalizers": ["lab.healthd.dev/held"]}})

    pods.delete("held")
    wait_until("stopped", lambda: pods.get("held")["metadata"].get("deletionGracePeriodSeconds") == 0, limit=30)

    assert pods.get("held")["status"]["phase"] == "Failed"
    control_plane.api.patch(f"{pods.path}/held", {"metadata": {"finalizers": None}})
    wait_until("gone", lambda: not pods.names(), limit=30)


def test_a_container_ends_by_itself_only_when_told_to(
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
    ranks = pods.names()

    control_plane.api.patch(f"/apis/batch/v1/namespaces/{namespace}/jobs/train", {"spec": {"suspend": True}})
    wait_until("all gone", lambda: not pods.names(), limit=30)

    assert [pods.seen(rank)[-2:] for rank in ranks] == [["Failed terminated 143", "gone"]] * 4
