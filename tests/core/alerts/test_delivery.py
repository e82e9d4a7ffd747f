"""What is sent next: at least once, in order, at the service's pace, and given up at some time."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from healthd.core.alerts.delivery import (
    NOTHING,
    accepted,
    due_at,
    failed,
    is_settled,
    is_worth_a_write,
    next_batch,
    oldest_waiting,
    refused,
)
from healthd.core.alerts.pacing import Pace
from healthd.core.api import Delivery
from healthd.core.api.incidents import Incident, Severity
from healthd.core.backoff import no_jitter
from healthd.core.config import AlertsPolicy
from tests.builders import a_sink_policy
from tests.core.alerts.problems import an_incident, at
from tests.fakes import START

POLICY = AlertsPolicy()
ALL = a_sink_policy("chat")
PAGES = a_sink_policy("oncall", severities=(Severity.PAGE,))


def has(incident: Incident, now: datetime = START) -> Delivery:
    """The record of a service that has *incident*."""
    return accepted(incident, NOTHING, "accepted", "", now)


def test_a_new_incident_is_due_at_once_and_not_again() -> None:
    incident = an_incident()

    assert due_at(ALL, incident, NOTHING, POLICY) == START
    assert due_at(ALL, incident, has(incident), POLICY) is None


@pytest.mark.parametrize(
    "change",
    [{"severity": Severity.PAGE, "title": "worse"}, {"resolved": at(5)}],
    ids=["a page now", "over"],
)
def test_what_matters_is_due_at_once(change: dict[str, Any]) -> None:
    notice = an_incident(severity=Severity.NOTICE)
    after = replace(notice, revision=2, updated=at(5), **change)

    assert due_at(ALL, after, has(notice), POLICY) == at(5)


def test_an_update_that_changes_nothing_for_a_person_waits() -> None:
    before = an_incident()
    after = replace(before, revision=2, updated=at(5), title="another node")

    assert due_at(ALL, after, has(before), POLICY) == at(30)


def test_a_service_for_pages_gets_a_notice_only_of_what_it_was_paged_for() -> None:
    page = an_incident()
    calmer = replace(page, revision=2, severity=Severity.NOTICE)

    assert due_at(PAGES, calmer, NOTHING, POLICY) is None
    assert due_at(PAGES, calmer, has(page), POLICY) is not None


def test_what_was_over_before_a_service_had_it_is_a_notice() -> None:
    over = an_incident(resolved=at(5))

    assert due_at(PAGES, over, NOTHING, POLICY) is None
    assert due_at(ALL, over, NOTHING, POLICY) is not None


def test_a_service_that_forgets_gets_what_is_open_again() -> None:
    incident = an_incident()
    over = replace(incident, revision=2, resolved=at(5))

    assert due_at(ALL, incident, has(incident), POLICY, resend_at=at(60)) == at(60)
    assert due_at(ALL, over, has(over), POLICY, resend_at=at(60)) is None


def test_pages_are_sent_before_notices_and_old_ones_first() -> None:
    due = [
        an_incident("c", severity=Severity.NOTICE),
        an_incident("b", opened=at(9)),
        an_incident("a", opened=at(3)),
    ]
    batch = next_batch(Pace.after(60, (), START), due, START, most=2)

    assert [each.key for each in batch.alone] == ["a", "b"]


def test_more_than_the_rate_allows_are_one_digest() -> None:
    due = [an_incident(f"i/{number}") for number in range(1000)]
    batch = next_batch(Pace.after(20, (), START), due, START, most=8)

    assert (len(batch.digest), batch.alone) == (1000, ())


def test_without_rate_left_all_wait_for_the_next_message() -> None:
    pace = Pace.after(20, (), START).took(10, START)
    batch = next_batch(pace, [an_incident()], START, most=8)

    assert (batch.alone, batch.digest, batch.later) == ((), (), at(6))


def test_a_failed_attempt_is_tried_again_later_each_time() -> None:
    incident, delivery, tries = an_incident(), NOTHING, []
    for _ in range(4):
        delivery = failed(incident, delivery, "503", POLICY, START, no_jitter)
        tries.append(due_at(ALL, incident, delivery, POLICY))

    assert tries == [at(1), at(2), at(4), at(8)]


def test_retry_after_is_kept() -> None:
    delivery = failed(an_incident(), NOTHING, "429", POLICY, START, no_jitter, 77)

    assert delivery.next_try == at(77)


def test_a_message_is_given_up_after_so_many_tries() -> None:
    incident, policy = an_incident(), AlertsPolicy(tries=3)
    delivery = NOTHING
    for _ in range(3):
        delivery = failed(incident, delivery, "503", policy, START, no_jitter)

    assert (delivery.dead, delivery.error) == (1, "503")
    assert due_at(ALL, incident, delivery, policy) is None


def test_a_message_is_given_up_when_it_is_too_old() -> None:
    first = failed(an_incident(), NOTHING, "503", POLICY, START, no_jitter)
    last = failed(an_incident(), first, "503", POLICY, START + timedelta(hours=25), no_jitter)

    assert (first.dead, last.dead) == (0, 1)


def test_a_refused_message_is_given_up_at_once_and_the_next_revision_is_tried() -> None:
    incident = an_incident()
    delivery = refused(incident, NOTHING, "400", START)

    assert due_at(ALL, incident, delivery, POLICY) is None
    assert due_at(ALL, replace(incident, revision=2), delivery, POLICY) is not None


def test_a_thread_is_kept_when_later_answers_have_none() -> None:
    first = accepted(an_incident(), NOTHING, "accepted", "1712.3", START)

    assert accepted(an_incident(), first, "accepted", "", START).thread == "1712.3"


def test_of_failures_few_are_worth_a_write() -> None:
    incident, delivery, written = an_incident(), NOTHING, 0
    for _ in range(100):
        after = failed(incident, delivery, "503", POLICY, START, no_jitter)
        written += is_worth_a_write(delivery, after)
        delivery = after

    assert written == 7
    assert is_worth_a_write(delivery, accepted(incident, delivery, "accepted", "", START))


def test_an_incident_is_settled_when_every_service_has_its_end_or_will_not_get_it() -> None:
    over = an_incident(resolved=at(5), revision=2)
    records = {"chat": has(over)}

    def record(sink: str) -> Delivery:
        return records.get(sink, NOTHING)

    assert is_settled(over, record, [ALL, PAGES])
    assert not is_settled(over, lambda _: NOTHING, [ALL])
    assert not is_settled(an_incident(), record, [ALL])


def test_what_waits_and_for_how_long_is_known() -> None:
    waiting = [
        (an_incident("a"), NOTHING),
        (an_incident("b", updated=at(30)), NOTHING),
        (an_incident("c"), has(an_incident("c"))),
    ]

    assert oldest_waiting(waiting, ALL, at(60)) == (2, timedelta(seconds=60))


class World:
    """Incidents and the record as they are stored, one service, and a controller that may be killed at any point."""

    def __init__(self) -> None:
        self.now = START
        self.incidents: dict[str, Incident] = {}
        self.stored: dict[str, Delivery] = defaultdict(Delivery)
        self.got: dict[str, list[int]] = defaultdict(list)
        self.restart()

    def restart(self) -> None:
        """The next leader knows what is stored, and nothing else."""
        self.record = defaultdict(Delivery, self.stored)
        sent = [each.at for each in self.stored.values() if each.at is not None]
        self.pace = Pace.after(20, sent, self.now)

    def change(self, number: int, severity: Severity, resolved: bool) -> None:
        """An incident is opened, or is changed while it is open."""
        key = f"recovery/a/{number}"
        before = self.incidents.get(key, an_incident(key, revision=0))
        if before.resolved is None:
            end = self.now if resolved and before.revision else None
            self.incidents[key] = replace(
                before, revision=before.revision + 1, severity=severity, updated=self.now, resolved=end
            )

    def deliver(self, *, takes: bool = True, dies: bool = False) -> None:
        """One look of the sender. It may be killed after the service answered and before that is recorded."""
        due = [each for key, each in self.incidents.items() if (t := self.due(key)) is not None and t <= self.now]
        batch = next_batch(self.pace, due, self.now, most=8)
        for message in [*([batch.digest] if batch.digest else []), *((each,) for each in batch.alone)]:
            self.pace = self.pace.took(1, self.now)
            for incident in message:
                if takes:
                    self.got[incident.key].append(incident.revision)
                if not dies:
                    self._note(incident, takes)
        if dies:
            self.restart()

    def due(self, key: str) -> datetime | None:
        return due_at(ALL, self.incidents[key], self.record[key], POLICY)

    def _note(self, incident: Incident, takes: bool) -> None:
        before = self.record[incident.key]
        if takes:
            after = accepted(incident, before, "accepted", "", self.now)
        else:
            after = failed(incident, before, "503", POLICY, self.now, no_jitter)
        self.record[incident.key] = after
        if is_worth_a_write(before, after):
            self.stored[incident.key] = after


STEP = st.one_of(
    st.tuples(st.just("change"), st.integers(0, 30), st.sampled_from(Severity), st.booleans()),
    st.tuples(st.just("deliver"), st.booleans(), st.booleans()),
    st.tuples(st.just("wait"), st.integers(0, 120)),
    st.tuples(st.just("kill")),
)


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(st.lists(STEP, max_size=40))
def test_killed_at_any_point_every_incident_arrives_in_order_under_its_key(steps: list[tuple[Any, ...]]) -> None:
    world = World()
    for step in steps:
        match step:
            case ("change", number, severity, resolved):
                world.change(number, severity, resolved)
            case ("deliver", takes, dies):
                world.deliver(takes=takes, dies=dies)
            case ("wait", seconds):
                world.now += timedelta(seconds=seconds)
            case _:
                world.restart()
    for _ in range(60):  # in the end the service is well, and time passes
        world.now += timedelta(minutes=5)
        world.deliver()

    assert {key: revisions[-1] for key, revisions in world.got.items()} == {
        key: each.revision for key, each in world.incidents.items()
    }
    assert all(revisions == sorted(revisions) for revisions in world.got.values())
