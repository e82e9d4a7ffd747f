"""
Machines that break and are repaired, whatever is on record: their boots, their GPUs, and the checks that run on them.

The kubelets are those of the other simulations (`tests.simulation.machines`); here they also start check pods.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from healthd.core.api import Node, Pod
from healthd.core.api.remediations import Rung
from healthd.core.node.check_pods import is_check
from healthd.core.remediation.check_summary import CheckSummary, fitted
from healthd.core.remediation.ladder import height
from healthd.core.remediation.node_check import CONTAINER
from tests.fakes import START
from tests.simulation.ground_truth import GroundTruth
from tests.simulation.machines import PCI, Machine, Machines
from tests.simulation.remediation.labels import ON, PLUGIN
from tests.simulation.step_scheduler import at_once

GPUS = 8
_XID = f"NVRM: Xid (PCI:{PCI[:-2]})"
LINES = {
    "bus": f"{_XID}: 79, pid=1234, name=python, GPU has fallen off the bus.",
    "memory": f"{_XID}: 48, pid=1234, name=python, DBE (double bit error) (DED)",
    "reset": f"{_XID}: 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "reboot": f"{_XID}: 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}
"""What a kernel says of a fault. The ladder begins where its rule says, whatever the machine needs."""
ENDS = ("truth",) * 14 + ("unchecked", "busy", "evicted", "never starts")
"""How checks go."""


@dataclass
class Check:
    """A check that runs in a pod."""

    boot_id: str
    due: datetime
    end: str


@dataclass
class Host(Machine):
    """One machine. *needs* is the rung that mends it; None: it is well."""

    machine: int = 1
    """Which machine has the name of the node now."""
    needs: Rung | None = None
    gpus_at: datetime = START
    """When the device plugin offers its GPUs, after a boot."""
    checks: dict[str, Check] = field(default_factory=dict)
    """By the uid of the pod."""
    faulted_at: datetime | None = None
    """The true time of the last fault that its kernel reported."""
    ingested_at: datetime | None = None
    """The same, of what its agent has read."""

    @property
    def system_uuid(self) -> str:
        """As its firmware says it."""
        return f"{self.name}-machine-{self.machine}"


class Hosts(Machines):
    """All machines, with kubelets that start checks. *chance*: how checks end, while luck is not out."""

    all: dict[str, Host]  # type: ignore[assignment]  # the machines of this world know more

    def __init__(self, ground_truth: GroundTruth, dice: random.Random) -> None:
        super().__init__(ground_truth, dice)
        self.is_honest = False
        """Every check starts and says what is true."""
        self.is_image_broken = False
        """Every check fails, whatever the machine is like."""

    def add(self, name: str) -> Host:
        """A machine under the node *name*."""
        self.all[name] = Host(name)
        return self.all[name]

    def breaks(self, name: str, line: str, needs: Rung, at: datetime) -> None:
        """The kernel of *name* tells of a fault."""
        host = self.all[name]
        host.needs, host.broken, host.faulted_at = needs, True, at
        host.write_to_log(line, at)

    def boots(self, name: str, at: datetime) -> None:
        """*name* goes down and comes up again. What a reboot does not mend is said again, or only a check sees it."""
        host = self.all[name]
        self.reboot(name)
        host.checks = {}
        host.faulted_at = host.ingested_at  # the log of the last boot is gone with what was not read of it
        host.gpus_at = at + timedelta(minutes=self._dice.choice((0, 0, 1, 4)))
        if host.needs is not None and height(host.needs) <= height(Rung.REBOOT):
            host.needs, host.broken = None, False
        if host.needs is not None and self._dice.random() < 0.5:
            self.breaks(name, LINES["bus"], host.needs, at)

    def does(self, name: str, rung: Rung, at: datetime) -> None:
        """*rung* is really done to *name*."""
        host = self.all[name]
        if host.needs is not None and height(rung) >= height(host.needs):
            host.needs, host.broken = None, False
        if height(rung) >= height(Rung.REBOOT):
            self.boots(name, at)

    # What kubelets do -------------------------------------------------------------------------------------------------

    def _report(self, machine: Machine, node: Node, now: datetime) -> None:
        host = self.all[machine.name]
        gpus = GPUS if now >= host.gpus_at and node.metadata.labels.get(PLUGIN) == ON else 0
        info, offers = node.status.node_info, node.status.allocatable.get("nvidia.com/gpu", "")
        if (info.boot_id, info.system_uuid, offers) == (host.boot_id, host.system_uuid, str(gpus)):
            return
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": host.boot_id, "systemUUID": host.system_uuid},
            "allocatable": {"nvidia.com/gpu": str(gpus)},
        }
        at_once(self._truth.patch(Node, host.name, {"status": status}, subresource="status"))

    def _look_after(self, machine: Machine, pods: list[Pod], now: datetime) -> None:
        super()._look_after(machine, [pod for pod in pods if not is_check(pod)], now)
        for pod in pods:
            if is_check(pod):
                self._look_after_check(self.all[machine.name], pod, now)

    def _look_after_check(self, host: Host, pod: Pod, now: datetime) -> None:
        if pod.metadata.deletion_timestamp is not None:
            self._let_go(pod)
            return
        if pod.status.phase in ("Succeeded", "Failed"):
            return
        check = host.checks.get(pod.metadata.uid)
        if check is not None and now >= check.due and check.end != "never starts":
            self._ends(host, pod, check)
        elif check is None and pod.status.phase == "Running":
            self._says(pod, phase="Failed", message="it booted meanwhile")
        elif check is None:
            self._begins(host, pod, now)

    def _begins(self, host: Host, pod: Pod, now: datetime) -> None:
        end = "truth" if self.is_honest else self._dice.choice(ENDS)
        minutes = (3, 10, 18) if pod.metadata.name.endswith("-0") else (1, 3, 10)
        due = now + timedelta(minutes=1 if self.is_honest else self._dice.choice(minutes))
        host.checks[pod.metadata.uid] = Check(host.boot_id, due, end)
        if end != "never starts":
            self._says(pod, phase="Running")

    def _ends(self, host: Host, pod: Pod, check: Check) -> None:
        if check.end == "evicted":
            self._says(pod, phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
            return
        is_bad = self.is_image_broken or host.needs is not None
        result = check.end if check.end != "truth" else "fail" if is_bad else "pass"
        summary = CheckSummary(
            result=result,
            boot_id=check.boot_id,
            expected_gpus=GPUS,
            gpus=GPUS,
            passed=["inventory", "gpu-memory"] if result == "pass" else [],
            failed={"gpu-memory": "a word was wrong"} if result == "fail" else {},
        )
        code = {"pass": 0, "fail": 3}.get(result, 4)
        end = {"terminated": {"exitCode": code, "message": fitted(summary).decode()}}
        phase = "Failed" if code else "Succeeded"
        self._says(pod, phase=phase, containerStatuses=[{"name": CONTAINER, "state": end}])

    def _says(self, pod: Pod, **status: Any) -> None:
        meta = pod.metadata
        patch = {"status": status}
        at_once(self._truth.patch(Pod, meta.name, patch, namespace=meta.namespace, subresource="status"))
