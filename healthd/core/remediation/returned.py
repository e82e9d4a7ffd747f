"""What a step from one record of a node to the next says about its time out of service. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from healthd.core.api.remediations import NodePhase, NodeRemediationStatus, ReturnedBy, RungAttempt

_WATCHED = frozenset({NodePhase.IN_SERVICE, NodePhase.PROBATION})


def attempts_ended(before: NodeRemediationStatus, after: NodeRemediationStatus) -> list[RungAttempt]:
    """The attempts that ended with this step."""
    known = {each.number for each in before.attempts if each.outcome is not None}
    return [each for each in after.attempts if each.outcome is not None and each.number not in known]


def returned_by(before: NodeRemediationStatus, after: NodeRemediationStatus) -> ReturnedBy | None:
    """What brought the node back with this step; None: it did not come back."""
    if before.returned_at is None and after.returned_at is not None:
        return ReturnedBy.CHECK
    if before.phase in _WATCHED or after.phase is not NodePhase.IN_SERVICE:
        return None
    is_other = bool(before.machine) and before.machine != after.machine
    return ReturnedBy.REPLACEMENT if is_other else ReturnedBy.PERSON


def out_of_service(before: NodeRemediationStatus, now: datetime) -> timedelta | None:
    """For how long it was out of service *now*, since its quarantine; None where the record does not say."""
    try:
        since = datetime.fromisoformat(before.fault.partition(" ")[0])
    except ValueError:
        return None
    return max(timedelta(0), now - since) if since.tzinfo is not None else None


def awaits_person_since(status: NodeRemediationStatus) -> datetime | None:
    """Since when a person is waited for: to decide, or to check the node where healthd does not; None: not now."""
    attempt = status.attempts[-1] if status.attempts else None
    is_to_check = status.phase is NodePhase.CHECKING and attempt is not None and not attempt.check
    return status.phase_since if is_to_check or status.phase is NodePhase.AWAITING_PERSON else None
