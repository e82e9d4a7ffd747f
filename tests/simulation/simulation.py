"""
One schedule: the real controller and agents, one turn at a time, while machines break and people interfere.

Everything that happens follows from the seed. After each step the invariants are checked against the true world; at the
end all faults stop, everything is repaired, and the gangs must run again.
"""

from __future__ import annotations

import gc
import hashlib
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.cluster.port import ClusterError, NotFound
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.reconciler import Reconciler
from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_STOPPED_BY,
    LABEL_SPARE,
    Job,
    Node,
    NodeHealth,
    Pod,
    Recovery,
    Slim,
    Taint,
    Toleration,
)
from healthd.core.api.model import Phase, Verdict
from healthd.core.config import (
    BreakerPolicy,
    Config,
    ForeignPolicy,
    HangPolicy,
    JudgePolicy,
    QuarantinePolicy,
    RecoveryPolicy,
)
from healthd.core.diagnosis.readings import RecordBatch, Sample
from healthd.core.diagnosis.signals.rule import Rule
from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.planned.growth import grows_back
from healthd.gangs import ADAPTERS
from healthd.local.jobs.controller import JobController
from tests.builders import a_job, a_node
from tests.fakes import START, ManualClock
from tests.simulation import deletions, fault_injection, gang_edits, kubernetes, maintenance, random_actions, slow_ranks
from tests.simulation.converged_state import unsettled
from tests.simulation.faulty_cluster import FaultDice, FaultyCluster, StaleCache
from tests.simulation.finding_invariants import FindingInvariants, SeesRepairs
from tests.simulation.ground_truth import GroundTruth, Listing, Write
from tests.simulation.invariants import CLOCKS_DIFFER, WATCHED, Broken, Watchdog
from tests.simulation.kubernetes import Feed, LastWords, Unplaced, answer_for_old_pods, processes_on
from tests.simulation.machines import Machines, is_surplus, root_of
from tests.simulation.memory_store import in_memory
from tests.simulation.simulated_readings import SimulatedReadings, strike
from tests.simulation.step_scheduler import Actor, at_once
from tests.simulation.training import OvertakenCheckpoints, Store, Trainers
from tests.simulation.version_skew import version_of


class Uncounted:
    """Takes the place of metrics, which no test looks at here: counting them is a tenth of a schedule."""

    def __getattr__(self, name: str) -> Uncounted:
        return self

    def __call__(self, *_: Any, **__: Any) -> Uncounted:
        return self


METRICS: Any = Uncounted()
GROWING_ROUNDS = 40
HEALING_ROUNDS = 60
ROUNDS_IN_DOUBT = 60
"""More of them, where the newest checkpoints may not load: each is tried twice before an older one is taken."""
WAITING_ROUNDS = 60
"""Hours, where readings must have been good for long enough."""
GPU_TAINT = Taint(key="nvidia.com/gpu", value="present")
GPU_TOLERATION = Toleration(key="nvidia.com/gpu", operator="Exists")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The programs under test; a planted bug is another one in its place."""

    agent: Callable[[AgentDependencies], Agent] = Agent
    controller: Callable[..., Reconciler] = Reconciler


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one schedule came to. *broken* is empty when all held."""

    seed: int
    steps: int
    trace: str
    """A hash of everything that happened."""
    broken: str
    log: tuple[str, ...] = ()
    restarts: int = 0


class SkewedClock:
    """The clock of one program: its own offset from the true time."""

    def __init__(self, true: ManualClock, offset: timedelta) -> None:
        self._true = true
        self._offset = offset

    def now(self) -> datetime:
        """The time as this program sees it."""
        return self._true.now() + self._offset

    async def sleep(self, delay: timedelta) -> None:
        """Nothing sleeps here."""
        raise AssertionError("an actor of the simulation slept")


class Simulation:
    """One world, made from *seed*."""

    def __init__(self, seed: int, parts: Parts = Parts(), *, keep_log: bool = False) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.clock = ManualClock()
        self.parts = parts
        self._keep_log = keep_log
        self._log: list[str] = []
        self.config = _config(self.dice)
        self._embedded = in_memory(self.clock)
        self.ground_truth = GroundTruth(self._embedded, "person", self._notify)
        self.machines = Machines(self.ground_truth, self.dice)
        self.trainers = Trainers(self.machines, self.dice)
        self.watchdog = Watchdog(self.machines, self.trainers.stores, self.config)
        self.luck = _luck(self.dice)
        self.unreadable: set[str] = set()
        self.informers: list[StaleCache] = []
        others = random.Random(f"{seed} on a cluster")
        self.on_cluster = others.random() < 0.4
        """A world like a real cluster (`tests.simulation.kubernetes`); the others are like one machine."""
        self.free_scheduler = self.on_cluster and others.random() < 0.5
        self.others = others
        """Dice for what happens on clusters only."""
        self.people = random.Random(f"{seed} people")
        """Dice for what people do, in the worlds where they do anything."""
        self.is_visited = self.people.random() < 0.4
        self.versions = random.Random(f"{seed} versions")
        """Dice for the versions of programs, in the worlds where an update rolls."""
        self.is_updating = self.versions.random() < 0.2
        self.readings = random.Random(f"{seed} readings")
        """Dice for what probes show, in the worlds where agents have any."""
        self.doubts = random.Random(f"{seed} doubts")
        """Dice for checkpoints that hold and do not load, in the worlds where there are any."""
        self.is_doubtful = self.doubts.random() < 0.2
        self.site = random.Random(f"{seed} maintenance")
        """Dice for planned maintenance, in the worlds where there is any."""
        self.is_maintained = self.site.random() < 0.3
        self.uneven = random.Random(f"{seed} uneven")
        """Dice for ranks that make their gangs slow, in the worlds where there are any."""
        self.is_uneven = self.uneven.random() < 0.3
        self.slow: dict[str, Straggler] = {}
        """By uid of the Job: what agents show."""
        self.stores = random.Random(f"{seed} stores")
        """Dice for when stores answer."""
        self.store_speed = self.stores.choice([0.95, 0.7, 0.2])
        """How often one answers before anything else happens."""
        self._lives: dict[str, Reconciler] = {}
        self.instruments: dict[str, SimulatedReadings] = {}
        self.rules: dict[str, tuple[Rule, ...]] = {}
        """By node: those that its instruments have something to read for."""
        self.shadow: tuple[str, ...] = self.readings.choice([(), (), ("nvml-gpu-lost",), ("ib-*",)])
        self.last_words = LastWords()
        self.lost_nodes: dict[str, Node] = {}
        self.clocks: dict[str, timedelta] = {}
        """By controller: how far the clock of its machine is ahead, where somebody set it."""
        self.lost_slots = False
        """Somebody deleted slots of the budget."""
        self.worlds: dict[str, int] = {}
        self._make_world()
        if self.readings.random() < 0.4:
            self._make_instruments()
        self.agents = {name: self._agent(name) for name in self.machines.all}
        leaders = 2 if self.dice.random() < 0.4 else 1
        self.controllers = [self._controller(f"controller-{number}") for number in range(leaders)]
        self.watchdog.controllers = leaders
        self.job_controller = Actor("job-controller", self._job_controller)
        self.steps = 0
        self._world: dict[type[Slim], list[Any]] = {}
        self._world_at = -1
        self._late_lines: dict[str, datetime] = {}
        """By node: when its kernel tells of a fault that others see already."""
        self._asleep: dict[str, int] = {}
        """By actor: the step at which it goes on."""

    def run(self, steps: int) -> Outcome:
        """Take *steps* unlucky steps, then heal; every step is checked."""
        broken = ""
        try:
            self._set_off()
            for _ in range(steps):
                self._step()
            self._heal()
            if len(self.worlds) == 1 and self.seed % 4 == 0:
                self._prove_alive()
        except Broken as error:
            broken = str(error)
            self.note(broken)
        finally:
            self._embedded.close()
        log = tuple(self._log) if self._keep_log else ()
        return Outcome(self.seed, self.steps, trace_of(self._log), broken, log, len(self.watchdog.restarts))

    def note(self, what: str) -> None:
        """Write down what happened."""
        line = f"{(self.clock.now() - START).total_seconds():9.1f} {what}"
        self._log.append(line)

    # The world -------------------------------------------------------------------------------------------------------

    def _make_world(self) -> None:
        worlds = [2, 2] if self.dice.random() < 0.3 else [self.dice.choice([2, 3])]
        spares = self.dice.choice([0, 1, 1, 2])
        spares = max(spares, int(self.is_uneven))  # else no gang can leave the node of a slow rank
        idle = int(self.is_visited)
        for number in range(sum(worlds) + spares + idle):
            name = f"node-{number}"
            is_spare = sum(worlds) <= number < sum(worlds) + spares
            taints = [GPU_TAINT, *([Taint(key=LABEL_SPARE)] if is_spare else [])]
            labels = {"zone": f"zone-{number % 2}"}
            node = a_node(name, spare=is_spare, taints=taints, labels=labels)
            at_once(self.ground_truth.create(node))
            self.machines.add(name).clock_offset = _offset(self.dice)
        for number, world in enumerate(worlds):
            self.worlds[f"train-{number}"] = world
            self.trainers.stores[f"train-{number}"] = Store()
            at_once(self.ground_truth.create(self.new_job(f"train-{number}", world, self.dice)))
        self.pool_size = spares

    def _make_instruments(self) -> None:
        for name in self.machines.all:
            made = self.instruments[name] = SimulatedReadings.roll(self.readings, 4, always=["nvml-gpu-lost"])
            names = {dial.name for dial in made.dials()}
            rules = [rule for rule in known_rules().values() if rule.reads in names]
            self.rules[name] = tuple(rules)
            self.watchdog.conducts[name] = FindingInvariants(name, [rule.name for rule in rules], self.shadow)

    def new_job(self, name: str, world: int, dice: random.Random) -> Job:
        """A gang as its user writes it."""
        options = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": f"/checkpoints/{name}"}
        if dice.random() < 0.2:
            options |= {"healthd.dev/min-nodes": "1", "healthd.dev/grow-back": "enabled"}
        job = a_job(name, ranks=world, backoff_limit=1_000_000, annotations=options)
        template = job.spec.template
        finalizers = [] if self.on_cluster else ["healthd.dev/fence"]
        meta = msgspec.structs.replace(template.metadata, finalizers=finalizers)
        ranks = msgspec.structs.replace(template.spec, tolerations=[GPU_TOLERATION])
        template = msgspec.structs.replace(template, metadata=meta, spec=ranks)
        spec = msgspec.structs.replace(job.spec, template=template)
        return msgspec.structs.replace(job, spec=spec)

    def _agent(self, name: str) -> Actor:
        cluster = FaultyCluster(
            self.ground_truth.seen_by(f"agent {name}"), self.luck, lambda what: self.note(f"{name} {what}")
        )
        invariants_of_findings = self.watchdog.conducts.get(name)

        def live() -> Callable[[], Coroutine[Any, Any, Any]]:
            machine = self.machines.all[name]
            clock = SkewedClock(self.clock, machine.clock_offset)
            if invariants_of_findings is not None:
                invariants_of_findings.begin_life()
            used = version_of(self.versions, cluster) if self.is_updating else cluster
            agent = self.parts.agent(
                AgentDependencies(
                    node=NodeFacts(name=name, boot_id=machine.boot_id),
                    cluster=SeesRepairs(used, invariants_of_findings, clock.now) if invariants_of_findings else used,
                    clock=clock,
                    judge=JudgePolicy(shadow=self.shadow),
                    rules=self.rules.get(name, ()),
                    metrics=METRICS,
                    jitter=self.readings.random,
                    quarantine=self.config.quarantine,
                )
            )
            rereads = self.dice.random() < 0.3
            loaded = False

            async def sample() -> None:
                nonlocal loaded, rereads
                if not loaded:
                    await agent.load(clock.now())
                    loaded = True
                if invariants_of_findings is not None:
                    invariants_of_findings.show(agent, self._looks(name, clock.now()), clock.now())
                agent.state.set_log_readable(name not in self.unreadable)
                if name not in self.unreadable:
                    first = (
                        0
                        if rereads or agent.state.cursor.boot_id != machine.boot_id
                        else agent.state.cursor.sequence + 1
                    )
                    rereads = False
                    agent.state.ingest_records(
                        RecordBatch(records=machine.records[first:], last_sequence=len(machine.records) - 1),
                        clock.now(),
                    )
                    if invariants_of_findings is not None:
                        invariants_of_findings.kernel_reported(agent.state.findings)
                if self.on_cluster:
                    agent.state.ingest_pods(processes_on(machine), clock.now())
                await agent.cycle(clock.now())
                if invariants_of_findings is not None:
                    invariants_of_findings.stands(agent.state.findings)
                    invariants_of_findings.check_repair(agent.state.findings, clock.now())

            return sample

        return Actor(f"agent {name}", live)

    def _looks(self, name: str, now: datetime) -> list[Sample]:
        """What the probes of a node show; of broken hardware sooner or later than the kernel tells of it."""
        shown = self.instruments[name]
        if self.machines.all[name].broken and self.readings.random() < 0.7:
            shown.show_lost_gpu()
        sources = [source for source in sorted(shown.sources) if self.luck.is_out or self.readings.random() < 0.8]
        return list(shown.samples(now, sources))

    def _controller(self, name: str) -> Actor:
        view = self.ground_truth.seen_by(name)
        cluster = FaultyCluster(view, self.luck, lambda what: self.note(f"{name} {what}"))

        def live() -> Callable[[], Coroutine[Any, Any, Any]]:
            clock = SkewedClock(self.clock, _offset(self.dice) + self.clocks.get(name, timedelta(0)))
            informer, feed = StaleCache(view), Feed(view, self.last_words) if self.on_cluster else None
            dependencies = ReconcilerDependencies(
                cluster=version_of(self.versions, cluster) if self.is_updating else cluster,
                clock=clock,
                adapters=ADAPTERS,
                checkpoints=OvertakenCheckpoints(self.trainers.stores),
                metrics=METRICS,
                informer=informer,
                slow_ranks=partial(slow_ranks.shown, self),
            )
            controller = self.parts.controller(
                dependencies, self.config, cluster_state=feed.cluster_state if feed else None
            )

            async def sample() -> None:
                informer.refresh(self.dice, 1.0 if self.luck.is_out else 0.7)
                if feed is not None:
                    feed.catch_up(self.others, 1.0 if self.luck.is_out else 0.7)
                await controller.reconcile_all(clock.now())

            self._lives[name] = controller
            return sample

        actor = Actor(name, live)
        actor.beside = self._reads(actor)
        return actor

    def _reads(self, actor: Actor) -> Actor:
        """What a controller reads in the background, one read after the other."""

        def live() -> Callable[[], Coroutine[Any, Any, Any]]:
            controller = self._lives[actor.name]

            async def read() -> None:
                for each in controller.reads.begin():
                    await controller.reads.take(each)

            return read

        return Actor(f"{actor.name}'s reads", live)

    def _job_controller(self) -> Callable[[], Coroutine[Any, Any, Any]]:
        letters = "bcdfghjklmnpqrstvwxz2456789"
        view = self.ground_truth.seen_by("job-controller")
        jobs = JobController(
            self.ground_truth.seen_by("job-controller", Unplaced) if self.free_scheduler else view,
            new_suffix=lambda: "".join(self.dice.choice(letters) for _ in range(5)),
            free_port=lambda: 29500,
        )
        return lambda: jobs.cycle(self.clock.now())

    # Steps -----------------------------------------------------------------------------------------------------------

    def _set_off(self) -> None:
        """Let the gangs start and save a checkpoint or two, most of the time."""
        for _ in range(3):
            self.go(self.job_controller)
            self.machines.work(self.clock.now())
        for _ in range(self.dice.choice([0, 2, 4])):
            self.pass_time(timedelta(seconds=20))
            self.go(self.controllers[0])

    def _step(self) -> None:
        self.steps += 1
        roll = self.dice.random()
        if roll < 0.14:
            fault_injection.strike(self)
        elif roll < 0.45:
            self._go_controller(self.dice.choice(self.controllers))
        elif roll < 0.65:
            self.go(self._some_agent())
        elif roll < 0.82:
            self.go(self.job_controller)
        if self.on_cluster and self.others.random() < 0.08:
            kubernetes.strike(self)
        if self.is_visited and self.people.random() < 0.15:
            random_actions.interfere(self)
        if self.is_maintained and self.site.random() < 0.08:
            maintenance.change(self)
        if self.is_uneven and self.uneven.random() < 0.08:
            slow_ranks.change(self)
        if self.is_doubtful and self.doubts.random() < 0.06:
            fault_injection.spoil_checkpoint(self)
        if self.stores.random() < 0.1:
            self._go_reads(self.stores.choice(self.controllers))
        if self.instruments and self.readings.random() < 0.3:
            self._strike_readings(self.readings.choice(sorted(self.instruments)))
        self.pass_time(timedelta(seconds=self._jump()))
        self.check()

    def _strike_readings(self, name: str) -> None:
        if self.readings.random() < 0.9:
            self.note(f"* {name}: {strike(self.instruments[name], self.readings)}")
            return
        self.note(f"* {name} loses a GPU, and its kernel takes its time to say so")
        self.machines.all[name].broken = True
        self.instruments[name].show_lost_gpu()
        self._late_lines[name] = self.clock.now() + timedelta(seconds=self.readings.choice([5, 60, 300]))

    def _write_late_lines(self, now: datetime) -> None:
        for name in [name for name, due in self._late_lines.items() if due <= now]:
            del self._late_lines[name]
            if self.machines.all[name].broken:
                fault_injection.break_node(self, name)

    def _some_agent(self) -> Actor:
        """Those with something to do are woken by it, and come first more often than not."""
        hot = [n for n in self.machines.all if self.machines.all[n].broken or self.machines.all[n].records]
        names = hot if hot and self.dice.random() < 0.7 else list(self.agents)
        return self.agents[self.dice.choice(names)]

    def _jump(self) -> float:
        roll = self.dice.random()
        if roll < 0.5:
            return self.dice.random() * 2
        return self.dice.random() * 15 if roll < 0.97 else self.dice.random() * 300

    def pass_time(self, delta: timedelta) -> None:
        """Time goes by: processes end, kubelets look after their pods, gangs make steps."""
        self.clock.advance(delta)
        now = self.clock.now()
        self._write_late_lines(now)
        self.trainers.work(self.world()[Job], now)
        begun = len(self.machines.started)
        self.machines.work(now)
        if len(self.machines.started) > begun:  # a program begins with its ranks, however much time passes next
            self.trainers.work(self.world()[Job], now)

    def go(self, actor: Actor) -> None:
        if self._asleep.get(actor.name, 0) > self.steps and not self.luck.is_out:
            return  # its machine stands still in the middle of a round
        try:
            how = actor.go(self.luck.pauses)
        except (ClusterError, OSError) as error:
            how = f"failed: {type(error).__name__}"
        if how == "paused" and self.dice.random() < 0.3:
            self._asleep[actor.name] = self.steps + self.dice.randrange(5, 40)
        self.note(f"{actor.name} {how}")

    def _go_controller(self, actor: Actor) -> None:
        """And on, as far as its stores answer at once."""
        self.go(actor)
        while self.luck.is_out or self.stores.random() < self.store_speed:
            life = self._lives.get(actor.name)
            if actor.is_under_way or life is None or not (life.reads._waiting or self._is_reading(actor)):
                return
            self._go_reads(actor)
            self.go(actor)

    def _go_reads(self, actor: Actor) -> None:
        if actor.beside is not None and actor.lives:
            self.go(actor.beside)

    def _is_reading(self, actor: Actor) -> bool:
        return actor.beside is not None and actor.beside.is_under_way

    def _notify(self, seen: Write | Listing) -> None:
        if isinstance(seen, Listing):
            self.watchdog(seen)
            return
        meta = (seen.after or seen.before).metadata
        self.note(f"    {seen.by} wrote {seen.kind.__name__} {meta.name} {_reported(seen)}")
        self.last_words(seen)
        self.watchdog(seen)
        has_changed = seen.kind in (Node, NodeHealth) and seen.by.startswith("agent")
        if has_changed or (seen.kind is Job and self.clocks):
            self._find_reasons()  # a controller may act on it before this step is over

    def check(self) -> None:
        """What must hold at every moment."""
        self._find_reasons()
        self.watchdog.check(self.world())

    def world(self) -> dict[type[Slim], list[Any]]:
        """The true state of everything; read again only after a write."""
        if self._world_at != self.watchdog.writes:
            self._world = self.ground_truth.world(WATCHED)
            self._world_at = self.watchdog.writes
        return self._world

    def _find_reasons(self) -> None:
        """Note which attempts something happened to."""
        world = self.world()
        jobs, pods = world[Job], world[Pod]
        nodes = {n.metadata.name: n for n in world[Node]}
        unhealthy = {h.metadata.name for h in world[NodeHealth] if h.status.verdict is Verdict.UNHEALTHY}
        for job in jobs:
            name, attempt = job.metadata.name, int(job.metadata.annotations.get("healthd.dev/attempt", "0"))
            if job.spec.suspend or (name, attempt) in self.watchdog.disturbed:
                continue
            mine = [p for p in pods if root_of(p) == job.metadata.uid]
            if job.metadata.uid in self.slow and self.watchdog.may_swap(job):
                self.watchdog.disturbed.add((name, attempt))
            if self._is_judged_by_wrong_clocks(job) or self.watchdog.may_grow(job):
                self.watchdog.disturbed.add((name, attempt))
            now_running = [p for p in mine if int(p.metadata.annotations.get("healthd.dev/attempt", "0")) == attempt]
            for pod in now_running:
                node = nodes.get(pod.spec.node_name)
                out = node is not None and (
                    ANNOTATION_QUARANTINE in node.metadata.annotations
                    or self.machines.all[node.metadata.name].broken
                    or (bool(self.instruments) and node.metadata.name in unhealthy)
                    or self.watchdog.faulted_at.get(node.metadata.name, START)
                    > self.watchdog.repaired_at.get(node.metadata.name, START)
                )
                ended = pod.status.phase == "Failed" or pod.metadata.deletion_timestamp is not None
                began = job.status.start_time or pod.metadata.creation_timestamp or START  # a pod may be made anew
                is_late = self.clock.now() - began >= self._start_deadline(job) - CLOCKS_DIFFER
                ended = ended or (pod.status.phase == "Pending" and is_late)
                gone = bool(pod.spec.node_name) and node is None
                said = node is not None and (kubernetes.is_bad_for_others(node) or maintenance.is_announced(node))
                if (out or ended or gone or said or self._is_silent(job)) and not is_surplus(pod, job):
                    self.watchdog.disturbed.add((name, attempt))

    def _start_deadline(self, job: Job) -> timedelta:
        """A gang that was stopped to grow back waits for its members for a third of the time."""
        mine = [each for each in self.world()[Recovery] if each.spec.gang.uid == job.metadata.uid]
        planned = any(each.status.phase is Phase.STARTING and grows_back(each) for each in mine)
        return self.config.recovery.start_deadline / (3 if planned else 1)

    def _is_judged_by_wrong_clocks(self, job: Job) -> bool:
        """
        It starts or runs, and the clock of a controller was set by hours: to that one, deadlines that another set are
        long over. It may be started once more for that.
        """
        recoveries = [each for each in self.world()[Recovery] if each.spec.gang.uid == job.metadata.uid]
        starts = any(each.status.phase is Phase.STARTING for each in recoveries)
        return bool(self.clocks) and (starts or self.config.hang.enabled)

    def _is_silent(self, job: Job) -> bool:
        """It has really made no step for as long as a hang takes at least."""
        last = self.trainers.last_step_at.get(job.metadata.name, START)
        since = max(last, job.status.start_time or START)
        return self.config.hang.enabled and self.clock.now() - since >= self.config.hang.floor - CLOCKS_DIFFER

    # The end ---------------------------------------------------------------------------------------------------------

    def _heal(self) -> None:
        """No more faults, everything repaired: within bounded rounds every gang is where it belongs."""
        if self.lost_slots:
            deletions.prove_slots_are_held(self)
        fault_injection.repair_everything(self)
        if self.is_maintained:
            maintenance.end(self)
        self.note("--- healing")
        self._converge()
        self._let_gangs_grow()
        self._let_gangs_move()
        self._let_gangs_leave_slow_nodes()

    def _converge(self) -> None:
        strides, trouble = self._strides(), ""
        while True:
            fault_injection.take_back_cordons(self)
            fault_injection.repair_what_does_not_end(self)
            if self.is_visited:
                gang_edits.put_right(self)
            if self.on_cluster or self.watchdog.lost_recoveries:
                answer_for_old_pods(self.ground_truth, self.machines)
            for agent in self.agents.values():
                self.go(agent)
            for controller in self.controllers:
                self._go_controller(controller)
            self.go(self.job_controller)
            stride = next(strides, None)
            if stride is None:
                raise Broken(f"liveness: {trouble}")
            self.pass_time(stride)
            self.check()
            trouble = unsettled(self)
            if not trouble:
                return

    def _strides(self) -> Iterator[timedelta]:
        """
        Seconds at first, then minutes. Then hours, where readings must have been good for long enough; but minutes
        after each start of a gang: in hours without a step it would seem to hang.
        """
        minutes = [timedelta(minutes=1)] * (HEALING_ROUNDS + (ROUNDS_IN_DOUBT if self.is_doubtful else 0) - 20)
        starts = len(self.watchdog.restarts)
        yield from [timedelta(seconds=5)] * 20 + minutes
        for _ in range(WAITING_ROUNDS if self.instruments else 0):
            while len(self.watchdog.restarts) > starts:
                starts = len(self.watchdog.restarts)
                yield from minutes
            yield timedelta(hours=1)

    def _let_gangs_grow(self) -> None:
        """What healthd had made smaller gets the time to grow back; where it does, it comes to rest again."""
        for _ in range(GROWING_ROUNDS):
            if not any(self.watchdog.may_grow(job) for job in self.world()[Job]):
                break
            for controller in self.controllers:
                self._go_controller(controller)
            self.go(self.job_controller)
            self.pass_time(timedelta(seconds=20))
            self.check()
        self._converge()

    def _let_gangs_move(self) -> None:
        """The maintenance of a node with a rank is announced, and controllers die while its gang leaves it."""
        ranks = [rank for gang in self.worlds for rank in self.machines.processes(gang)]
        if not self.is_maintained or not ranks:
            return
        maintenance.announce(self, self.site.choice(ranks).node)
        for _ in range(GROWING_ROUNDS):
            for controller in self.controllers:
                if self.site.random() < 0.1:
                    controller.crash()
                self._go_controller(controller)
            self.go(self.job_controller)
            self.pass_time(timedelta(seconds=20))
            self.check()
        maintenance.end(self)
        self._converge()

    def _let_gangs_leave_slow_nodes(self) -> None:
        """A rank of each gang has been slow for long, some users allow to swap it, and controllers die meanwhile."""
        if not self.is_uneven:
            return
        slow_ranks.end_all(self)
        self._converge()
        self.pass_time(timedelta(minutes=1))
        self.check()
        slow_ranks.begin_all(self)
        for _ in range(GROWING_ROUNDS):
            for agent in self.agents.values():  # a spare whose agent is silent is none
                self.go(agent)
            for controller in self.controllers:
                if self.uneven.random() < 0.1:
                    controller.crash()
                self._go_controller(controller)
            self.go(self.job_controller)
            self.pass_time(timedelta(seconds=20))
            self.check()
        slow_ranks.end_all(self)
        self._converge()

    def _prove_alive(self) -> None:
        """After all that has happened one more fault still leads to one more restart."""
        (gang,) = self.worlds
        self._let_agents_finish()
        ranks = self.machines.processes(gang)
        if not ranks or gang in self.watchdog.stopped_by_user | self.watchdog.deleted_by_user:
            return
        self.note("--- one more fault")
        restarts = len(self.watchdog.restarts)
        fault_injection.break_node(self, ranks[0].node)
        self.check()
        for _ in range(3):
            self.go(self.agents[ranks[0].node])
            for controller in self.controllers:
                self._go_controller(controller)
            self.go(self.job_controller)
            self.pass_time(timedelta(seconds=40))
            self.check()
        fault_injection.repair_everything(self)
        self._converge()
        more = len(self.watchdog.unplanned(self.watchdog.restarts[restarts:]))
        newest = self.trainers.stores[gang].newest_whole()
        if newest is None and more == 0:
            return  # a start that was interrupted tore its only checkpoint: rightly held
        if self.is_doubtful and more:
            return  # the newest may not load
        if more != 1:
            raise Broken(f"invariant 4: one more fault led to {more} restarts")

    def _let_agents_finish(self) -> None:
        """What a dial showed before the healing may need one more sample before an agent believes it."""
        restarts = -1
        while restarts != len(self.watchdog.restarts):
            restarts = len(self.watchdog.restarts)
            self.pass_time(self.config.breaker.window)
            self.check()
            self._converge()


def trace_of(log: Iterable[str]) -> str:
    """A hash of everything that happened."""
    return hashlib.sha256("".join(log).encode()).hexdigest()[:16]


def run(seed: int, steps: int | None = None, parts: Parts | None = None, *, keep_log: bool = False) -> Outcome:
    """One schedule; its length follows from the seed, too, unless *steps* is given."""
    length = steps or random.Random(seed).choice([30, 45, 60, 80])
    with uncollected():
        return Simulation(seed, parts or Parts(), keep_log=keep_log).run(length)


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles while a schedule runs: it lasts a tenth of a second, and its memory is small."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _config(dice: random.Random) -> Config:
    quarantine = QuarantinePolicy(
        budget=dice.choice([1, 2, 2, 3]),
        per_domain=dice.choice([0, 0, 1]),
        domain_label="zone",
        namespace="healthd-system",
    )
    breaker = BreakerPolicy(restarts=dice.choice([2, 10, 10]))
    recovery = RecoveryPolicy(
        confirm_after=timedelta(minutes=2),
        grow_after=timedelta(minutes=1),
        grow_every=timedelta(minutes=5),
        swap_every=timedelta(minutes=10),
    )
    return Config(
        quarantine=quarantine,
        recovery=recovery,
        breaker=breaker,
        hang=HangPolicy(enabled=dice.random() < 0.3),
        foreign=ForeignPolicy(rows=(maintenance.ROW,)),
    )


def _luck(dice: random.Random) -> FaultDice:
    return FaultDice(
        dice,
        per_write=dice.choice([0, 0.05, 0.15, 0.3]),
        per_read=dice.choice([0, 0, 0.02]),
        per_turn=dice.choice([0, 0, 0.03, 0.1, 0.3]),
    )


def _offset(dice: random.Random) -> timedelta:
    return timedelta(seconds=dice.choice([0, 0, -2, 2, 20]))


def _reported(write: Write) -> str:
    """The part of an object that a reader of a trace wants to see."""
    obj = write.after
    if obj is None:
        return "gone"
    if write.before is None:
        return "made"
    if isinstance(obj, Recovery):
        return f"{obj.status.phase}: {obj.status.message}"
    if isinstance(obj, Job):
        return f"suspend={obj.spec.suspend} {obj.metadata.annotations.get(ANNOTATION_STOPPED_BY, '')}"
    if isinstance(obj, Pod):
        return f"{obj.spec.node_name} {obj.status.phase} deleted={obj.metadata.deletion_timestamp is not None}"
    if isinstance(obj, Node):
        return f"unschedulable={obj.spec.unschedulable} {sorted(t.key for t in obj.spec.taints)}"
    return ""


__all__ = ["METRICS", "NotFound", "Outcome", "Parts", "Simulation"]
