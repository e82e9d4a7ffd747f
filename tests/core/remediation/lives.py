"""
A small world of nodes whose lives are drawn from a seed, and the invariants that hold in it.

Nodes break, and need a rung of the ladder to mend. Hands help, do nothing, lie, fail or are slow. Two controllers act
on what they see, which may be old; each may be killed between two steps. People and another remediator take nodes over.
The agents end a quarantine when its node was declared repaired after the last fault, as the real ones do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from healthd.core.api import (
    ANNOTATION_QUARANTINE,
    ANNOTATION_REPAIRED,
    Node,
    NodeHealth,
    NodeHealthStatus,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    ObjectMeta,
)
from healthd.core.api.model import Blame, Finding, RepairAction, Severity
from healthd.core.api.names import LABEL_PROBATION
from healthd.core.api.remediations import NodePhase, NodeRemediationStatus, Rung, RungAttempt, RungOutcome
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.quarantine import Record
from healthd.core.remediation.actions import (
    Action,
    EndProbation,
    FreeSlots,
    GiveBack,
    Request,
    StartCheck,
    TakeSlots,
    Withdraw,
)
from healthd.core.remediation.decide import decide
from healthd.core.remediation.ladder import LADDER, height
from healthd.core.remediation.limits import remediation_slots
from healthd.core.remediation.situation import (
    WEEK,
    CheckSeen,
    CheckState,
    Decision,
    Hand,
    NodeSituation,
    PersonsWord,
    RequestSeen,
)
from tests.fakes import START

MINUTE = timedelta(minutes=1)
DOMAIN = "rack"
ACTIONS = (
    RepairAction.NONE,
    RepairAction.RESET_GPU,
    RepairAction.REBOOT_NODE,
    RepairAction.CONTACT_SUPPORT,
    RepairAction.INSPECT,
)
BEHAVIOURS = ("helps", "helps", "helps", "does nothing", "lies", "fails", "slow", "takes its request away")
STEPS = 120
Decide = Callable[[NodeSituation], Decision]


class Broken(AssertionError):
    """An invariant does not hold."""


@dataclass
class Asked:
    """A request of a hand, as it is in the cluster."""

    attempt: RungAttempt
    behaviour: str
    due: datetime
    claims_done: bool = False
    failed: str = ""
    is_acted_on: bool = False


@dataclass
class SimulatedCheck:
    """A pod that checks a node."""

    attempt: int
    number: int
    began: datetime
    boot_id: str
    due: datetime
    state: CheckState = CheckState.RUNNING


@dataclass
class SimulatedNode:
    """One node and what is true of it, whatever is recorded."""

    name: str
    rack: str
    boots: int = 1
    machine: int = 1
    version: int = 0
    needs: Rung | None = None
    """The rung that mends it; None: it is well."""
    finding: Finding | None = None
    quarantine: Record | None = None
    is_uncordoned: bool = False
    repaired: str = ""
    is_on_probation: bool = False
    occupants: tuple[str, ...] = ()
    word: PersonsWord = PersonsWord.NOTHING
    word_at: datetime | None = None
    retry_at: datetime | None = None
    other: str = ""
    asked: dict[int, Asked] = field(default_factory=dict)
    checks: dict[tuple[int, int], SimulatedCheck] = field(default_factory=dict)
    status: NodeRemediationStatus = field(default_factory=NodeRemediationStatus)
    status_version: int = 0
    person_released: bool = False
    made: tuple[int, Node] | None = None
    tried: list[RungAttempt] = field(default_factory=list)
    """Every attempt that was ever recorded."""
    forgiven_at: datetime = START
    forgiven_machine: int = 1

    @property
    def boot_id(self) -> str:
        return f"boot-{self.machine}-{self.boots}"

    def changed(self) -> None:
        """The Node has a new resource version."""
        self.version += 1

    def as_node(self) -> Node:
        """The Node object, made once for each version."""
        if self.made is None or self.made[0] != self.version:
            self.made = (self.version, self._made())
        return self.made[1]

    def _made(self) -> Node:
        notes = {ANNOTATION_REPAIRED: self.repaired} if self.repaired else {}
        if self.quarantine is not None:
            notes[ANNOTATION_QUARANTINE] = json.dumps(
                {"finding": self.quarantine.finding, "message": "broken", "since": self.quarantine.since.isoformat()}
            )
        labels = {DOMAIN: self.rack, **({LABEL_PROBATION: "true"} if self.is_on_probation else {})}
        return Node(
            metadata=ObjectMeta(name=self.name, uid=f"uid-{self.machine}", labels=labels, annotations=notes),
            spec=NodeSpec(unschedulable=self.quarantine is not None and not self.is_uncordoned),
            status=NodeStatus(node_info=NodeSystemInfo(boot_id=self.boot_id, system_uuid=f"machine-{self.machine}")),
        )

    def as_health(self) -> NodeHealth:
        """What its agent reports."""
        findings = [self.finding] if self.finding is not None else []
        status = NodeHealthStatus(boot_id=self.boot_id, findings=findings)
        return NodeHealth(metadata=ObjectMeta(name=self.name), status=status)


@dataclass
class Controller:
    """One of two. What it saw last may be old: it acts on that, and its writes have preconditions."""

    name: str
    seen: dict[str, tuple[NodeSituation, int, int]] = field(default_factory=dict)


class World:
    """Nodes, hands, slots, controllers, and the checks of every invariant."""

    def __init__(self, seed: int, decide: Decide = decide) -> None:
        self.decide = decide
        self.random = Random(seed)
        self.now = START
        draw = self.random
        self.policy = RemediationPolicy(
            at_once=draw.choice((1, 1, 2, 3)),
            per_domain=draw.choice((0, 1)),
            attempts_per_week=draw.choice((1, 3, 5, 8)),
            check_timeout=20 * MINUTE,
            probation=timedelta(hours=draw.choice((1, 24))),
        )
        self.nodes = {f"n{at}": SimulatedNode(f"n{at}", f"rack-{at % 2}") for at in range(draw.choice((2, 4, 6)))}
        served = [rung for rung in LADDER[1:-1] if draw.random() < 0.7]
        self.hands = tuple(
            Hand(name=f"hand-{rung}", rung=rung, timeout=30 * MINUTE, claim_is_proof=height(rung) < height(Rung.REBOOT))
            for rung in served
        )
        self.slots: dict[str, str] = {}
        self.slot_sets = {
            node.rack: remediation_slots(node.as_node(), self.policy, DOMAIN) for node in self.nodes.values()
        }
        self.controllers = (Controller("a"), Controller("b"))
        self.returned = self.requests = 0
        self.log: list[str] = []

    # What the world does ----------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens: time passes, somebody does something, a controller makes one move."""
        draw = self.random
        self.now += timedelta(seconds=1) + MINUTE * draw.choice((0, 0, 1, 1, 5, 20, 60, 60 * 12))
        for node in self.nodes.values():
            self._hands_work(node)
            self._checks_end(node)
            self._agent(node)
        node = draw.choice(list(self.nodes.values()))
        deeds = (self._breaks, self._person, self._pods, self._other)
        draw.choices((*deeds, lambda _: None), weights=(6, 1, 2, 1, 20))[0](node)
        for node in list(self.nodes.values()):
            node.other = "" if draw.random() < 0.2 else node.other
            node.occupants = () if draw.random() < 0.3 else node.occupants
        for _ in range(draw.choice((2, 6, 16))):
            self._controller_moves(draw.choice(self.controllers))
        self._holds()

    def _breaks(self, node: SimulatedNode) -> None:
        if node.needs is not None:
            return
        node.needs = self.random.choice((Rung.NONE, Rung.RESET_GPU, Rung.REBOOT, Rung.POWER_CYCLE, Rung.REPLACE))
        device, rule = "0000:3b:00.0", f"xid-{self.random.choice((48, 79, 95))}"
        node.finding = Finding(
            id=f"{device}/{rule}",
            device=device,
            rule=rule,
            severity=Severity.FATAL,
            action=self.random.choice(ACTIONS),
            blame=Blame.DEVICE,
            message="broken",
            raised_at=self.now,
            last_at=self.now,
            quarantines=True,
        )

    def _agent(self, node: SimulatedNode) -> None:
        """Quarantines for a finding, and ends the quarantine when the node was declared repaired since."""
        if node.finding is not None and node.quarantine is None:
            node.quarantine = Record(finding=node.finding.id, message="broken", since=self.now)
            node.is_uncordoned = node.person_released = False
            node.changed()
        if node.quarantine is None or not node.repaired:
            return
        last = max([node.quarantine.since, *([node.finding.last_at] if node.finding else [])])
        if datetime.fromisoformat(node.repaired) >= last:
            self._comes_back(node)

    def _comes_back(self, node: SimulatedNode) -> None:
        if not node.person_released:
            self._was_checked(node)
            self.returned += 1
        node.quarantine, node.finding, node.needs = None, None, node.needs
        node.changed()
        if node.needs is not None:  # a repair that mended nothing: it breaks again
            node.needs = None
            self._breaks(node)

    def _person(self, node: SimulatedNode) -> None:
        draw = self.random
        deed = draw.choice(("off", "retire", "nothing", "nothing", "nothing", "retry", "retry", "repaired", "uncordon"))
        if deed in ("off", "retire", "nothing"):
            node.word = PersonsWord("" if deed == "nothing" else deed)
            node.word_at = self.now
        elif deed == "retry":
            node.retry_at = self.now
        elif node.quarantine is not None and deed == "repaired":
            node.person_released, node.repaired = True, self.now.isoformat()
        elif node.quarantine is not None:
            node.is_uncordoned = True
        node.changed()

    def _pods(self, node: SimulatedNode) -> None:
        """Pods come while it is schedulable, and end."""
        schedulable = node.quarantine is None or node.is_uncordoned or self.random.random() < 0.2  # they may tolerate
        node.occupants = () if node.occupants else (("default/train-0",) if schedulable else ())
        node.changed()

    def _other(self, node: SimulatedNode) -> None:
        node.other = "" if node.other else "nvsentinel"
        node.changed()

    def _hands_work(self, node: SimulatedNode) -> None:
        for asked in list(node.asked.values()):
            if asked.is_acted_on or self.now < asked.due:
                continue
            asked.is_acted_on = True
            if asked.behaviour == "fails":
                asked.failed = "the power supply did not answer"
            elif asked.behaviour in ("lies", "helps", "slow", "takes its request away"):
                asked.claims_done = True
            if asked.behaviour in ("helps", "slow", "takes its request away"):
                self._done(node, asked.attempt.rung)
            if asked.behaviour == "takes its request away":
                node.asked.pop(asked.attempt.number, None)

    def _done(self, node: SimulatedNode, rung: Rung) -> None:
        node.occupants = ()
        if height(rung) >= height(Rung.REBOOT):
            node.boots += 1
        if rung is Rung.REPLACE:
            node.machine, node.needs, node.finding, node.quarantine = node.machine + 1, None, None, None
            node.repaired, node.asked, node.is_on_probation = "", {}, False
        elif node.needs is not None and height(rung) >= height(node.needs):
            node.needs = None
        node.changed()

    def _checks_end(self, node: SimulatedNode) -> None:
        for check in node.checks.values():
            if check.state is not CheckState.RUNNING or self.now < check.due:
                continue
            if check.boot_id != node.boot_id:
                check.state = CheckState.FAILED
            elif self.random.random() < 0.05:
                check.state = self.random.choice((CheckState.UNCHECKED, CheckState.BUSY))
            else:
                check.state = CheckState.PASSED if node.needs is None else CheckState.FAILED

    # What a controller does -------------------------------------------------------------------------------------------

    def _controller_moves(self, controller: Controller) -> None:
        """Look, decide, and do it. It may look long before it acts, and it may be killed in between."""
        well = NodePhase.IN_SERVICE
        troubled = [each.name for each in self.nodes.values() if each.quarantine or each.status.phase is not well]
        if not troubled and self.random.random() < 0.8:
            return  # nothing to see
        name = self.random.choice(troubled or list(self.nodes))
        if name not in controller.seen or self.random.random() < 0.85:
            node = self.nodes[name]
            controller.seen[name] = (self._situation(node), node.status_version, node.version)
        if self.random.random() < 0.1:
            return  # killed, or deposed: what it saw is all that is left
        situation, status_version, version = controller.seen[name]
        decision = self.decide(situation)
        node = self.nodes[name]
        if decision.record is not None and decision.action is not None:
            raise Broken("a decision both records and acts")
        if decision.record is not None and status_version == node.status_version:
            self._record(node, decision.record)
        if decision.action is not None:
            self._act(node, decision.action, status_version, version)

    def _situation(self, node: SimulatedNode) -> NodeSituation:
        as_node = node.as_node()
        attempt = node.status.attempts[-1] if node.status.attempts else None
        check = node.checks.get((attempt.number, attempt.check)) if attempt else None
        seen = CheckSeen()
        if check is not None:
            seen = CheckSeen(
                attempt=check.attempt,
                check=check.number,
                state=check.state,
                began=check.began,
                boot_id=check.boot_id,
            )
        return NodeSituation(
            name=node.name,
            status=node.status,
            node=as_node,
            health=node.as_health(),
            occupants=node.occupants,
            hands=self.hands,
            requests=tuple(
                RequestSeen(attempt=each.attempt.number, claims_done=each.claims_done, failed=each.failed)
                for each in node.asked.values()
            ),
            check=seen,
            other_remediator=node.other,
            word=node.word,
            retry_at=node.retry_at,
            slot_sets=self.slot_sets[node.rack],
            slots_held=frozenset(slot for slot, holder in self.slots.items() if holder == node.name),
            policy=self.policy,
            now=self.now,
        )

    def _record(self, node: SimulatedNode, status: NodeRemediationStatus) -> None:
        before, node.status = node.status, status
        node.status_version += 1
        self.log.append(f"{self.now:%d %H:%M} {node.name} {status.phase}: {status.message}")
        if status.forgiven_at != before.forgiven_at:
            self._is_forgiven(node, status)
        known = {(each.number, each.at) for each in node.tried}
        for attempt in status.attempts:
            if (attempt.number, attempt.at) not in known:
                self._attempt_is_allowed(node, attempt)

    def _act(self, node: SimulatedNode, action: Action, status_version: int, version: int) -> None:
        """The preconditions of each write: the record that it follows from, and for the Node its version."""
        self.log.append(f"{self.now:%d %H:%M} {node.name} {type(action).__name__}")
        match action:
            case TakeSlots():
                self._take(node, action)
            case FreeSlots():
                if status_version == node.status_version:
                    self.slots = {slot: holder for slot, holder in self.slots.items() if holder != node.name}
            case Request() if (status_version, version) == (node.status_version, node.version):
                self._ask(node, action.attempt)
            case Withdraw():
                node.asked.pop(action.attempt.number, None)
            case StartCheck() if status_version == node.status_version:
                self._check(node, action)
            case GiveBack() if (status_version, version) == (node.status_version, node.version):
                self._give_back_is_allowed(node)
                node.repaired, node.is_on_probation = action.checked_at.isoformat(), True
                node.changed()
            case EndProbation() if version == node.version:
                node.is_on_probation = False
                node.changed()
            case _:
                pass

    def _take(self, node: SimulatedNode, action: TakeSlots) -> None:
        """Create Leases one by one; a name that exists is refused. Without all of them, give back what was taken."""
        taken: list[str] = []
        for names in action.names:
            mine = next((name for name in names if self.slots.get(name) == node.name), None)
            free = mine or next((name for name in names if name not in self.slots), None)
            if free is None:
                for slot in taken:
                    self.slots.pop(slot)
                return
            if mine is None:
                self.slots[free] = node.name
                taken.append(free)

    def _ask(self, node: SimulatedNode, attempt: RungAttempt) -> None:
        if attempt.number in node.asked:
            return
        self._request_is_allowed(node, attempt)
        self.requests += 1
        behaviour = self.random.choice(BEHAVIOURS)
        due = self.now + MINUTE * (45 if behaviour == "slow" else 5)
        node.asked[attempt.number] = Asked(attempt, behaviour, due)
        node.changed()

    def _check(self, node: SimulatedNode, action: StartCheck) -> None:
        key = (action.attempt, action.check)
        node.checks.setdefault(key, SimulatedCheck(*key, self.now, node.boot_id, self.now + 5 * MINUTE))

    # Invariants -------------------------------------------------------------------------------------------------------

    def _holds(self) -> None:
        """Between any two steps."""
        busy = (NodePhase.REMEDIATING, NodePhase.CHECKING)
        counted = [each for each in self.nodes.values() if each.status.phase in busy]
        if len(counted) > self.policy.at_once:
            raise Broken(f"{[each.name for each in counted]} are under a rung, and {self.policy.at_once} may be")
        racks = [each.rack for each in counted]
        if self.policy.per_domain and any(racks.count(rack) > self.policy.per_domain for rack in racks):
            raise Broken(f"too many of one rack: {racks}")

    def _attempt_is_allowed(self, node: SimulatedNode, attempt: RungAttempt) -> None:
        """By what was really tried, whatever is on record. What came before a person's word does not count."""
        earlier = [each for each in node.tried if each.at > node.forgiven_at]
        if sum(self.now - each.at < WEEK for each in earlier) >= self.policy.attempts_per_week:
            raise Broken(f"{node.name} has more than {self.policy.attempts_per_week} attempts in a week")
        if any(each.fault == attempt.fault and each.rung is attempt.rung for each in earlier):
            raise Broken(f"{node.name}: {attempt.rung} twice for {attempt.fault}")
        node.tried.append(attempt)

    def _is_forgiven(self, node: SimulatedNode, status: NodeRemediationStatus) -> None:
        """Earlier attempts are forgiven by a person since the last one, or on another machine."""
        last = max((each.at for each in node.tried), default=START)
        if node.machine == node.forgiven_machine and (node.retry_at is None or node.retry_at < last):
            raise Broken(f"{node.name}: attempts are forgotten, and no person said so")
        assert status.forgiven_at is not None
        node.forgiven_at, node.forgiven_machine = status.forgiven_at, node.machine

    def _request_is_allowed(self, node: SimulatedNode, attempt: RungAttempt) -> None:
        if node.occupants:
            raise Broken(f"{node.name}: {attempt.rung} while {node.occupants} runs")
        if node.quarantine is None or node.is_uncordoned:
            raise Broken(f"{node.name}: {attempt.rung} on a node in service")
        if node.word is not PersonsWord.NOTHING:
            raise Broken(f"{node.name}: {attempt.rung} against a person's word")
        if node.other:
            raise Broken(f"{node.name}: {attempt.rung} while {node.other} owns it")
        if node.name not in self.slots.values():
            raise Broken(f"{node.name}: {attempt.rung} without a slot")

    def _give_back_is_allowed(self, node: SimulatedNode) -> None:
        if node.word is not PersonsWord.NOTHING:
            raise Broken(f"{node.name} is given back against a person's word")

    def _was_checked(self, node: SimulatedNode) -> None:
        """A check passed on this machine, and no fault came since it began."""
        assert node.quarantine is not None
        passed = [each.began for each in node.checks.values() if each.state is CheckState.PASSED]
        last = max([node.quarantine.since, *([node.finding.last_at] if node.finding else [])])
        if not any(began >= last for began in passed):
            raise Broken(f"{node.name} comes back without a check after its last fault")


@dataclass(frozen=True)
class LivesOutcome:
    """What came of one schedule."""

    seed: int
    broken: str
    returned: int
    requests: int
    log: tuple[str, ...]
    helped: int


def live(seed: int, decide: Decide = decide, steps: int = STEPS) -> LivesOutcome:
    """The lives of the nodes of *seed*. *decide*: another one, to see that the invariants notice."""
    world, broken = World(seed, decide), ""
    try:
        for _ in range(steps):
            world.step()
    except Broken as why:
        broken = str(why)
    attempts = [each for node in world.nodes.values() for each in node.status.attempts]
    helped = sum(each.outcome is RungOutcome.HELPED for each in attempts)
    return LivesOutcome(seed, broken, world.returned, world.requests, tuple(world.log), helped)
