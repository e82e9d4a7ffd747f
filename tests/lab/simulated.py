"""
Simulated nodes: kwok plays their kubelets, as `stages.yaml` says. The API server, the scheduler and the controllers
see no difference; no container runs.

Real kubelets may stand beside: kwok minds only the nodes that carry its label.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from healthd.clock import SystemClock
from tests.lab.api import Json
from tests.lab.build import program
from tests.lab.control_plane import ControlPlane
from tests.lab.kubernetes import RELEASE
from tests.lab.modules import KWOK

ZONE = "topology.kubernetes.io/zone"
RACK = "lab.healthd.dev/rack"
PRODUCT = "nvidia.com/gpu.product"
GPUS = "nvidia.com/gpu"
EXIT = "lab.healthd.dev/exit"

_MINE = "lab.healthd.dev/kubelet"
"""A label, not an annotation: only then the API server tells kwok when a node is no longer its own."""
_STAGES = Path(__file__).parent / "stages.yaml"
_IN_FLIGHT = 16
_ZONES = 4
_RACK_SIZE = 8
_LEASE_SECONDS = 40


class SimulatedNodes:
    """
    kwok beside one control plane, and the nodes that it plays.

    With *leases* each node renews a lease every ten seconds, as a kubelet does: needed where a node is to go NotReady
    by its silence (with `Options.node_grace_seconds`), and a load where there are thousands.
    """

    def __init__(self, control_plane: ControlPlane, *, leases: bool = False) -> None:
        self._control_plane = control_plane
        self._leases = leases
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Run kwok; it ends with the control plane."""
        command = [
            str(program(KWOK)),
            f"--kubeconfig={self._control_plane.kubeconfig}",
            f"--config={_STAGES}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector={_MINE}=simulated",
            f"--node-lease-duration-seconds={_LEASE_SECONDS if self._leases else 0}",
        ]
        self._control_plane.run("kwok", command)

    def add(
        self, count: int, *, gpus: int = 8, labels: Mapping[str, str] | None = None, prefix: str = "node"
    ) -> list[str]:
        """
        *count* more nodes, ready for pods; answers their names.

        Eight in a row share a rack, the racks go round four zones; *labels* come on top.
        """
        numbers = list(itertools.islice(self._numbers, count))
        nodes = [_node(f"{prefix}-{number:04d}", number, gpus, labels or {}) for number in numbers]
        with ThreadPoolExecutor(_IN_FLIGHT) as pool:
            return list(pool.map(self._create, nodes))

    def _create(self, node: Json) -> str:
        """Every new node has a taint until the controller manager sees it ready: a minute where there are thousands."""
        api, name = self._control_plane.api, str(node["metadata"]["name"])
        api.create("/api/v1/nodes", node)
        api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": None}})
        return name

    def remove(self, names: Sequence[str]) -> None:
        """Delete nodes, as a cloud provider does."""
        for name in names:
            self._control_plane.api.delete(f"/api/v1/nodes/{name}")

    def kill_kubelet(self, name: str) -> None:
        """
        From now on nothing becomes of the node's pods, whatever is asked of them; its containers "run" on.

        With leases the node goes NotReady when it has been silent for long enough, without them at once.
        """
        self._manage(name, None)
        if not self._leases:
            self._say_ready(name, "Unknown", "NodeStatusUnknown")

    def start_kubelet(self, name: str) -> None:
        """It is back, and does what it has missed."""
        self._manage(name, "simulated")
        self._say_ready(name, "True", "KubeletReady")

    def reboot(self, name: str) -> None:
        """The node has a new boot id. Its pods stay as they are."""
        body = {"status": {"nodeInfo": {"bootID": str(uuid.uuid4())}}}
        self._control_plane.api.patch(f"/api/v1/nodes/{name}/status", body)

    def end_containers(self, namespace: str, pod: str, *, exit_code: int) -> None:
        """The containers of a pod end by themselves."""
        body = {"metadata": {"annotations": {EXIT: str(exit_code)}}}
        self._control_plane.api.patch(f"/api/v1/namespaces/{namespace}/pods/{pod}", body)

    def _manage(self, name: str, value: str | None) -> None:
        body = {"metadata": {"labels": {_MINE: value}}}
        self._control_plane.api.patch(f"/api/v1/nodes/{name}", body)

    def _say_ready(self, name: str, status: str, reason: str) -> None:
        body = {"status": {"conditions": [_condition("Ready", status, reason, _now())]}}
        strategic = "application/strategic-merge-patch+json"
        self._control_plane.api.call("PATCH", f"/api/v1/nodes/{name}/status", body, kind=strategic)


def _node(name: str, number: int, gpus: int, labels: Mapping[str, str]) -> Json:
    rack = (number - 1) // _RACK_SIZE
    room = {"cpu": "128", "memory": "1Ti", "pods": "110", "ephemeral-storage": "1Ti", GPUS: str(gpus)}
    usual = {
        _MINE: "simulated",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        ZONE: f"zone-{rack % _ZONES + 1}",
        RACK: f"rack-{rack + 1:03d}",
        PRODUCT: "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": str(gpus),
    }
    now = _now()
    pressures = [_condition(f"{what}Pressure", "False", "Simulated", now) for what in ("Memory", "Disk", "PID")]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**usual, **labels}},
        "status": {
            "capacity": room,
            "allocatable": room,
            "addresses": [
                {"type": "InternalIP", "address": f"10.{64 + number // 65536}.{number // 256 % 256}.{number % 256}"},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [*pressures, _condition("Ready", "True", "KubeletReady", now)],
            "nodeInfo": {
                "bootID": str(uuid.uuid4()),
                "machineID": uuid.uuid5(uuid.NAMESPACE_DNS, name).hex,
                "systemUUID": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
                "kubeletVersion": RELEASE,
                "kernelVersion": "6.8.0",
                "osImage": "Simulated Linux",
                "containerRuntimeVersion": "kwok://0.8.0",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def _condition(kind: str, status: str, reason: str, now: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "lastHeartbeatTime": now, "lastTransitionTime": now}


def _now() -> str:
    return SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
