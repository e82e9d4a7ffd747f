"""
The actions that the life of a node can ask for. Each is idempotent, and each is refused when its node changed since.

Every write to the Node has its uid and its resource version as preconditions, so a decision that was made on an older
Node changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from healthd.core.api.remediations import RungAttempt


@dataclass(frozen=True, slots=True)
class TakeSlots:
    """Create the Leases with these names. Where one exists for another node, give back the others."""

    names: tuple[tuple[str, ...], ...]
    """For each limit the names of which one is needed, in order of preference."""


@dataclass(frozen=True, slots=True)
class FreeSlots:
    """Delete the slots of this node."""


@dataclass(frozen=True, slots=True)
class Request:
    """Write what the hand of *attempt* writes, on condition that the node is still quarantined and empty."""

    attempt: RungAttempt


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Remove what the hand of *attempt* wrote."""

    attempt: RungAttempt


@dataclass(frozen=True, slots=True)
class StartCheck:
    """Create the pod that checks the node. Its name follows from the attempt and the number of the check."""

    attempt: int
    check: int


@dataclass(frozen=True, slots=True)
class DeleteCheck:
    """Delete the pod of a check that is over. Its result is on record, or nothing waits for it any more."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Declare the node repaired since *checked_at*, and mark it as on probation, in one write."""

    checked_at: datetime


@dataclass(frozen=True, slots=True)
class EndProbation:
    """Take the mark of the probation off the node."""


Action = TakeSlots | FreeSlots | Request | Withdraw | StartCheck | DeleteCheck | GiveBack | EndProbation
