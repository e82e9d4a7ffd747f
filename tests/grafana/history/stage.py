"""Real agents, two replicas of the real controller and simulated machines on one turned clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.core.api import (
    ANNOTATION_REPAIRED,
    FINALIZER_FENCE,
    LABEL_SPARE,
    Job,
    Node,
    Taint,
)
from healthd.core.config import AlertsPolicy, Config, QuarantinePolicy
from healthd.gangs import ADAPTERS
from healthd.local.jobs.controller import JobController
from healthd.telemetry.metrics import Metrics
from tests.builders import a_job, a_node, a_sink_policy
from tests.controller.alerts.sinks import FakeSink
from tests.controller.replicas import Link
from tests.fakes import ManualClock, counting_uids, settle
from tests.grafana.history.agents import StageAgent
from tests.grafana.history.stores import Looker, TimedStore
from tests.simulation.ground_truth import GroundTruth, Listing, Write
from tests.simulation.machines import Machines
from tests.simulation.step_scheduler import at_once
from tests.simulation.training import SeenCheckpoints, Store, Trainers

TICK = timedelta(seconds=5)
"""How often kubelets, training programs and the Job controller have their turn."""
DOMAIN = "topology.kubernetes.io/zone"


class Stage:
    """A cluster of *nodes* in four zones, of which the last *spares* are spares."""

    def __init__(self, *, nodes: int, spares: int, budget: int) -> None:
        self.clock = ManualClock()
        self._truth = GroundTruth(
            EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids(), history=100), "person", self._notify
        )
        dice = random.Random(1)
        self.machines = Machines(self._truth, dice)
        self.trainers = Trainers(self.machines, dice, torn_chance=0.6)
        self.stores: dict[str, TimedStore] = {}
        self.sinks = (FakeSink("pagerduty"), FakeSink("slack"))
        self.controllers: dict[str, ControllerDaemon] = {}
        self.agents: dict[str, StageAgent] = {}
        self.links: dict[str, Link] = {}
        """How each agent reaches the API server."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._policy = QuarantinePolicy(budget=budget, domain_label=DOMAIN)
        self._jobs = JobController(
            self._truth.seen_by("job-controller"),
            new_suffix=lambda: f"{dice.randrange(16**5):05x}",
            free_port=lambda: 29500,
        )
        for number in range(nodes):
            is_spare = number >= nodes - spares
            labels = {DOMAIN: f"rack-{1 + number * 4 // nodes}"}
            taints = [Taint(key=LABEL_SPARE)] if is_spare else []
            node = a_node(f"gpu-{number:02}", spare=is_spare, taints=taints, labels=labels)
            at_once(self._truth.create(node))
            self.machines.add(node.metadata.name)

    def objects(self, kind: type[Any]) -> list[Any]:
        """All of a kind, as they are."""
        return self._truth.world([kind])[kind]

    async def start(self) -> None:
        """All agents, then two controllers."""
        for name in self.machines.all:
            self.start_agent(name)
        self._begin("world", self._turn_world())
        for name in ("controller-a", "controller-b"):
            self.start_controller(name)
            await settle()

    def start_controller(self, name: str) -> None:
        """One more replica."""
        view: Any = self._truth.seen_by(name)
        stores: dict[str, Store] = self.trainers.stores
        alerts = AlertsPolicy(sinks=tuple(a_sink_policy(sink.name) for sink in self.sinks))
        self.controllers[name] = ControllerDaemon(
            Config(alerts=alerts, quarantine=self._policy),
            ControllerDependencies(
                identity=name,
                namespace="healthd-system",
                cluster=view,
                clock=self.clock,
                adapters=ADAPTERS,
                checkpoints=SeenCheckpoints(stores),
                looker=Looker(self.stores),
                jitter=lambda: 0.5,
                sinks=self.sinks,
            ),
        )
        self._begin(name, self.controllers[name].run())

    def _begin(self, name: str, work: Any) -> None:
        self._tasks[name] = asyncio.create_task(work, name=name)

    @property
    def running(self) -> set[str]:
        """The agents and controllers that run."""
        return {name for name, task in self._tasks.items() if not task.done()}

    async def kill(self, name: str) -> None:
        """The pod of an agent or a controller is gone."""
        task = self._tasks[name]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def start_agent(self, name: str) -> None:
        """A life of the agent of a node."""
        truth: Any = self._truth.seen_by(f"agent {name}")
        link: Any = Link(truth)
        self.links[name] = link
        self.agents[name] = StageAgent(name, link, self.clock, self.machines.all[name], self._policy)
        self._begin(name, self.agents[name].run())

    async def close(self) -> None:
        """End all."""
        for name in list(self._tasks):
            await self.kill(name)

    async def _turn_world(self) -> None:
        while True:
            now = self.clock.now()
            self.trainers.work(self.objects(Job), now)
            self.machines.work(now)
            await self._jobs.cycle(now)
            await self.clock.sleep(TICK)

    def _notify(self, seen: Write | Listing) -> None:
        """Nothing is checked here."""

    # What happens -----------------------------------------------------------------------------------------------------

    def submit(self, name: str, namespace: str, ranks: int, gigabytes: int = 20_000) -> None:
        """Somebody starts a gang."""
        self.trainers.stores[name] = self.stores[name] = TimedStore(self.clock, gigabytes)
        notes = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": f"/checkpoints/{name}"}
        job = a_job(name, namespace=namespace, ranks=ranks, backoff_limit=1_000_000, annotations=notes)
        meta = msgspec.structs.replace(job.spec.template.metadata, finalizers=[FINALIZER_FENCE])
        template = msgspec.structs.replace(job.spec.template, metadata=meta)
        at_once(
            self._truth.create(msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template)))
        )

    def kernel_says(self, node: str, text: str, *, breaks: bool = False, lost: int = 0) -> None:
        """The kernel of *node* writes a line; with *breaks* the ranks on it stand still from now on."""
        machine = self.machines.all[node]
        machine.broken = machine.broken or breaks
        self.agents[node].log.put(machine.write_to_log(text, self.clock.now()), lost)

    def repair(self, node: str) -> None:
        """A technician repairs *node* and says so."""
        self.machines.all[node].broken = False
        note = {"metadata": {"annotations": {ANNOTATION_REPAIRED: self.clock.now().isoformat()}}}
        at_once(self._truth.patch(Node, node, note))

    def crash(self, gang: str, index: int) -> None:
        """A rank ends by itself."""
        for process in self.machines.processes(gang):
            if process.index == str(index):
                process.ends_at, process.exit_code = self.clock.now(), 1

    def node_of(self, gang: str, index: int = 0) -> str:
        """Where a rank runs."""
        return next(each.node for each in self.machines.processes(gang) if each.index == str(index))

    def is_training(self, gang: str) -> bool:
        """Whether it makes steps."""
        return gang in self.trainers._runs

    def exposed(self) -> Iterator[tuple[str, str, Metrics]]:
        """Job, name and metrics of every agent and controller that runs."""
        for name, agent in self.agents.items():
            if name in self.running:
                yield "healthd-agent", name, agent.metrics
        for name, daemon in self.controllers.items():
            if name in self.running:
                yield "healthd-controller", name, daemon.metrics
