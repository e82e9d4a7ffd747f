"""What the list says of each service."""

from __future__ import annotations

import pytest

from healthd.core.alerts.listing import Order, in_order, rows_of
from healthd.core.api import Delivery, IncidentRecord, IncidentStatus, ObjectMeta
from tests.core.alerts.problems import an_incident, at


@pytest.mark.parametrize(
    ("delivery", "said"),
    [
        (Delivery(revision=2, answer="delivered"), "chat: delivered"),
        (Delivery(revision=1, answer="accepted"), "chat: accepted an earlier state"),
        (Delivery(attempts=4, error="503", since=at(60)), "chat: not sent (503), 4 attempts, first 1 min 0 s ago"),
        (Delivery(dead=2, error="400"), "chat: given up (400)"),
        (Delivery(dead=1, error="400"), "chat: an earlier state given up (400)"),
        (Delivery(revision=1, answer="accepted", dead=2, error="4"), "chat: given up (4), accepted an earlier state"),
    ],
)  # fmt: skip
def test_it_says_what_a_service_has(delivery: Delivery, said: str) -> None:
    record = IncidentRecord(
        metadata=ObjectMeta(name="x"),
        spec=an_incident(revision=2),
        status=IncidentStatus(deliveries={"chat": delivery}),
    )

    assert next(rows_of([record], at(120))).services == said


@pytest.mark.parametrize(
    ("delivery", "is_listed"),
    [
        (Delivery(dead=2, error="400"), True),
        (Delivery(dead=1, error="400"), True),
        (Delivery(attempts=4, error="503", since=at(60)), True),
        (Delivery(revision=1, answer="accepted"), True),
        (Delivery(revision=2, answer="accepted"), False),
        (Delivery(revision=2, answer="accepted", dead=1, error="400"), False),
        (Delivery(), False),
    ],
)
def test_what_is_over_is_listed_while_a_service_lacks_a_message_of_it(delivery: Delivery, is_listed: bool) -> None:
    record = IncidentRecord(
        metadata=ObjectMeta(name="x"),
        spec=an_incident(revision=2, resolved=at(60)),
        status=IncidentStatus(deliveries={"chat": delivery}),
    )

    assert in_order([record], Order()) == ([record] if is_listed else [])
