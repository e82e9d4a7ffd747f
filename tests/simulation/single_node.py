"""
One node over hours and days: its real agent, readings that go bad and good, its kernel's log, people who repair.

Where a schedule of the whole cluster has minutes, this one has the time that findings take to end. There is no
controller. The invariants are those of readings (`tests.simulation.finding_invariants`) and of nodes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.cluster.port import ClusterError
from healthd.core.api import ANNOTATION_QUARANTINE, ANNOTATION_REPAIRED, Node, NodeHealth
from healthd.core.config import Config, JudgePolicy, QuarantinePolicy
from healthd.core.diagnosis.readings import RecordBatch, Sample
from healthd.core.diagnosis.signals.tables import known_rules
from tests.builders import a_node
from tests.fakes import START, ManualClock
from tests.simulation.faulty_cluster import FaultDice, FaultyCluster
from tests.simulation.finding_invariants import FindingInvariants, SeesRepairs
from tests.simulation.ground_truth import GroundTruth, Listing, Write
from tests.simulation.invariants import WATCHED, Broken, Watchdog, expect
from tests.simulation.machines import PCI, Machines
from tests.simulation.memory_store import in_memory
from tests.simulation.simulated_readings import SimulatedReadings, strike
from tests.simulation.simulation import METRICS, Outcome, Parts, SkewedClock, trace_of, uncollected
from tests.simulation.step_scheduler import Actor, at_once

NAME = "node-0"
_OTHERS = [kind for kind in WATCHED if kind is not Node]
AWAKE = timedelta(hours=1)
SET_RIGHT = timedelta(hours=3)
"""Longer than any clock is ahead: what was stamped by it is in the past for everybody."""
LONGEST_REST = 120
"""Rounds of an hour: longer than anything waits that ends by itself."""
_XID = f"NVRM: Xid (PCI:{PCI[:-2]}): "
LINES = {
    "nvml-gpu-lost": (_XID + "79, pid=1234, name=python, GPU has fallen off the bus.",),
    "nvml-ecc-uncorrected": (_XID + "48, pid=1234, name=python, DBE (double bit error)",),
    "nvml-xid-48": (_XID + "48, pid=1234, name=python, DBE (double bit error)",),
    "nvml-xid-119": (
        _XID + "119, pid=1234, name=python, Timeout after 6s of waiting for RPC response from GPU0 GSP!",
        _XID + "120, pid=1234, name=python, GSP task exception",
    ),
    "nvml-row-remap-failure": (_XID + "64, pid=1234, name=python, Row Remapper Error",),
    "nvml-wants-reset": (
        _XID + "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        _XID + "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
    ),
    "nvml-pcie-fatal": (f"pcieport {PCI}: AER: Uncorrected (Fatal) error received: {PCI}",),
}
"""What the kernel may say of the same fault as a rule."""
FAULT = re.compile(r"Xid .*: (48|64|79|119|120),")


class SingleNode:
    """One schedule, made from *seed*."""

    def __init__(self, seed: int, parts: Parts, *, keep_log: bool = False) -> None:
        self.seed = seed
        self.dice = random.Random(f"{seed} at the bedside")
        self.clock = ManualClock()
        self._parts = parts
        self._keep_log = keep_log
        self._log: list[str] = []
        self._luck = FaultDice(
            self.dice, per_write=self.dice.choice([0, 0, 0.1]), per_read=self.dice.choice([0, 0, 0.05])
        )
        self._embedded = in_memory(self.clock)
        self.ground_truth = GroundTruth(self._embedded, "person", self._notify)
        self.machines = Machines(self.ground_truth, self.dice)
        self.machine = self.machines.add(NAME)
        self._kernel_rule = self.dice.choice(sorted(LINES))
        self.instruments = SimulatedReadings.roll(self.dice, 4, always=[self._kernel_rule])
        names = {dial.name for dial in self.instruments.dials()}
        self.rules = tuple(rule for rule in known_rules().values() if rule.reads in names)
        rules = [rule.name for rule in self.rules]
        self.shadow = tuple(self.dice.sample(rules, 1)) if self.dice.random() < 0.3 else ()
        self.config = Config(quarantine=QuarantinePolicy(budget=1))
        self.watchdog = Watchdog(self.machines, {}, self.config)
        self.invariants_of_findings = self.watchdog.conducts[NAME] = FindingInvariants(NAME, rules, self.shadow)
        self.ahead = timedelta(seconds=self.dice.choice([0, 0, 300, 7500]))
        """By how much the machine's clock is ahead, until it is set right."""
        self._fault: Any = None
        """When the kernel reported a fault, since the last repair and boot, that no agent has heard of."""
        self.actor = Actor(f"agent {NAME}", self._live)
        self.steps = 0
        at_once(self.ground_truth.create(a_node(NAME)))

    def run(self, steps: int) -> Outcome:
        """Take *steps* unlucky steps, then let everything be good."""
        broken = ""
        try:
            for _ in range(steps):
                self._step()
            self._converge()
        except Broken as error:
            broken = str(error)
            self.note(broken)
        finally:
            self._embedded.close()
        return Outcome(self.seed, self.steps, trace_of(self._log), broken, tuple(self._log) if self._keep_log else ())

    def note(self, what: str) -> None:
        """Write down what happened."""
        line = f"{(self.clock.now() - START).total_seconds():9.1f} {what}"
        self._log.append(line)

    # Steps -----------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        self.steps += 1
        roll = self.dice.random()
        if roll < 0.45:
            self.note(f"* {strike(self.instruments, self.dice)}")
        elif roll < 0.53:
            self._write_to_log()
        elif roll < 0.57:
            self._repair()
        elif roll < 0.61:
            self.note("* the agent dies")
            self.actor.crash()
        elif roll < 0.63:
            self._reboot()
        elif roll < 0.66:
            later = self.ahead - timedelta(seconds=self.dice.choice([5, 120, 7200]))
            self.ahead = max(min(self.ahead, timedelta(0)), later)  # one that is behind stays so
            self.note(f"* the clock is set back, and still {self.ahead} ahead")
        elif roll < 0.69:
            self._set_clock()
        for _ in range(self.dice.choice([1, 1, 3])):
            self.clock.advance(timedelta(seconds=self._jump()))
            self._round()

    def _jump(self) -> float:
        most = self.dice.choice([2, 2, 2, 30, 60, 60, 600, 600, 4000])
        return most * (0.1 + 0.9 * self.dice.random())

    def _set_clock(self) -> None:
        self._set_clock_ahead(timedelta(seconds=self.dice.choice([-90000, -7200, -300, 0, 300, 7500])))

    def _set_clock_ahead(self, ahead: timedelta) -> None:
        """A process that begins then goes by it."""
        later, self.ahead = ahead - self.ahead, ahead
        self.invariants_of_findings.clock_was_set()
        self.machine.restamp(later)
        self._fault = None if self._fault is None else self._fault + later
        if NAME in self.watchdog.faulted_at:
            self.watchdog.faulted_at[NAME] += later
        self.actor.crash()
        self.note(f"* the clock is set, {ahead.total_seconds():g} s ahead")

    def _write_to_log(self) -> None:
        text = self.dice.choice(LINES[self._kernel_rule])
        record = self.machine.write_to_log(text, self._now())
        self.watchdog.faulted(NAME, record.at)
        if FAULT.search(text) and self._knows_repair():
            self._fault = record.at
        self.note(f"* the kernel says {text}")

    def _knows_repair(self) -> bool:
        """The last repair is on record, with the moment from which it counts."""
        node = at_once(self.ground_truth.get(Node, NAME))
        stamp = node.metadata.annotations.get(ANNOTATION_REPAIRED)
        reports = at_once(self.ground_truth.list(NodeHealth)).items
        seen = reports[0].status.repair_seen if reports else None
        return stamp is None or (seen is not None and seen.stamp.isoformat() == stamp and seen.at != self._now())

    def _repair(self) -> None:
        """Said by a person whose clock is right, at once or a while after he was done."""
        late = self.dice.choice([0, 0, 0, 90, 900])
        stamp = max(self.clock.now() - timedelta(seconds=late), self.watchdog.repaired_at.get(NAME, START))
        self._annotate_repaired(stamp)

    def _annotate_repaired(self, stamp: Any) -> None:
        self._fault = None
        self.watchdog.repaired(NAME, stamp)
        at_once(
            self.ground_truth.patch(Node, NAME, {"metadata": {"annotations": {ANNOTATION_REPAIRED: stamp.isoformat()}}})
        )
        self.note(f"* repaired at {stamp}")

    def _reboot(self) -> None:
        self.note("* reboot")
        self._fault = None
        self.machines.reboot(NAME)
        self.actor.crash()

    def _round(self) -> None:
        try:
            how = self.actor.go(self._luck.pauses)
        except ClusterError as error:
            how = f"failed: {type(error).__name__}"
        self.note(how)
        node = at_once(self.ground_truth.get(Node, NAME))
        self._check_world(node)

    def _check_world(self, node: Node) -> None:
        self.watchdog.check({**{kind: [] for kind in _OTHERS}, Node: [node]})

    # The agent -------------------------------------------------------------------------------------------------------

    def _live(self) -> Callable[[], Coroutine[Any, Any, Any]]:
        view = self.ground_truth.seen_by(f"agent {NAME}")
        cluster = SeesRepairs(FaultyCluster(view, self._luck, self.note), self.invariants_of_findings, self._now)
        clock = BackwardClock(self.clock, self)
        agent = self._parts.agent(
            AgentDependencies(
                node=NodeFacts(name=NAME, boot_id=self.machine.boot_id),
                cluster=cluster,
                clock=clock,
                judge=JudgePolicy(shadow=self.shadow),
                rules=self.rules,
                metrics=METRICS,
                jitter=self.dice.random,
                quarantine=self.config.quarantine,
            )
        )
        self.invariants_of_findings.begin_life()
        is_loaded = False

        async def sample() -> None:
            nonlocal is_loaded
            if not is_loaded:
                await agent.load(clock.now())
                is_loaded = True
                self.invariants_of_findings.stands(agent.state.findings)
            self._show(agent)
            await agent.cycle(clock.now())
            self.invariants_of_findings.stands(agent.state.findings)
            self.invariants_of_findings.check_repair(agent.state.findings, clock.now())

        return sample

    def _show(self, agent: Agent) -> None:
        """What the probes and the kernel have, in any order."""
        now = self._now()
        sources = [
            source for source in sorted(self.instruments.sources) if self._luck.is_out or self.dice.random() < 0.85
        ]
        self.dice.shuffle(sources)
        kernel_first = self.dice.random() < 0.5
        if kernel_first:
            self._log_to_kernel(agent)
        for sample, ground_truth in self.instruments.samples_and_ground_truth(now, sources):
            before = agent.state.findings
            agent.state.ingest_sample(sample, now)
            self._note_change(before, agent.state.findings)
            self.invariants_of_findings.looked(sample, before, agent.state.findings, now, ground_truth)
            if self.dice.random() < 0.2:
                self._show_again(agent, sample)
        if not kernel_first:
            self._log_to_kernel(agent)

    def _show_again(self, agent: Agent, sample: Sample) -> None:
        before = agent.state.findings
        agent.state.ingest_sample(sample, self._now())
        expect(
            14,
            list(before) == list(agent.state.findings),
            f"the same sample of {sample.source} again changed a finding",
        )

    def _log_to_kernel(self, agent: Agent) -> None:
        first = agent.state.cursor.sequence + 1 if agent.state.cursor.boot_id == self.machine.boot_id else 0
        records = self.machine.records
        agent.state.ingest_records(RecordBatch(records=records[first:], last_sequence=len(records) - 1), self._now())
        self.invariants_of_findings.kernel_reported(agent.state.findings)
        if self._fault is not None:
            # Heard only after a clock that was set back had caught up: as if it came before a repair. An agent hears
            # within a second, and a clock that is behind the repair tells it.
            repairs = [self.watchdog.repaired_at.get(NAME, START), *(one.cleared_at for one in agent.state.findings)]
            read_late = any(at is not None and self._fault <= at <= self._now() for at in repairs)
            stands = read_late or any(
                one.cleared_at is None and one.last_at >= self._fault for one in agent.state.findings
            )
            self._fault = None
            expect(14, stands, f"{NAME}: the kernel reported a fault after the last repair, and nothing stands")

    def _now(self) -> Any:
        return self.clock.now() + self.ahead

    def _note_change(self, before: Any, after: Any) -> None:
        if self._keep_log and before != after:
            self.note(f"    {[(f.id, f.also, f.parts, f.count, f.cleared_by) for f in after]}")

    def _notify(self, seen: Write | Listing) -> None:
        if isinstance(seen, Write):
            self.note(f"    {seen.by} wrote {seen.kind.__name__}")
        self.watchdog(seen)

    # The end ---------------------------------------------------------------------------------------------------------

    def _converge(self) -> None:
        """Everything is good from now on: what can end by itself does, the rest after a repair."""
        self._luck.is_out = True
        self.instruments.heal()
        self.note("--- all is good")
        self._rest(lambda finding: self.invariants_of_findings.ends_by_itself(finding))
        self._set_clock_ahead(timedelta(0))
        self.clock.advance(SET_RIGHT)
        self._annotate_repaired(self.clock.now())
        self._rest(lambda finding: True)
        node = at_once(self.ground_truth.get(Node, NAME))
        if ANNOTATION_QUARANTINE in node.metadata.annotations:
            raise Broken(f"invariant 14: {NAME} is out of service, and nothing is wrong with it")

    def _rest(self, must_end: Callable[[Any], bool]) -> None:
        """Until nothing stands that *must_end*, and the node's own state follows from what is left."""
        left: list[Any] = []
        for number in range(LONGEST_REST):
            self.clock.advance(timedelta(minutes=1) if number < 10 else AWAKE)
            self._round()
            standing = [
                f for f in at_once(self.ground_truth.get(NodeHealth, NAME)).status.findings if f.cleared_at is None
            ]
            node = at_once(self.ground_truth.get(Node, NAME))
            left = [finding.id for finding in standing if must_end(finding)]
            is_out = ANNOTATION_QUARANTINE in node.metadata.annotations
            if number and not left and is_out == any(finding.quarantines for finding in standing):
                return
        raise Broken(f"invariant 14: {left} never ended, or the node does not follow")


class BackwardClock(SkewedClock):
    """The machine's clock, which somebody sets back now and then."""

    def __init__(self, true: ManualClock, single_node: SingleNode) -> None:
        super().__init__(true, timedelta(0))
        self._single_node = single_node

    def now(self) -> Any:
        """As late as it seems."""
        return super().now() + self._single_node.ahead


def run(seed: int, steps: int | None = None, parts: Parts | None = None, *, keep_log: bool = False) -> Outcome:
    """One schedule; its length follows from the seed, unless *steps* is given."""
    length = steps or random.Random(seed).choice([20, 40, 80])
    with uncollected():
        return SingleNode(seed, parts or Parts(), keep_log=keep_log).run(length)
