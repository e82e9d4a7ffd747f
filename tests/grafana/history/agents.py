"""The agent of a node of the stage, with what its machine shows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

from healthd.agent.agent import Agent
from healthd.agent.daemon import REPORT_WITHIN
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.agent.listen import Listener
from healthd.agent.node_view import WatchedNode
from healthd.agent.probing import Prober
from healthd.cluster.loop import cycle_when_woken
from healthd.cluster.port import Cluster
from healthd.core.api import (
    Device,
    Nic,
)
from healthd.core.api.model import KernelRecord
from healthd.core.config import QuarantinePolicy
from healthd.core.diagnosis.readings import NODE, Reading, RecordBatch, Sample
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.telemetry.metrics import Metrics
from tests.fakes import ManualClock
from tests.simulation.machines import Machine

SAMPLE_EVERY = timedelta(seconds=30)
GPU = "0000:3b:00.0"
NICS = ("0000:5d:00.0", "0000:9a:00.0")
"""One for each rail."""
COUNTERS = ("ib.out_of_sequence", "ib.packet_seq_err")
GPUS = 8
MODEL = "NVIDIA H100 80GB HBM3"
SHORT_OF_A_GPU = frozenset({"gpu-09"})
"""Since their first boot."""


class MemoryLog:
    """A kernel log that records are put into."""

    source = "kmsg"

    def __init__(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self._batches: asyncio.Queue[RecordBatch] = asyncio.Queue()

    def put(self, record: KernelRecord, lost: int = 0) -> None:
        """The kernel writes."""
        self._batches.put_nowait(RecordBatch(records=[record], last_sequence=record.sequence, lost=lost))

    async def batches(self) -> AsyncGenerator[RecordBatch, None]:
        """As they come."""
        while True:
            yield await self._batches.get()

    def ask(self) -> int:
        """Nothing to answer."""
        return 0


class StageAgent:
    """The agent of one node, as its daemon puts it together, without threads: the same in each run."""

    def __init__(self, name: str, cluster: Cluster, clock: ManualClock, machine: Machine, policy: QuarantinePolicy):
        self.metrics = Metrics()
        self.metrics.quarantine_budget.set(policy.budget)
        self.readings: dict[str, dict[tuple[str, str, str], Reading]] = {}
        """By source: what its probes show."""
        self.silent: set[str] = set()
        self.growing: dict[tuple[str, str], float] = {(nic, name): 900.0 for nic in NICS for name in COUNTERS}
        """By port and counter: growth in an hour."""
        self.log = MemoryLog(machine.boot_id)
        self._clock, self._machine, self._began = clock, machine, clock.now()
        self._wake = asyncio.Event()
        self._view = WatchedNode(cluster, clock, name, self._wake.set, jitter=lambda: 0.5, metrics=self.metrics)
        self._agent = Agent(
            AgentDependencies(
                node=NodeFacts(name=name, boot_id=machine.boot_id),
                cluster=cluster,
                clock=clock,
                rules=tuple(known_rules().values()),
                metrics=self.metrics,
                quarantine=policy,
                view=self._view,
                jitter=lambda: 0.5,
                report_within=REPORT_WITHIN,
            )
        )
        self._listener = Listener([self._agent.state], clock, self.metrics, self._wake.set)
        self._prober = Prober((), clock, lambda: 0.5, self.metrics, self._ingest)
        gpus = GPUS - 1 if name in SHORT_OF_A_GPU else GPUS
        self.shows(Reading(NODE, "pcie.gpus", gpus))
        self.shows(Reading(GPU, "nvml.state", "ok"), *(Reading(nic, "ib.rail_link", "up", "port 1") for nic in NICS))

    def shows(self, *readings: Reading) -> None:
        """From now on its probes show these."""
        for reading in readings:
            source = self.readings.setdefault(reading.name.partition(".")[0], {})
            source[reading.name, reading.device, reading.part] = reading

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._view.follow())
            await self._view.seen()
            await self._agent.load(self._clock.now())
            self._agent.state.set_gpus([Device(pci=GPU, uuid=f"GPU-{self._machine.name}", name=MODEL)])
            self._agent.state.set_nics(
                [
                    Nic(pci=pci, port=1, device=f"mlx5_{rail}", family="ib", rate_gbps=400, rail=rail)
                    for rail, pci in enumerate(NICS)
                ]
            )
            group.create_task(self._listener.ingest_log(self.log))
            group.create_task(self._sample())
            await cycle_when_woken(self._clock, self._agent.cycle, self._wake)

    async def _sample(self) -> None:
        self._agent.state.begin(list(self.readings), self._clock.now())
        while True:
            now = self._clock.now()
            hours = (now - self._began) / timedelta(hours=1)
            self.shows(
                *(Reading(nic, name, round(pace * hours), "port 1") for (nic, name), pace in self.growing.items())
            )
            for source, readings in self.readings.items():
                if source in self.silent:
                    sample = Sample(source=source, at=now, trouble="it does not answer")
                else:
                    sample = Sample(source=source, at=now, readings=list(readings.values()))
                self._prober._ingest_sample(sample)
            await self._clock.sleep(SAMPLE_EVERY)

    def _ingest(self, sample: Sample) -> None:
        if self._agent.state.ingest_sample(self._agent.state.expecting(sample), self._clock.now()):
            self._wake.set()
