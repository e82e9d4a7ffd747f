"""`healthd agent` and its opener as processes, against a real API server."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from healthd.cluster.port import Cluster
from healthd.core.api import Lease, Node, NodeHealth, Slim
from healthd.core.api.model import Verdict
from healthd.core.config import QuarantinePolicy
from healthd.core.node.conditions import ACCELERATOR_HEALTHY
from healthd.core.node.quarantine import read_record
from healthd.probes.klog import opener as opener_file
from tests.builders import a_node
from tests.lab.control_plane import ControlPlane
from tests.lab.fleet import connected
from tests.sysfs import Sysfs

pytestmark = [pytest.mark.lab, pytest.mark.slow]

T = TypeVar("T", bound=Slim)

CRDS = Path(__file__).parents[2] / "deploy" / "crds.yaml"
OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
PATIENCE = 60


class KernelLogFifo:
    """A kernel log that the opener can open by its path. One record at a time: a FIFO would join them."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        path.chmod(0o644)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._sequence = 0

    def write(self, text: str) -> None:
        """The next record of the kernel."""
        self._sequence += 1
        os.write(self._fd, f"3,{self._sequence},{time.monotonic_ns() // 1000},-;{text}\n".encode())

    def close(self) -> None:
        """No more records."""
        os.close(self._fd)


class RealAgent:
    """The processes of an agent's pod, on the node *name*."""

    def __init__(self, name: str, folder: Path, control_plane: ControlPlane, cluster: Cluster) -> None:
        self.name = name
        self.cluster = cluster
        self.log = KernelLogFifo(folder / "kmsg")
        self.agent: Process
        self._opener: Process
        self._folder = folder
        self._kubeconfig = control_plane.kubeconfig

    async def start(self) -> None:
        """Both, as a kubelet would."""
        python, socket = sys.executable, str(self._folder / "kmsg.sock")
        opener = [opener_file.__file__, socket, str(os.geteuid()), str(self._folder / "kmsg")]
        self._opener = await asyncio.create_subprocess_exec(python, "-I", "-S", *opener, stderr=asyncio.subprocess.PIPE)
        assert self._opener.stderr is not None
        await self._opener.stderr.readline()
        Sysfs(self._folder / "sys")
        config = self._folder / "healthd.yaml"
        config.write_text(f"kernel_log: {{source: kmsg, socket: {socket}}}\nhost_root: {self._folder}\n")
        options = ["--node", self.name, "--config", str(config), "--kubeconfig", str(self._kubeconfig)]
        self.agent = await asyncio.create_subprocess_exec(
            python, "-m", "healthd.cli.main", "agent", *options, stderr=DEVNULL
        )

    async def end(self) -> None:
        """Kill what still runs."""
        for process in (self.agent, self._opener):
            if process.returncode is None:
                process.kill()
            await process.wait()
        self.log.close()

    async def until(self, kind: type[T], holds: Callable[[Any], bool]) -> T:
        """The node, or its report, once it is so."""
        fields = {"metadata.name": self.name}
        async with asyncio.timeout(PATIENCE):
            listed = await self.cluster.list(kind, fields=fields)
            if listed.items and holds(listed.items[0]):
                return listed.items[0]
            events: Any = self.cluster.watch(kind, since=listed.resource_version, fields=fields)
            async with aclosing(events):
                async for event in events:
                    if event.obj is not None and holds(event.obj):
                        found: T = event.obj
                        return found
        raise AssertionError("the watch ended")

    async def until_verdict(self, verdict: Verdict) -> NodeHealth:
        """The report with it."""
        return await self.until(NodeHealth, lambda health: health.status.verdict is verdict)


@asynccontextmanager
async def a_running_agent(
    control_plane: ControlPlane, name: str, *, labels: Mapping[str, str] | None = None, says: Verdict = Verdict.HEALTHY
) -> AsyncIterator[RealAgent]:
    """On a new node whose name begins so, of which it has said that it is healthy, or what it *says*."""
    async with connected(control_plane) as cluster:
        name = f"{name}-{secrets.token_hex(3)}"  # a second try of a test is another node
        await cluster.create(a_node(name, labels=labels))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)  # the opener is nobody when it opens the log
            running = RealAgent(name, Path(folder), control_plane, cluster)
            await running.start()
            try:
                await running.until_verdict(says)
                yield running
            finally:
                await running.end()


@pytest.fixture(scope="module", autouse=True)
def _kinds(control_plane: ControlPlane) -> None:
    control_plane.apply(CRDS)
    control_plane.await_definitions()
    control_plane.kubectl("create", "namespace", QuarantinePolicy().namespace)


async def test_a_record_in_the_log_takes_the_node_out_of_service(control_plane: ControlPlane) -> None:
    async with a_running_agent(control_plane, "cordoned") as running:
        running.log.write(OFF_THE_BUS)
        node = await running.until(Node, lambda node: read_record(node) is not None)
        health = await running.until_verdict(Verdict.UNHEALTHY)
        reported = await running.until(
            Node, lambda node: any(c.type == ACCELERATOR_HEALTHY for c in node.status.conditions)
        )
        slots = (await running.cluster.list(Lease, namespace=QuarantinePolicy().namespace)).items

    assert node.spec.unschedulable
    assert [finding.id for finding in health.status.findings] == ["0000:3b:00.0/xid-79"]
    assert [slot.spec.holder_identity for slot in slots] == [running.name]
    assert ACCELERATOR_HEALTHY in {condition.type for condition in reported.status.conditions}


async def test_it_stops_at_once_on_request_and_has_written_down_how_far_it_read(control_plane: ControlPlane) -> None:
    async with a_running_agent(control_plane, "ended") as running:
        running.log.write("NVRM: Xid (PCI:0000:3b:00): 13, pid=1, Graphics Exception")
        await running.until(NodeHealth, lambda health: bool(health.status.findings))
        running.agent.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            code = await running.agent.wait()
        health = await running.cluster.get(NodeHealth, running.name)

    assert (code, health.status.cursor.sequence) == (0, 1)


async def test_what_it_sees_while_the_api_server_is_away_is_done_when_it_is_back(control_plane: ControlPlane) -> None:
    async with a_running_agent(control_plane, "cut-off") as running:
        control_plane.stop_api_server()
        running.log.write(OFF_THE_BUS)
        control_plane.start_api_server()
        node = await running.until(Node, lambda node: read_record(node) is not None)

    assert node.spec.unschedulable


async def test_a_node_with_the_label_of_gpus_on_a_machine_without_one_is_unknown(control_plane: ControlPlane) -> None:
    labels = {"nvidia.com/gpu.count": "8"}
    async with a_running_agent(control_plane, "blind", labels=labels, says=Verdict.UNKNOWN) as running:
        reported = await running.until(
            Node, lambda node: any(c.reason == "NvmlUnreadable" for c in node.status.conditions)
        )
        # At first nvml was only not read yet.
        health = await running.until(NodeHealth, lambda health: "gpu.count is 8" in health.status.message)

    assert {c.type: c.status for c in reported.status.conditions}[ACCELERATOR_HEALTHY] == "Unknown"
    assert "the node's label nvidia.com/gpu.count is 8" in health.status.message
    assert not reported.spec.unschedulable
