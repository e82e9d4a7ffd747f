"""What Kubernetes Events say of a recovery that does not get on: the last refusal in its present phase."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from healthd.core.api import Occurrence, Recovery
from healthd.core.api.model import ENDED
from healthd.core.printable import printable

REASONS = frozenset({"Stuck", "GangStuck", "FailedCreate"})
"""The controller of healthd reports the first two; those that make pods (Job, StatefulSet, JobSet) report the last."""


def refusal_of(recovery: Recovery, events: Iterable[Occurrence]) -> str:
    """What was refused last, and when, since *recovery* is in its phase; empty where nothing was, or it has ended."""
    status = recovery.status
    if status.phase in ENDED or status.phase_since is None:
        return ""
    uids = {recovery.metadata.uid, recovery.spec.gang.uid}
    seen = [(_at(event), event.message) for event in events if _is_refusal(event, uids)]
    in_phase = [(at, message) for at, message in seen if at is not None and at >= status.phase_since]
    if not in_phase:
        return ""
    at, message = max(in_phase)
    return printable(f"at {at:%H:%M:%S} UTC: {message}")


def _is_refusal(event: Occurrence, uids: set[str]) -> bool:
    return event.reason in REASONS and event.involved_object.uid in uids


def _at(event: Occurrence) -> datetime | None:
    return event.last_timestamp or event.first_timestamp or event.metadata.creation_timestamp
