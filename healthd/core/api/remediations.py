"""`NodeRemediation`: the life of one node after a fault: what was tried on it, by which hand, and what came of it."""

from __future__ import annotations

from enum import StrEnum

from healthd.core.api.meta import ObjectMeta, Slim
from healthd.core.untrusted import Moment

MOST_ATTEMPTS = 64
"""Attempts that one remediation keeps, the newest. Far more than any limit of a week."""


class NodePhase(StrEnum):
    """The phase of a node's life."""

    IN_SERVICE = "InService"
    QUARANTINED = "Quarantined"
    """Out of service. Pods may still run on it, and nothing is done to it."""
    DRAINED = "Drained"
    """Nothing runs on it. The next rung is chosen here."""
    REMEDIATING = "Remediating"
    """A rung was recorded, and its hand is at work."""
    CHECKING = "Checking"
    """A check runs on the node."""
    PROBATION = "Probation"
    """It passed the check and is given back. A fault now is a relapse."""
    AWAITING_PERSON = "AwaitingPerson"
    RETIRED = "Retired"
    """A person took it out for good."""


class Rung(StrEnum):
    """What can be done to a node, the mildest first."""

    NONE = "none"
    """Nothing but a check."""
    RESTART_DAEMON = "restart_daemon"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    POWER_CYCLE = "power_cycle"
    REPLACE = "replace"
    PERSON = "person"


class RungOutcome(StrEnum):
    """How an attempt ended."""

    HELPED = "helped"
    """The check passed after it."""
    NO_HELP = "no_help"
    """It was done, and the check failed after it."""
    FAILED = "failed"
    """Its hand said that it failed."""
    TIMED_OUT = "timed_out"
    """There was no proof in time that it was done."""
    WITHDRAWN = "withdrawn"
    """A person or another remediator took over, or a pod came before the hand began."""


class ReturnedBy(StrEnum):
    """What brought a node back into service."""

    CHECK = "check"
    """healthd checked it, and its agent gave it back."""
    PERSON = "person"
    """Its quarantine ended without healthd's check."""
    REPLACEMENT = "replacement"
    """Another machine has its name."""


class RungAttempt(Slim, frozen=True, kw_only=True):
    """One rung that was tried. It is recorded before its hand writes anything."""

    number: int
    """
    It names what the hand creates, so to write twice is to write once. It rises, and no node has it twice, even after
    this record was deleted: it is the time in seconds, or one more than the one before.
    """
    fault: str
    """The fault that it is for: when the quarantine began, and the finding."""
    rung: Rung
    hand: str = ""
    """The hand that does it; empty: nothing is done but the check."""
    why: str = ""
    """Why this rung, for a person."""
    at: Moment
    """When it was decided."""
    timeout_s: float = 0
    """For how long its hand may take, in seconds."""
    boot_ids: list[str] = []
    """The boots that kubelet and agent reported when it began: another boot is proof of a reboot."""
    machine: str = ""
    """The machine, by its own UUID: another machine is proof of a replacement."""
    node_uid: str = ""
    """The Node object: another one is proof of a replacement where the machine has no UUID."""
    written_at: Moment | None = None
    """When the request of the hand was first seen in the cluster; absent: not yet."""
    proven_at: Moment | None = None
    """When there was proof that it was done."""
    proof: str = ""
    """The proof, for a person."""
    check: int = 0
    """How many checks were begun after it."""
    check_since: Moment | None = None
    """When the last one was begun."""
    ended_at: Moment | None = None
    """When it ended."""
    outcome: RungOutcome | None = None
    """Absent while it goes on."""
    message: str = ""
    """What came of it, for a person."""


class SpareCheckOutcome(StrEnum):
    """How a check of an idle spare ended."""

    PASSED = "passed"
    FAILED = "failed"
    """The check itself said what is wrong."""
    UNCHECKED = "unchecked"
    """Nothing was learned of the node: its pod did not start, did not end, or could not try anything."""
    YIELDED = "yielded"
    """It was ended for something that comes first, such as a recovery that takes the spare."""


class SpareCheck(Slim, frozen=True, kw_only=True):
    """A check of an idle spare. It is recorded before its pod is made."""

    number: int
    """
    It names the pod, so to create it twice is to create it once. Of two checks in the cluster the later one has the
    larger number, whatever the clocks say.
    """
    at: Moment
    """When it was decided."""
    node_uid: str
    """The Node object that is checked. What was found on another one of the same name says nothing of this one."""
    machine: str = ""
    """The machine, by its own UUID."""
    outcome: SpareCheckOutcome | None = None
    """Absent while it goes on."""
    ended_at: Moment | None = None
    """When it ended."""
    message: str = ""
    """What came of it, for a person."""
    taken_out_at: Moment | None = None
    """When it was decided that the node may not be used as a spare, because this check failed."""
    reported_at: Moment | None = None
    """When its agent had reported that as a finding. From then on the node is out of service as for any other fault."""
    passed_number: int = 0
    """The last check that this Node passed: this one, or one before it. 0: none."""
    passed_at: Moment | None = None
    """When that check began."""
    passed_boot: str = ""
    """The boot in which that was."""


class NodeRemediationStatus(Slim, frozen=True, kw_only=True):
    """The state of a node's life. Each intent is recorded here before the act."""

    phase: NodePhase = NodePhase.IN_SERVICE
    """Where the life of the node stands."""
    phase_since: Moment | None = None
    """When the phase began."""
    message: str = ""
    """Why it is in this phase, or what it waits for, for a person."""
    machine: str = ""
    """The machine that all this is about, by its own UUID; empty: it has none."""
    fault: str = ""
    """The fault that is dealt with: when the quarantine began, and the finding. Empty in service."""
    least: Rung = Rung.NONE
    """The lowest rung that is tried for this fault: after a relapse the one above what had helped."""
    attempts: list[RungAttempt] = []
    """The newest, oldest first."""
    relapses: int = 0
    """Faults that came during the probation after the one before."""
    checked_at: Moment | None = None
    """When the check that allows its return began. A fault after it is not forgotten."""
    checked_boot: str = ""
    """The boot on which that check ran."""
    returned_at: Moment | None = None
    """When its quarantine was seen to be gone, after the check."""
    probation_until: Moment | None = None
    """When the watch over it ends."""
    forgiven_at: Moment | None = None
    """Attempts up to this time do not count: a person asked for a further try, or another machine came."""
    spare_check: SpareCheck | None = None
    """The newest check of the node as an idle spare."""


class NodeRemediation(Slim, frozen=True, kw_only=True):
    """healthd.dev/v1alpha1, in healthd's own namespace, named as its node. Only the controller writes it."""

    metadata: ObjectMeta
    status: NodeRemediationStatus = NodeRemediationStatus()
    """Everything: what is asked for is what the Node and the configuration say."""
