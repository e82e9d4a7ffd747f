"""
What is sent next to an alert service, and what its answer changes in the record.

At least once, in the order of revisions, the newest revision only. All follows from the stored incidents and the stored
record of what each service has accepted, so after a crash nothing is lost; a message whose answer was not recorded is
sent again under the same key. A note "I am about to send this" before each message would not prevent that: after a
crash it leaves open whether the message went out, and a page must not be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.alerts.pacing import Pace, retry_delay
from healthd.core.alerts.routing import wants
from healthd.core.api.incidents import LONGEST_ERROR, Delivery, Incident, Severity
from healthd.core.backoff import Jitter
from healthd.core.config import AlertsPolicy, SinkPolicy
from healthd.core.printable import printable

NOTHING = Delivery()
"""The record of a service that has nothing of an incident."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What to send to one service now. *later* is when to ask again, if nothing else happens."""

    alone: tuple[Incident, ...] = ()
    """Each in a message of its own."""
    digest: tuple[Incident, ...] = ()
    """All of them in one message: there are more than the service takes."""
    later: datetime | None = None


def due_at(
    sink: SinkPolicy,
    incident: Incident,
    delivery: Delivery,
    policy: AlertsPolicy,
    *,
    resend_at: datetime | None = None,
) -> datetime | None:
    """
    From when on the newest revision of *incident* is to be sent to *sink*; None when there is nothing to send.

    *resend_at* is when a service that forgets must have the incident again.
    """
    if max(delivery.revision, delivery.dead) >= incident.revision:
        is_kept = incident.resolved is None and delivery.revision == incident.revision
        return resend_at if is_kept else None
    if not wants(sink, incident, delivery):
        return None
    if delivery.next_try is not None:
        return delivery.next_try
    if delivery.at is None or incident.resolved is not None or incident.severity is not delivery.severity:
        return incident.updated
    return delivery.at + policy.update_after


def next_batch(pace: Pace, due: Iterable[Incident], now: datetime, most: int, *, apart: Collection[str] = ()) -> Batch:
    """
    What to send of the incidents that are *due*, at most *most* messages at once. Pages come first, then the oldest.

    When there are more than the rate allows, all of them go into one digest: who reads it sees everything now, instead
    of the last one minutes later. Not while one of those *apart* waits, by key, whose digest the service refused.
    """
    waiting = sorted(due, key=lambda each: (each.severity is not Severity.PAGE, each.opened, each.key))
    if not waiting:
        return Batch()
    allowed = pace.allowed(now)
    if allowed < 1:
        return Batch(later=pace.next_at(now))
    if len(waiting) > allowed and not any(each.key in apart for each in waiting):
        return Batch(digest=tuple(waiting))
    return Batch(alone=tuple(waiting[: min(most, allowed)]))


def accepted(incident: Incident, before: Delivery, answer: str, thread: str, now: datetime) -> Delivery:
    """The record after a service took this revision of *incident*."""
    return Delivery(
        revision=max(before.revision, incident.revision),
        severity=incident.severity,
        answer=answer,
        at=now,
        thread=(thread or before.thread)[:LONGEST_ERROR],
        dead=before.dead,
    )


def failed(
    incident: Incident,
    before: Delivery,
    error: str,
    policy: AlertsPolicy,
    now: datetime,
    jitter: Jitter,
    retry_after: float | None = None,
) -> Delivery:
    """The record after an attempt that failed: when to try again, or that this revision is given up."""
    since = before.since or now
    after = replace(before, attempts=before.attempts + 1, since=since, error=_short(error))
    if after.attempts >= policy.tries or now - since >= policy.give_up_after:
        return _dead(incident, after)
    return replace(after, next_try=now + retry_delay(before.attempts, jitter, retry_after))


def refused(incident: Incident, before: Delivery, error: str, now: datetime) -> Delivery:
    """The record after a service said that it will never take this revision."""
    since = before.since or now
    return _dead(incident, replace(before, attempts=before.attempts + 1, since=since, error=_short(error)))


def _dead(incident: Incident, record: Delivery) -> Delivery:
    """The next revision is a new message, with all its attempts."""
    return replace(record, dead=incident.revision, attempts=0, since=None, next_try=None)


def is_worth_a_write(before: Delivery, after: Delivery) -> bool:
    """
    Whether the record must be stored now. Of failures the first, the second, the fourth, … are: an outage of a service
    would else be as many writes as attempts, and a controller that starts again may well try once more.
    """
    if (before.revision, before.dead, before.answer) != (after.revision, after.dead, after.answer):
        return True
    return after.attempts & (after.attempts - 1) == 0 or not after.attempts


def is_settled(incident: Incident, delivery: Callable[[str], Delivery], sinks: Iterable[SinkPolicy]) -> bool:
    """Whether *incident* is over and every service has that, or will not get it."""
    if incident.resolved is None:
        return False
    return all(_has_all(sink, incident, delivery(sink.name)) for sink in sinks)


def _has_all(sink: SinkPolicy, incident: Incident, delivery: Delivery) -> bool:
    newest = max(delivery.revision, delivery.dead)
    return newest >= incident.revision or not wants(sink, incident, delivery)


def oldest_waiting(
    incidents: Iterable[tuple[Incident, Delivery]], sink: SinkPolicy, now: datetime
) -> tuple[int, timedelta]:
    """How many incidents wait for *sink*, and for how long the oldest does."""
    ages = [now - each.updated for each, delivery in incidents if not _has_all(sink, each, delivery)]
    return len(ages), max([timedelta(0), *ages])


def _short(error: str) -> str:
    return printable(error)[:LONGEST_ERROR]
