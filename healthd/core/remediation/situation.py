"""The input of every phase of a node's life (NodeSituation), and its output (Decision)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec.structs import replace

from healthd.core.api import MachineHistory, Node, NodeHealth
from healthd.core.api.model import Finding
from healthd.core.api.names import ANNOTATION_REPAIRED
from healthd.core.api.remediations import (
    MOST_ATTEMPTS,
    NodePhase,
    NodeRemediationStatus,
    Rung,
    RungAttempt,
    RungOutcome,
)
from healthd.core.config.remediation import RemediationPolicy
from healthd.core.node.budget import SlotSet
from healthd.core.node.quarantine import Record, read_record
from healthd.core.printable import printable
from healthd.core.remediation.actions import Action

WEEK = timedelta(days=7)
LONGEST_MESSAGE = 1024
"""Characters of a message. Parts of it come from nodes and from other controllers, and a record keeps many."""
_DEFAULT = RemediationPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do about one node now. *recheck* is the delay after which time alone may change the decision."""

    record: NodeRemediationStatus | None = None
    action: Action | None = None
    reason: str
    recheck: timedelta | None = None

    @property
    def waits(self) -> bool:
        """There is nothing to write and nothing to do now."""
        return self.record is None and self.action is None


def bounded(message: str) -> str:
    """*message* as it is recorded: safe on a terminal, and not longer than `LONGEST_MESSAGE`."""
    return printable(message[:LONGEST_MESSAGE])[:LONGEST_MESSAGE]


class CheckState(StrEnum):
    """How the check that was begun last stands."""

    ABSENT = "absent"
    """Its pod does not exist."""
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    UNCHECKED = "unchecked"
    """Nothing could be tried out, which is no pass, and says nothing of the rung either."""
    BUSY = "busy"
    """Somebody computes on the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSeen:
    """What is seen of check number *check* of attempt number *attempt*."""

    attempt: int = 0
    check: int = 0
    state: CheckState = CheckState.ABSENT
    began: datetime | None = None
    """When its pod was created, which is before it began on the node."""
    boot_id: str = ""
    """The boot in which it ran."""
    why: str = ""
    is_finding: bool = False
    """It failed, and the check itself says what is wrong with the node: it was not evicted, refused, or lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """Whether and how healthd can check a node itself."""

    gpus: int = 0
    """How many GPUs must answer. 0: it cannot check the node."""
    lacks: str = ""
    """What keeps healthd from checking this node, where it would check others."""
    waits_for: str = ""
    """What the node must come up with before a check can start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLeftover:
    """The pod of a check that is over, or that nothing waits for any more."""

    name: str
    uid: str
    has_ended: bool
    """Its containers have ended."""
    is_going: bool
    """It is being deleted."""


_NO_CHECK = CheckSeen()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSeen:
    """What is seen of the request of attempt number *attempt*."""

    attempt: int
    claims_done: bool = False
    """The other controller says that it did what was asked."""
    failed: str = ""
    """Why it failed, by the other controller."""
    is_prepared: bool = False
    """Only what comes before it is there, labels of the Node: the hand was not asked yet, or its object is gone."""
    holds_node: bool = False
    """Labels of the Node keep something off it, as long as the request stands."""

    @property
    def has_ended(self) -> bool:
        """The hand does nothing more for it."""
        return self.claims_done or bool(self.failed) or self.is_prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class Hand:
    """A hand that works in this cluster, as far as the core needs to know it."""

    name: str
    rung: Rung
    timeout: timedelta
    claim_is_proof: bool = False
    """Nothing but the other controller's condition shows that it was done. The check tells whether that is true."""


class PersonsWord(StrEnum):
    """What a person wants for a node."""

    NOTHING = ""
    OFF = "off"
    """healthd leaves the node alone."""
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSituation:
    """One node, everything that matters to its life, and the time."""

    name: str
    status: NodeRemediationStatus
    node: Node | None
    """None: the cluster has no such Node."""
    health: NodeHealth | None = None
    history: MachineHistory | None = None
    occupants: tuple[str, ...] = ()
    """Pods that run on it and are neither of a DaemonSet nor healthd's own check, as `namespace/name`."""
    hands: tuple[Hand, ...] = ()
    """The hands of which the cluster has what they need, in the order of preference."""
    requests: tuple[RequestSeen, ...] = ()
    """Requests of this node that are in the cluster."""
    check: CheckSeen = _NO_CHECK
    check_waits_for: str = ""
    """What the node must come up with before a check can start."""
    check_lacks: str = ""
    """Why healthd cannot check this node itself, where it checks others."""
    check_leftovers: tuple[CheckLeftover, ...] = ()
    other_remediator: str = ""
    """Another remediator that owns the node, in words; empty: none."""
    word: PersonsWord = PersonsWord.NOTHING
    retry_at: datetime | None = None
    """When a person last asked for a further try."""
    slot_sets: tuple[SlotSet, ...] = ()
    slots_held: frozenset[str] = field(default_factory=frozenset)
    policy: RemediationPolicy = _DEFAULT
    can_check: bool = True
    """Whether healthd itself can check the node. Without it a person does, and says so."""
    now: datetime
    quarantine: Record | None = field(init=False)
    """healthd's quarantine of the node."""

    def __post_init__(self) -> None:
        """Read the annotation once: every phase asks for it."""
        object.__setattr__(self, "quarantine", read_record(self.node) if self.node is not None else None)

    @property
    def standing(self) -> list[Finding]:
        """The findings that keep the node out of service."""
        findings = self.health.status.findings if self.health is not None else []
        return [each for each in findings if each.quarantines and each.cleared_at is None and not each.shadow]

    @property
    def is_reported(self) -> bool:
        """Whether the agent has reported since the quarantine began. Both stamps are by its clock."""
        report = self.health.status if self.health is not None else None
        if self.quarantine is None or report is None:
            return False
        is_in_it = any(each.id == self.quarantine.finding and each.cleared_at is None for each in report.findings)
        return is_in_it or (report.seen_at is not None and report.seen_at > self.quarantine.since)

    @property
    def is_declared(self) -> bool:
        """Whether the Node is declared repaired since the check that passed."""
        checked_at = self.status.checked_at
        notes = self.node.metadata.annotations if self.node is not None else {}
        return checked_at is not None and notes.get(ANNOTATION_REPAIRED, "") == checked_at.isoformat()

    @property
    def boot_ids(self) -> tuple[str, ...]:
        """The boots that the kubelet and the agent report. After a boot one of the two reports first."""
        kubelets = self.node.status.node_info.boot_id if self.node is not None else ""
        agents = self.health.status.boot_id if self.health is not None else ""
        return tuple(boot for boot in (kubelets, agents) if boot)

    @property
    def machine(self) -> str:
        """The UUID of the machine that has the node's name now."""
        return self.node.status.node_info.system_uuid.lower() if self.node is not None else ""

    @property
    def attempt(self) -> RungAttempt | None:
        """The attempt that goes on."""
        last = self.status.attempts[-1] if self.status.attempts else None
        return last if last is not None and last.outcome is None else None

    @property
    def forgiven_now(self) -> datetime:
        """
        The end of what does not count any more, from now on: the newest attempt. The present time would take in the
        attempts to come, where the clock of another controller is behind.
        """
        return max((each.at for each in self.status.attempts), default=self.now)

    @property
    def next_at(self) -> datetime:
        """When an attempt that is decided now began: after all earlier ones, whatever the clock says."""
        earlier = [*(each.at for each in self.status.attempts), *filter(None, [self.status.forgiven_at])]
        return max([self.now, *(at + timedelta(microseconds=1) for at in earlier)])

    @property
    def holds_slots(self) -> bool:
        """Whether every limit counts the node. Without any limit nothing may begin."""
        return bool(self.slot_sets) and all(each.held(self.slots_held) for each in self.slot_sets)

    def enter(self, phase: NodePhase, message: str, **changes: object) -> Decision:
        """Record that *phase* begins, with *changes* to the status."""
        message = bounded(message)
        status = replace(self.status, phase=phase, phase_since=self.now, message=message, **changes)
        return Decision(record=status, reason=f"{phase}: {message}")

    def wait(self, message: str, recheck: timedelta | None = None) -> Decision:
        """Stay in the phase; what it waits for is recorded once."""
        message = bounded(message)
        if message == self.status.message:
            return Decision(reason=message, recheck=recheck)
        return Decision(record=replace(self.status, message=message), reason=message)

    def amended(self, **changes: object) -> list[RungAttempt]:
        """The attempts, with *changes* to the last, if there is one."""
        earlier, last = self.status.attempts[:-1], self.status.attempts[-1:]
        return [*earlier, *(replace(each, **changes) for each in last)][-MOST_ATTEMPTS:]

    def ended(self, outcome: RungOutcome, message: str) -> list[RungAttempt]:
        """The attempts, of which the last ends now."""
        return self.amended(outcome=outcome, ended_at=self.now, message=bounded(message))
