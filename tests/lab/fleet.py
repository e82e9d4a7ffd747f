"""
The agents of simulated nodes: the shipped code, many in one process, each with a kernel log of its own.

An agent has its own watch of its own node, its own budget requests and its own report, as in a DaemonSet. What it reads
is what a test says: the machine has only one kernel log.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from healthd.agent.agent import Agent
from healthd.agent.daemon import REPORT_WITHIN
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.agent.node_view import WatchedNode
from healthd.clock import Clock, SystemClock
from healthd.cluster.loop import cycle_on_change
from healthd.cluster.port import Cluster
from healthd.cluster.remote import RemoteCluster, connect
from healthd.cluster.remote.kubeconfig import from_kubeconfig
from healthd.core.api.model import KernelRecord
from healthd.core.config import QuarantinePolicy
from healthd.core.diagnosis.readings import RecordBatch
from healthd.core.node.pod_liveness import PodTasks
from healthd.telemetry.metrics import Metrics
from tests.lab.control_plane import ControlPlane

BOOT = "simulated-boot"
FALLEN_OFF = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python3, GPU has fallen off the bus."
"""A record that convicts a GPU."""


@asynccontextmanager
async def connected(control_plane: ControlPlane) -> AsyncIterator[RemoteCluster]:
    """The control plane, as its administrator."""
    clock = SystemClock()
    connection = from_kubeconfig(control_plane.kubeconfig, clock=clock)
    async with connect(connection, clock=clock, jitter=random.random) as cluster:
        yield cluster


class Member:
    """The agent of one node, in one *boot* of it. It runs until it is cancelled."""

    def __init__(
        self, name: str, cluster: Cluster, clock: Clock, policy: QuarantinePolicy, *, boot: str = BOOT
    ) -> None:
        self._boot = boot
        metrics = Metrics()
        self._clock = clock
        self._cluster = cluster
        self._sequence = 0
        self._wake = asyncio.Event()
        self._view = WatchedNode(cluster, clock, name, self._wake.set, jitter=random.random, metrics=metrics)
        self.agent = Agent(
            AgentDependencies(
                node=NodeFacts(name=name, boot_id=boot),
                cluster=cluster,
                clock=clock,
                metrics=metrics,
                view=self._view,
                jitter=random.random,
                report_within=REPORT_WITHIN,
                quarantine=policy,
            )
        )
        self.ready = asyncio.Event()

    def hear(self, text: str) -> None:
        """The kernel of this node writes *text* to its log."""
        self._sequence += 1
        record = KernelRecord(sequence=self._sequence, at=self._clock.now(), text=text, boot_id=self._boot)
        self.agent.state.ingest_records(RecordBatch(records=[record], last_sequence=self._sequence), self._clock.now())
        self._wake.set()

    def see_processes(self, *pods: str) -> None:
        """The pods with these uids have processes on this node, and no others have."""
        if self.agent.state.ingest_pods([PodTasks(uid, 2) for uid in pods], self._clock.now()):
            self._wake.set()

    async def run(self) -> None:
        """As the agent's daemon does it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.follow())
            await self._view.seen()
            await self.agent.load(self._clock.now())
            await self.agent.cycle(self._clock.now())
            self.ready.set()
            await cycle_on_change(self._cluster, self._clock, [], self.agent.cycle, self._wake)


@asynccontextmanager
async def fleet(
    cluster: Cluster, names: Sequence[str], policy: QuarantinePolicy, *, at_once: int = 50
) -> AsyncIterator[dict[str, Member]]:
    """Agents of the nodes *names*, by name; all have published their first verdict. *at_once* start side by side."""
    clock = SystemClock()
    members = {name: Member(name, cluster, clock, policy) for name in names}
    starting = asyncio.Semaphore(at_once)
    async with asyncio.TaskGroup() as group:
        tasks = []
        for member in members.values():
            await starting.acquire()
            tasks.append(group.create_task(member.run()))
            group.create_task(_until_ready(member, starting))
        for member in members.values():
            await member.ready.wait()
        yield members
        for task in tasks:
            task.cancel()


async def _until_ready(member: Member, starting: asyncio.Semaphore) -> None:
    await member.ready.wait()
    starting.release()
