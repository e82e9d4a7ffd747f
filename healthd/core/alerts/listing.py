"""The incidents as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from healthd.core.api import Delivery, IncidentRecord
from healthd.core.api.incidents import Severity
from healthd.core.report.explain_text import duration


class Order(NamedTuple):
    """Which incidents are listed. *namespace* empty: of all."""

    namespace: str = ""
    with_resolved: bool = False


class IncidentRow(NamedTuple):
    """One incident, in words."""

    severity: str
    opened: str
    state: str
    title: str
    services: str


def in_order(records: Iterable[IncidentRecord], order: Order) -> list[IncidentRecord]:
    """
    Those that are asked for: open ones first, pages before notices, the newest first. One that is over and of which a
    service lacks the newest message is not over for its people.
    """
    chosen = [
        each
        for each in records
        if (order.with_resolved or each.spec.resolved is None or _lacks_a_message(each))
        and (not order.namespace or each.spec.namespace == order.namespace)
    ]
    newest = sorted(chosen, key=lambda each: each.spec.opened, reverse=True)
    return sorted(newest, key=lambda each: (each.spec.resolved is not None, each.spec.severity is not Severity.PAGE))


def _lacks_a_message(record: IncidentRecord) -> bool:
    newest = record.spec.revision
    begun = [each for each in record.status.deliveries.values() if each.revision or each.attempts or each.dead]
    return any(each.revision < newest for each in begun)


def rows_of(records: Iterable[IncidentRecord], now: datetime) -> Iterator[IncidentRow]:
    """The rows of the table."""
    for record in records:
        incident = record.spec
        services = sorted(record.status.deliveries.items())
        yield IncidentRow(
            severity=incident.severity.value,
            opened=f"{incident.opened:%Y-%m-%d %H:%M:%S}",
            state=f"resolved {_ago(incident.resolved, now)}" if incident.resolved is not None else "open",
            title=incident.title,
            services="; ".join(f"{name}: {_said(each, incident.revision, now)}" for name, each in services) or "-",
        )


def _said(delivery: Delivery, revision: int, now: datetime) -> str:
    """What one service has: `accepted`, `accepted an earlier state`, `not sent (503)`, `given up (400)`."""
    if delivery.revision >= revision:
        return delivery.answer
    earlier = f", {delivery.answer} an earlier state" if delivery.revision else ""
    if delivery.dead >= revision:
        return f"given up ({delivery.error}){earlier}"
    if delivery.attempts:
        since = f", first {_ago(delivery.since, now)}" if delivery.since is not None else ""
        return f"not sent ({delivery.error}), {delivery.attempts} attempts{since}{earlier}"
    if delivery.dead > delivery.revision:
        return f"an earlier state given up ({delivery.error}){earlier}"
    return f"{delivery.answer} an earlier state" if delivery.revision else "not sent yet"


def _ago(moment: datetime, now: datetime) -> str:
    return f"{duration(max(0.0, (now - moment).total_seconds() * 1000))} ago"
