"""
One schedule: the real loop of remediation, once or twice, and the real agents, one turn at a time.

In a quarter of the worlds a gang runs on the nodes, and the real reconciler recovers it at the same time. At the end
all bad luck stops: every node must come to a state that ends or waits, and after a person's word back into service.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.cluster.port import ClusterError
from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.remediation.loop import Remediations
from healthd.controller.remediation.requests import Requests
from healthd.core.api import Node, NodeHealth, NodeRemediationStatus, Pod, Recovery, RecoveryStatus
from healthd.core.api.remediations import Rung
from healthd.core.config import Config, GiveBack, JudgePolicy, QuarantinePolicy, RemediationPolicy
from healthd.core.diagnosis.readings import RecordBatch
from healthd.core.diagnosis.signals import spare_check
from healthd.core.remediation.hands.description import HandDescription
from healthd.gangs import ADAPTERS
from tests.builders import a_node
from tests.fakes import START, ManualClock
from tests.simulation.faulty_cluster import FaultDice, FaultyCluster
from tests.simulation.ground_truth import GroundTruth, Listing, Write
from tests.simulation.invariants import Broken
from tests.simulation.memory_store import in_memory
from tests.simulation.remediation import happenings
from tests.simulation.remediation.gang import GangBeside
from tests.simulation.remediation.hands import REBOOTS, Site, all_hands, hand_of
from tests.simulation.remediation.healing import heal
from tests.simulation.remediation.hosts import GPUS, Hosts
from tests.simulation.remediation.idle_spares import IdleSpares
from tests.simulation.remediation.labels import ON, PLUGIN
from tests.simulation.remediation.reading_cluster import ReadingCluster
from tests.simulation.remediation.watching import RACK, RemediationWatch
from tests.simulation.simulation import METRICS, SkewedClock, trace_of
from tests.simulation.step_scheduler import Actor, at_once

HOME = "healthd-system"
JUMPS = ((0.55, 10.0), (0.9, 90.0), (1.0, 600.0))
"""By chance: at most so many seconds pass in a step."""


@dataclass(frozen=True, slots=True)
class RemediationOutcome:
    """What one schedule came to. *broken* is empty when all held."""

    seed: int
    broken: str
    trace: str
    requests: int
    returns: int
    log: tuple[str, ...] = ()


Wrap = Callable[[ReadingCluster], Any]


class RemediationSimulation:
    """One world, made from *seed*. *wrap*: what a planted bug puts between the loop and its cluster."""

    def __init__(self, seed: int, wrap: Wrap | None = None, *, keep_log: bool = False) -> None:
        self.seed = seed
        self.dice = random.Random(f"{seed} remediation")
        self.clock = ManualClock()
        self._wrap = wrap
        self._keep_log = keep_log
        self.log: list[str] = []
        self.hands = self._chosen()
        self.spares = IdleSpares(self, seed)
        self.config = self.spares.configured(self._config())
        self._embedded = in_memory(self.clock)
        self.ground_truth = GroundTruth(self._embedded, "person", self._notify)
        self.hosts = Hosts(self.ground_truth, self.dice)
        self.watch = RemediationWatch(self.hosts, self.config.remediation)
        self.watch.now = self.clock.now()
        self.site = Site(self.ground_truth, self.hosts, self.dice, self._is_done)
        self.luck = self._luck()
        self.lost: set[str] = set()
        """Nodes that somebody deleted."""
        self.clocks: dict[str, timedelta] = {}
        self.pods = 0
        names = [f"node-{at}" for at in range(self.dice.choice((2, 3, 4)))]
        names += self.spares.more_nodes(len(names))
        for name in names:
            self.hosts.add(name)
            self.add_node(name)
        self.agents = {name: self._agent(name) for name in names}
        leaders = 2 if self.dice.random() < 0.5 else 1
        self.controllers = [self._controller(f"controller-{each}") for each in "ab"[:leaders]]
        self.controllers += self.spares.loops([controller.name for controller in self.controllers])
        self.gang = GangBeside(self) if self.dice.random() < 0.25 else None
        self._asleep: dict[str, int] = {}
        self.steps = 0

    def run(self, steps: int) -> RemediationOutcome:
        """Take *steps* unlucky steps, then heal; every step is checked."""
        broken = ""
        try:
            for _ in range(steps):
                self._step()
            heal(self)
        except Broken as error:
            broken = str(error)
            self.note(broken)
        finally:
            self._embedded.close()
        log = tuple(self.log) if self._keep_log else ()
        return RemediationOutcome(self.seed, broken, trace_of(self.log), self.watch.requests, self.watch.returns, log)

    def note(self, what: str) -> None:
        """Write down what happened."""
        self.log.append(f"{(self.clock.now() - START).total_seconds():9.1f} {what}")

    # The world --------------------------------------------------------------------------------------------------------

    def _chosen(self) -> tuple[str, ...]:
        others = (hand_of(rung) for rung in (Rung.RESET_GPU, Rung.POWER_CYCLE, Rung.REPLACE))
        return (self.dice.choice(REBOOTS), *(name for name in others if self.dice.random() < 0.6))

    def _config(self) -> Config:
        draw = self.dice
        return Config(
            quarantine=QuarantinePolicy(
                budget=draw.choice((1, 3, 4)), domain_label=RACK, give_back=GiveBack.REPAIRED, namespace=HOME
            ),
            remediation=RemediationPolicy(
                at_once=draw.choice((1, 1, 2)),
                per_domain=draw.choice((0, 1)),
                hands=self.hands,
                attempts_per_week=draw.choice((2, 5, 8)),
                check_by_pod=draw.random() < 0.75,
                check_timeout=timedelta(minutes=20),
                check_image="healthd:test",
                probation=timedelta(hours=1),
            ),
        )

    def _luck(self) -> FaultDice:
        draw = self.dice
        return FaultDice(
            draw,
            per_write=draw.choice((0, 0.05, 0.15)),
            per_read=draw.choice((0, 0, 0.01)),
            per_turn=draw.choice((0, 0.03, 0.1)),
        )

    def add_node(self, name: str, *, is_another: bool = False) -> None:
        """The Node of *name* joins, of another machine if it says so."""
        host = self.hosts.all[name]
        if is_another:
            host.machine, host.needs, host.broken = host.machine + 1, None, False
            self.hosts.boots(name, self.clock.now())
        rack = f"rack-{int(name[-1]) % 2}"
        labels = {RACK: rack, "nvidia.com/gpu.count": str(GPUS), PLUGIN: ON, **self.spares.labels_of(name)}
        at_once(self.ground_truth.create(a_node(name, labels=labels, taints=self.spares.taints_of(name))))
        self.hosts.work(self.clock.now())

    def remove_node(self, name: str) -> None:
        """The Node goes, and what ran there."""
        at_once(self.ground_truth.delete(Node, name))
        self.hosts.reboot(name)
        for pod in at_once(self.ground_truth.list(Pod)).items:
            if pod.spec.node_name == name:
                meta = pod.metadata
                at_once(self.ground_truth.delete(Pod, meta.name, namespace=meta.namespace, grace_seconds=0))
        self.agents[name].crash()

    def _is_done(self, name: str, rung: Rung) -> None:
        """The site did *rung* to *name*."""
        self.note(f"site does {rung} to {name}")
        if rung is Rung.REPLACE and name not in self.lost:
            self.remove_node(name)
            self.add_node(name, is_another=True)
        elif rung is not Rung.RESET_GPU:
            self.agents[name].crash()

    # Programs ---------------------------------------------------------------------------------------------------------

    def _agent(self, name: str) -> Actor:
        view = self.ground_truth.seen_by(f"agent {name}")
        cluster = FaultyCluster(view, self.luck, lambda what: self.note(f"{name} {what}"))

        def live() -> Callable[[], Coroutine[Any, Any, Any]]:
            host = self.hosts.all[name]
            clock = SkewedClock(self.clock, host.clock_offset)
            agent = Agent(
                AgentDependencies(
                    node=NodeFacts(name=name, boot_id=host.boot_id),
                    cluster=cluster,
                    clock=clock,
                    judge=JudgePolicy(),
                    metrics=METRICS,
                    quarantine=self.config.quarantine,
                    rules=spare_check.RULES,
                )
            )
            loaded = False

            async def sample() -> None:
                nonlocal loaded
                if not loaded:
                    await agent.load(clock.now())
                    loaded = True
                is_new = agent.state.cursor.boot_id != host.boot_id
                first = 0 if is_new else agent.state.cursor.sequence + 1
                host.ingested_at = host.faulted_at
                batch = RecordBatch(records=host.records[first:], last_sequence=len(host.records) - 1)
                agent.state.ingest_records(batch, clock.now())
                await agent.cycle(clock.now())

            return sample

        return Actor(f"agent {name}", live)

    def reach(self, name: str) -> tuple[GroundTruth, Any]:
        """The cluster as the controller *name* sees it, and as it reaches it."""
        view = self.ground_truth.seen_by(name)
        reader = ReadingCluster(self.clock.now, view, self.luck, lambda what: self._missed(name, what))
        self.watch.readers[name] = reader
        return view, self._wrap(reader) if self._wrap else reader

    def _controller(self, name: str) -> Actor:
        view, cluster = self.reach(name)

        async def no_image() -> str:
            return ""

        async def post(hand: HandDescription, body: dict[str, Any]) -> None:
            self.watch.called(name, body["node"], body["attempt"])
            await self.site.post(hand, body)

        def live() -> Callable[[], Coroutine[Any, Any, Any]]:
            clock = SkewedClock(self.clock, self.clocks.get(name, timedelta(0)))
            known = all_hands()
            requests = Requests(
                cluster,
                clock,
                hands=[known[each] for each in self.hands],
                known=known.values(),
                own_image=no_image,
                post=post,
            )
            state, loaded = ClusterState(ADAPTERS), False
            loop = Remediations(cluster, clock, state, self.config, requests, namespace=HOME, metrics=METRICS)

            async def sample() -> None:
                nonlocal loaded
                self.feed(state, view)
                loaded = loaded or await loop.load()
                if loaded:
                    await loop.look()

            return sample

        return Actor(name, live)

    def _missed(self, name: str, what: str) -> None:
        self.watch.missed[name] += not what.endswith(" fine")
        self.note(f"{name} {what}")

    def feed(self, state: ClusterState, view: GroundTruth, *, with_recoveries: bool = False) -> None:
        """What its watches tell, each late now and then."""
        for kind in (Node, NodeHealth, *((Recovery,) if with_recoveries else ())):
            if self.luck.is_out or state.nodes == {} or self.dice.random() < 0.7:
                listed: Any = at_once(view.list(kind))
                state.replace(kind, listed.items, listed.resource_version)

    # Steps ------------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self.steps += 1
        roll = self.dice.random()
        if roll < 0.12:
            if not self.spares.strike():
                happenings.strike(self)
        elif roll < 0.6:
            self.go(self.dice.choice(self.controllers))
        elif roll < 0.85:
            self.go(self.agents[self._some_agent()])
        if self.gang is not None:
            self.gang.step()
        chance, most = self.dice.random(), 600.0
        most = next(seconds for limit, seconds in JUMPS if chance < limit)
        self.pass_time(timedelta(seconds=most * self.dice.random()))

    def _some_agent(self) -> str:
        """Those with something to say come first more often than not."""
        hot = [name for name, host in self.hosts.all.items() if host.records]
        return self.dice.choice(hot if hot and self.dice.random() < 0.7 else sorted(self.hosts.all))

    def pass_time(self, delta: timedelta) -> None:
        """Time goes by for kubelets and for the site."""
        self.clock.advance(delta)
        self.watch.now = self.clock.now()
        self.hosts.work(self.clock.now())
        self.site.work(self.clock.now())
        if self.gang is not None:
            self.gang.work()
        self.watch.check()

    def go(self, actor: Actor) -> None:
        """Let *actor* have its turn."""
        if actor.name.startswith("agent") and actor.name.removeprefix("agent ") in self.lost:
            return
        if self._asleep.get(actor.name, 0) > self.steps and not self.luck.is_out:
            return  # its machine stands still in the middle of a round
        try:
            how = actor.go(self.luck.pauses)
        except (ClusterError, OSError) as error:
            how = f"failed: {type(error).__name__}"
        if how == "paused" and self.dice.random() < 0.5:
            self._asleep[actor.name] = self.steps + self.dice.randrange(2, 30)
        self.note(f"{actor.name} {how}")

    def _notify(self, seen: Write | Listing) -> None:
        if isinstance(seen, Write):
            meta = (seen.after or seen.before).metadata
            status = getattr(seen.after, "status", None)
            said = (
                f"{status.phase}: {status.message}"
                if isinstance(status, NodeRemediationStatus | RecoveryStatus)
                else ""
            )
            what = "gone" if seen.after is None else "made" if seen.before is None else said
            self.note(f"    {seen.by} wrote {seen.kind.__name__} {meta.name} {what}")
            self.watch(seen)


def run(seed: int, wrap: Wrap | None = None, *, keep_log: bool = False) -> RemediationOutcome:
    """One schedule; its length follows from the seed, too."""
    simulation = RemediationSimulation(seed, wrap, keep_log=keep_log)
    return simulation.run(random.Random(seed).choice((40, 80, 120)))
