"""healthd on real nodes: the shipped manifests with what this lab needs, and the device that each node has."""

from __future__ import annotations

import random
from pathlib import Path

from tests.deploy.kustomized import rendered
from tests.kernel_log import kernel_log
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.real.nodes import RealNodes

SYSTEM = "healthd-system"
PATIENCE = 180
"""Seconds for healthd to come up everywhere; it takes twenty, and this machine may be busy."""

_OVERLAY = Path(__file__).parent / "deploy"


class Installation:
    """One on all of *nodes*. `roll_out` first."""

    def __init__(self, control_plane: ControlPlane, nodes: RealNodes, *, overlay: Path = _OVERLAY) -> None:
        self.control_plane = control_plane
        self.nodes = nodes
        self._overlay = overlay
        self.names = [node.name for node in nodes.nodes]
        domain = random.randrange(0x1000, 0xFFFF)  # the log may hold records of an earlier lab
        self.devices = {name: f"PCI:{domain:04x}:{bus:02x}:00" for bus, name in enumerate(self.names, start=1)}

    def roll_out(self) -> None:
        """Apply the manifests; returns when agents and controllers are ready. Raises LabError."""
        text = rendered(self.control_plane, self._overlay)
        devices = ",".join(f"{name}={device}" for name, device in self.devices.items())
        self.control_plane.apply(text.replace("@SHARED@", str(self.nodes.shared)).replace("@DEVICES@", devices))
        wait_until("a ready agent on every node", self._agents_are_ready, limit=PATIENCE)
        wait_until("two ready controllers", self._controllers_are_ready, limit=PATIENCE)
        wait_until("a report of every node", self._all_report, limit=PATIENCE)

    def break_gpu(self, node: str) -> None:
        """The GPU of *node* falls off the bus: its driver says so in the kernel log of this machine."""
        with kernel_log() as log:
            log.write(f"NVRM: Xid ({self.devices[node]}): 79, pid=1, name=python3, GPU has fallen off the bus.")

    def pods(self, component: str, node: str = "") -> list[Json]:
        """The pods of a component, those on *node* alone where it is named."""
        on = f"&fieldSelector=spec.nodeName={node}" if node else ""
        path = f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/component={component}{on}"
        found: list[Json] = self.control_plane.api.get(path)["items"]
        return found

    def _agents_are_ready(self) -> bool:
        status = self._apps("daemonsets/healthd-agent")["status"]
        up_to_date = status.get("observedGeneration") and status.get("updatedNumberScheduled") == len(self.names)
        return bool(up_to_date and status.get("numberReady") == len(self.names))

    def _controllers_are_ready(self) -> bool:
        return bool(self._apps("deployments/healthd-controller")["status"].get("availableReplicas") == 2)

    def _all_report(self) -> bool:
        paths = [f"/apis/healthd.dev/v1alpha1/nodehealths/{name}" for name in self.names]
        return all(map(self.control_plane.has, paths))

    def _apps(self, what: str) -> Json:
        return self.control_plane.api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/{what}")
