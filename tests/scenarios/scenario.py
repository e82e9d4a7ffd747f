"""
A stage for scenarios: real agents, controller and Job controller on an embedded cluster in memory, simulated machines.

The clock stands still until a scenario turns it. What looks at the cluster looks when something changed or when it
asked to be woken, as the real loops do: the clock jumps from one due time to the next, so an hour passes quickly. The
invariants of the simulation hold here too.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.dependencies import ReconcilerDependencies, none_slow
from healthd.controller.ports import NoActivity, UnknownWitnesses
from healthd.controller.reconciler import Reconciler
from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    FINALIZER_FENCE,
    LABEL_SPARE,
    Job,
    Lease,
    Node,
    NodeHealth,
    Pod,
    Recovery,
    Taint,
)
from healthd.core.api.model import Finding, Phase
from healthd.core.config import BreakerPolicy, Config, ForeignPolicy, HangPolicy, QuarantinePolicy, RecoveryPolicy
from healthd.core.diagnosis.readings import Reading, RecordBatch, Sample
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.gang import Root
from healthd.gangs import ADAPTERS
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.job import read_job
from healthd.local.jobs.controller import JobController
from healthd.telemetry.events import Announce, silently
from healthd.telemetry.metrics import Metrics
from tests.builders import a_job, a_node
from tests.fakes import ManualClock, counting_uids
from tests.simulation.finding_invariants import FindingInvariants, SeesRepairs
from tests.simulation.ground_truth import GroundTruth, Listing, Write
from tests.simulation.invariants import WATCHED, Watchdog
from tests.simulation.machines import UNREACHABLE_AFTER, Machine, Machines, Process
from tests.simulation.operator_actions import remove_definitions
from tests.simulation.step_scheduler import at_once
from tests.simulation.training import SeenCheckpoints, Store, Trainers

GPU = "0000:3b:00.0"
OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
APPLICATION = "NVRM: Xid (PCI:0000:3b:00): 13, pid=1234, name=python, Graphics Exception: ESR 0x404600=0x80000002"
TICK = timedelta(seconds=1)
"""Machines are looked at again so long after a change. A scenario that waits for a phase looks so often."""
RESYNC = timedelta(hours=1)
"""Of the Job controller: no event is lost here, so it looks after each change and when a back-off ends."""
SAMPLES_EVERY = timedelta(seconds=15)
"""Where a scenario has readings."""
METRICS = Metrics()

Loop = Callable[[datetime], Any]


class Scenario:
    """One gang `train` of *ranks* members, on as many nodes and some *spares* more. Annotations in *options*."""

    def __init__(
        self,
        *,
        ranks: int = 2,
        spares: int = 1,
        budget: int = 2,
        recovery: RecoveryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        hang: HangPolicy | None = None,
        foreign: ForeignPolicy | None = None,
        options: dict[str, str] | None = None,
        grace_seconds: int = 30,
        backoff_limit: int = 1_000_000,
    ) -> None:
        self.clock = ManualClock()
        self.config = Config(
            quarantine=QuarantinePolicy(budget=budget),
            recovery=recovery or RecoveryPolicy(),
            breaker=breaker or BreakerPolicy(),
            hang=hang or HangPolicy(),
            foreign=foreign or ForeignPolicy(),
        )
        dice = random.Random(1)
        self.cluster = EmbeddedCluster.open(None, clock=self.clock, new_uid=counting_uids(), history=1)
        self.ground_truth = GroundTruth(self.cluster, "person", self._notify)
        self.machines = Machines(self.ground_truth, dice)
        self.trainers = Trainers(self.machines, dice, torn_chance=0)
        self.watchdog = Watchdog(self.machines, self.trainers.stores, self.config)
        self._shown: dict[str, dict[str, dict[tuple[str, str, str], Reading]]] = {}
        """By node and source: what its probes show."""
        self._silent: set[tuple[str, str]] = set()
        for number in range(ranks + spares):
            self._make_node(f"node-{number}", spare=number >= ranks)
        self.trainers.stores["train"] = self.store = Store()
        at_once(self.ground_truth.create(_job(ranks, options or {}, grace_seconds, backoff_limit)))
        self._loops: dict[str, Loop] = {"jobs": self._jobs(), "controller": self.new_controller("controller")}
        for name in self.machines.all:
            self._loops[f"agent {name}"] = self._agent(name)
        self._due: dict[str, datetime] = {}
        self._seen = self._rested_at = ""
        """Versions of the cluster: that all looked at last, and that the world last came to rest at."""
        self._changed_at = self.clock.now()

    # What a scenario does ---------------------------------------------------------------------------------------------

    async def run_for(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0) -> None:
        """Let time pass."""
        end = self.clock.now() + timedelta(seconds=seconds, minutes=minutes, hours=hours)
        await self.settle()
        while self.clock.now() < end:
            self._turn_clock(end)
            await self.settle()

    async def run_until(self, phase: Phase, *, at_most: timedelta = timedelta(minutes=10)) -> Recovery:
        """Let time pass until the newest recovery is in *phase*."""
        end = self.clock.now() + at_most
        await self.run_for(seconds=1)
        while not (found := self.recoveries()) or found[-1].status.phase is not phase:
            assert self.clock.now() < end, f"never came to {phase}: {[r.status.message for r in self.recoveries()]}"
            await self.run_for(seconds=1)
        return found[-1]

    async def settle(self) -> None:
        """Let everybody look until nothing changes any more."""
        now = self.clock.now()
        for _ in range(100):
            self._work()
            before = self._version()
            for name, loop in list(self._loops.items()):
                if before != self._seen or self._due.get(name, now) <= now:
                    self._due[name] = now + await loop(now)
            self._find_reasons()
            self._check()
            self._seen = before
            if self._version() == before:
                if before != self._rested_at:
                    self._rested_at, self._changed_at = before, now
                return
        raise AssertionError("the world does not come to rest")

    def fault(self, node: str, text: str = OFF_THE_BUS) -> None:
        """The kernel of *node* reports something; hardware that fell off the bus lets its ranks stand still."""
        machine = self.machines.all[node]
        record = machine.write_to_log(text, self.clock.now())
        if text == OFF_THE_BUS:
            machine.broken = True
            self.watchdog.faulted(node, record.at)
        self._due.clear()

    def shows(self, node: str, *readings: Reading) -> None:
        """From now on a probe of *node* shows these."""
        for reading in readings:
            source = self._shown.setdefault(node, {}).setdefault(reading.name.partition(".")[0], {})
            source[reading.name, reading.device, reading.part] = reading
        self._due.clear()

    def stop_source(self, node: str, source: str) -> None:
        """A source of *node* does not answer any more."""
        self._silent.add((node, source))

    def restart_source(self, node: str, source: str) -> None:
        """It answers again."""
        self._silent.discard((node, source))

    def crash(self, index: int, exit_code: int = 1) -> None:
        """The rank of this index ends by itself."""
        for process in self.processes():
            if process.index == str(index):
                process.ends_at, process.exit_code = self.clock.now(), exit_code

    def repair(self, node: str) -> None:
        """A technician repairs *node* and says so."""
        self.machines.all[node].broken = False
        self.watchdog.repaired(node, self.clock.now())
        self.patch_node(node, {"metadata": {"annotations": {ANNOTATION_REPAIRED: self.clock.now().isoformat()}}})

    def reboot(self, node: str) -> None:
        """*node* goes down and comes up again."""
        self.machines.reboot(node)
        self.restart_agent(node)

    def restart_agent(self, node: str) -> None:
        """The agent of *node* dies, and another one takes its place."""
        self._loops[f"agent {node}"] = self._agent(node)
        self._due.clear()

    def kill_kubelet(self, node: str) -> None:
        """The kubelet of *node* stops; what it had started runs on."""
        self.machines.all[node].kubelet_dead_since = self.clock.now()

    def revive_kubelet(self, node: str) -> None:
        """The kubelet of *node* is back."""
        self.machines.all[node].kubelet_dead_since = None

    def suspend(self) -> None:
        """The user stops the gang, and takes away the mark of what had stopped it."""
        self.watchdog.stopped_by_user.add("train")
        self.patch_job({"metadata": {"annotations": {"healthd.dev/stopped-by": None}}, "spec": {"suspend": True}})

    def resume(self) -> None:
        """The user lets the gang go on."""
        self.watchdog.stopped_by_user.discard("train")
        self.patch_job({"spec": {"suspend": False}})

    def resize(self, ranks: int) -> None:
        """The user makes the gang larger or smaller."""
        self.patch_job({"spec": {"parallelism": ranks, "completions": ranks}})

    def delete(self) -> None:
        """The user deletes the gang."""
        self.watchdog.deletes(at_once(self.cluster.get(Job, "train", "default")))
        at_once(self.ground_truth.delete(Job, "train", namespace="default"))

    def cordon(self, node: str) -> None:
        """A person cordons *node*."""
        self.watchdog.cordoned_by_person.add(node)
        self.patch_node(node, {"spec": {"unschedulable": True}})

    def uncordon(self, node: str) -> None:
        """A person uncordons *node*."""
        self.watchdog.cordoned_by_person.discard(node)
        self.patch_node(node, {"spec": {"unschedulable": None}})

    def patch_node(self, node: str, patch: dict[str, Any], subresource: str = "") -> None:
        """A person changes a node."""
        at_once(self.ground_truth.patch(Node, node, patch, subresource=subresource))

    def patch_job(self, patch: dict[str, Any]) -> None:
        """A person changes the gang."""
        at_once(self.ground_truth.patch(Job, "train", patch, namespace="default"))

    def add_loop(self, name: str, loop: Loop) -> None:
        """One more program, or another in its place, looks at the cluster from now on."""
        self._loops[name] = loop
        self._due.pop(name, None)

    def restart_controller(self) -> None:
        """The controller dies, and another one takes its place."""
        self._loops["controller"] = self.new_controller("controller")

    @contextmanager
    def controller_paused(self) -> Iterator[None]:
        """The controller stands still meanwhile: afterwards it sees only what has come of all."""
        loop = self._loops.pop("controller")
        try:
            yield
        finally:
            self.add_loop("controller", loop)

    def reinstall(self) -> None:
        """healthd is removed with its definitions, and installed again."""
        remove_definitions(self.ground_truth)
        self.watchdog.is_installed_anew(at_once(self.ground_truth.list(Node)).items)
        self.restart_controller()
        for name in self.machines.all:
            self.restart_agent(name)

    def delete_recoveries(self) -> None:
        """A person deletes every recovery, under a controller that lives on."""
        for each in self.recoveries():
            at_once(self.ground_truth.delete(Recovery, each.metadata.name, namespace=each.metadata.namespace))

    def delete_slots(self) -> None:
        """A person deletes every slot of the budget that is taken."""
        for slot in at_once(self.ground_truth.list(Lease)).items:
            self.watchdog.loses_slot(slot.spec.holder_identity)
            at_once(self.ground_truth.delete(Lease, slot.metadata.name, namespace=slot.metadata.namespace))

    def new_controller(
        self,
        name: str,
        cluster: Any = None,
        informer: Any = None,
        activity: Any = None,
        witnesses: Any = None,
        announce: Announce = silently,
        adapters: Mapping[str, GangAdapter[Any]] = ADAPTERS,
        slow_ranks: Callable[[Root], Sequence[Straggler]] = none_slow,
    ) -> Loop:
        """The loop of a controller, through *cluster* if given."""
        view = self.ground_truth.seen_by(name)
        dependencies = ReconcilerDependencies(
            cluster=cluster or view,
            clock=self.clock,
            adapters=adapters,
            checkpoints=SeenCheckpoints(self.trainers.stores),
            metrics=METRICS,
            namespace="healthd-system",
            informer=informer,
            activity=activity or NoActivity(),
            witnesses=witnesses or UnknownWitnesses(),
            announce=announce,
            slow_ranks=slow_ranks,
        )
        return reading_at_once(Reconciler(dependencies, self.config))

    # What a scenario asks ---------------------------------------------------------------------------------------------

    @property
    def root(self) -> Root:
        """The gang as healthd reads it."""
        return read_job(at_once(self.cluster.get(Job, "train", "default")))

    def recoveries(self) -> list[Recovery]:
        """All of them, oldest first."""
        found = at_once(self.cluster.list(Recovery)).items
        return sorted(found, key=lambda recovery: recovery.spec.first_attempt)

    def recovery(self) -> Recovery:
        """The newest."""
        return self.recoveries()[-1]

    def phases(self) -> list[Phase]:
        """The way of the newest recovery."""
        return [entry.phase for entry in self.recovery().status.timeline]

    def processes(self) -> list[Process]:
        """The ranks that really run."""
        return sorted(self.machines.processes("train"), key=lambda process: int(process.index))

    def places(self) -> dict[str, str]:
        """Index -> node of the ranks that really run."""
        return {process.index: process.node for process in self.processes()}

    def node(self, name: str) -> Node:
        """A node as it stands."""
        return at_once(self.cluster.get(Node, name))

    def quarantined(self) -> list[str]:
        """The nodes that healthd took out of service."""
        nodes = at_once(self.cluster.list(Node)).items
        return [node.metadata.name for node in nodes if ANNOTATION_QUARANTINE in node.metadata.annotations]

    def pool(self) -> list[str]:
        """The spares that are free."""
        return [node.metadata.name for node in at_once(self.cluster.list(Node, labels={LABEL_SPARE: "true"})).items]

    def standing(self, node: str) -> list[Finding]:
        """What its agent has published against *node*."""
        findings = at_once(self.cluster.get(NodeHealth, node)).status.findings
        return [finding for finding in findings if finding.cleared_at is None]

    def slots(self) -> int:
        """Budget slots that are taken."""
        return len(at_once(self.cluster.list(Lease)).items)

    def pods(self) -> list[Pod]:
        """All pod objects."""
        return at_once(self.cluster.list(Pod)).items

    # Behind the scenes -----------------------------------------------------------------------------------------------

    def _make_node(self, name: str, *, spare: bool) -> None:
        taints = [Taint(key=LABEL_SPARE)] if spare else []
        at_once(self.ground_truth.create(a_node(name, spare=spare, taints=taints)))
        self.machines.add(name)
        self.watchdog.conducts[name] = FindingInvariants(name, known_rules())

    def _agent(self, name: str) -> Loop:
        machine, invariants_of_findings = self.machines.all[name], self.watchdog.conducts[name]
        invariants_of_findings.begin_life()
        agent = Agent(
            AgentDependencies(
                node=NodeFacts(name=name, boot_id=machine.boot_id),
                cluster=SeesRepairs(self.ground_truth.seen_by(f"agent {name}"), invariants_of_findings, self.clock.now),
                clock=self.clock,
                rules=tuple(known_rules().values()),
                metrics=METRICS,
                quarantine=self.config.quarantine,
            )
        )
        is_loaded = False

        async def sample(now: datetime) -> timedelta:
            nonlocal is_loaded
            if not is_loaded:
                await agent.load(now)
                is_loaded = True
            agent.state.ingest_records(_unread(machine, agent), now)
            invariants_of_findings.show(agent, self._samples(name, now), now)
            again = await agent.cycle(now)
            return min(again, SAMPLES_EVERY) if name in self._shown else again

        return sample

    def _samples(self, name: str, now: datetime) -> list[Sample]:
        return [
            Sample(source=source, at=now, trouble="it does not answer")
            if (name, source) in self._silent
            else Sample(source=source, at=now, readings=list(readings.values()))
            for source, readings in self._shown.get(name, {}).items()
        ]

    def _jobs(self) -> Loop:
        dice = random.Random(2)
        jobs = JobController(
            self.ground_truth.seen_by("job-controller"),
            new_suffix=lambda: f"{dice.randrange(16**5):05x}",
            free_port=lambda: 29500,
            resync=RESYNC,
        )
        return jobs.cycle

    def _turn_clock(self, end: datetime) -> None:
        """To the next moment at which anybody has something to do."""
        now = self.clock.now()
        moments = [*self._due.values(), end, self._changed_at + TICK, self.trainers.next_save(now)]
        if ending := self.machines.next_end():
            moments.append(ending)
        silent = [m.kubelet_dead_since for m in self.machines.all.values() if m.kubelet_dead_since]
        moments += [since + UNREACHABLE_AFTER for since in silent]
        later = [moment for moment in moments if moment > now]
        self.clock.advance(min(later) - now)

    def _work(self) -> None:
        now = self.clock.now()
        self.trainers.work(self.ground_truth.world([Job])[Job], now)
        self.machines.work(now)

    def _version(self) -> str:
        return at_once(self.cluster.list(Lease)).resource_version

    def _notify(self, seen: Write | Listing) -> None:
        self.watchdog(seen)

    def _check(self) -> None:
        self.watchdog.check(self.ground_truth.world(WATCHED))

    def _find_reasons(self) -> None:
        """Stories say themselves what they expect: here every attempt may be restarted."""
        for job in self.ground_truth.world([Job])[Job]:
            self.watchdog.disturbed.add((job.metadata.name, read_job(job).attempt))


def reading_at_once(controller: Reconciler) -> Loop:
    """The loop of a controller whose stores answer before anybody else goes on."""

    async def sample(now: datetime) -> timedelta:
        again = await controller.reconcile_all(now)
        while begun := controller.reads.begin():
            for read in begun:
                await controller.reads.take(read)
            again = await controller.reconcile_all(now)
        return again

    return sample


class ConcurrentWrite:
    """A cluster whose user stands still before its *number*th call, while *meanwhile* goes on."""

    def __init__(self, cluster: Any, number: int, meanwhile: Callable[[], Awaitable[Any]]) -> None:
        self._cluster = cluster
        self._left = number
        self._meanwhile = meanwhile

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)

        async def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                await self._meanwhile()
            return await verb(*args, **options)

        return call


def _unread(machine: Machine, agent: Agent) -> RecordBatch:
    first = agent.state.cursor.sequence + 1 if agent.state.cursor.boot_id == machine.boot_id else 0
    return RecordBatch(records=machine.records[first:], last_sequence=len(machine.records) - 1)


def _job(ranks: int, options: dict[str, str], grace_seconds: int, backoff_limit: int) -> Job:
    notes = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "/checkpoints/train", **options}
    job = a_job(ranks=ranks, backoff_limit=backoff_limit, annotations={k: v for k, v in notes.items() if v})
    template = msgspec.structs.replace(
        job.spec.template,
        metadata=msgspec.structs.replace(job.spec.template.metadata, finalizers=[FINALIZER_FENCE]),
        spec=msgspec.structs.replace(job.spec.template.spec, termination_grace_period_seconds=grace_seconds),
    )
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template))
