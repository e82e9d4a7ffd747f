"""The loop that alerts people: one page for one cause, whatever dies or fails in between."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from healthd.alerts.sink import Answer, Outcome
from healthd.cluster.port import Forbidden, NotFound, Unavailable
from healthd.controller.alerts.sender import TIMEOUT
from healthd.controller.alerts.store import name_of
from healthd.core.api import IncidentRecord, Namespace, ObjectMeta
from healthd.core.api.incidents import Incident, Severity
from healthd.core.api.model import Phase
from healthd.core.recovery.holds import OPEN
from tests.builders import a_node, a_sink_policy
from tests.controller.alerts.on_call import OnCall
from tests.controller.alerts.sinks import NOT_NOW, TOOK, FakeSink

MINUTE = timedelta(minutes=1)
KEY = "recovery/team-a/llama-1"


@pytest.fixture
def sink() -> FakeSink:
    return FakeSink()


async def test_a_gang_that_waits_is_paged_updated_and_resolved_under_one_key(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.a_gang("llama", Phase.STOPPING), within=MINUTE)
    await scenario.show(scenario.waiting("llama"))
    await scenario.show(scenario.a_gang("llama", Phase.RECOVERED, ended_at=scenario.clock.now()))

    assert [(each.key, each.severity, each.resolved is not None) for each in sink.sent] == [
        (KEY, Severity.NOTICE, False),
        (KEY, Severity.PAGE, False),
        (KEY, Severity.NOTICE, True),
    ]
    await scenario.end()


async def test_what_a_service_accepted_is_stored_with_the_incident(sink: FakeSink) -> None:
    sink.answer = lambda _: Outcome(Answer.DELIVERED, "ok", thread="1712.3")
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))

    record = (await scenario.records())[KEY]
    assert record.metadata.name == name_of(KEY)
    assert record.spec == sink.sent[0]
    delivery = record.status.deliveries["oncall"]
    assert (delivery.revision, delivery.answer, delivery.thread) == (1, "delivered", "1712.3")
    await scenario.show(scenario.a_gang("llama", Phase.STARTING), within=MINUTE)
    assert sink.threads == ["", "1712.3"]
    await scenario.end()


async def test_a_leader_that_dies_between_send_and_record_is_followed_by_the_same_message(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    await scenario.lead()
    sink.gate.clear()
    await scenario.show(scenario.waiting("llama"))
    await scenario.kill()
    sink.gate.set()
    await scenario.lead()
    await scenario.show(within=MINUTE)

    assert sink.sent == [sink.sent[0]] * 2, "the same revision under the same key"
    assert list(await scenario.records()) == [KEY]
    await scenario.end()


@pytest.mark.parametrize("after", [False, True], ids=["write lost", "write done"])
@pytest.mark.parametrize("number", range(1, 8))
async def test_a_leader_that_dies_at_any_write_is_followed_by_one_that_goes_on(
    sink: FakeSink, number: int, after: bool
) -> None:
    scenario = OnCall(sink)
    scenario.cluster.freezes_at, scenario.cluster.after = number, after
    await scenario.lead()
    for gang in (scenario.waiting("llama"), scenario.a_gang("llama", Phase.STARTING)):
        await scenario.show(gang, within=MINUTE)
    await scenario.kill()
    await scenario.lead()
    await scenario.show(scenario.a_gang("llama", Phase.RECOVERED, ended_at=scenario.clock.now()), within=MINUTE)
    await scenario.kill()
    await scenario.lead()
    await scenario.show(within=MINUTE)

    revisions = [each.revision for each in sink.sent]
    assert set(sink.keys) == {KEY}
    assert revisions == sorted(revisions)
    assert sink.sent[-1].resolved is not None
    (record,) = (await scenario.records()).values()
    assert record.status.deliveries["oncall"].revision == record.spec.revision
    await scenario.end()


async def test_the_uid_of_kube_system_names_a_cluster_without_a_name(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    made = await scenario.stored.create(Namespace(metadata=ObjectMeta(name="kube-system")))
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))

    assert sink.sent[0].dedup_key == f"{made.metadata.uid}/{KEY}"
    await scenario.end()


async def test_a_cluster_that_does_not_answer_delays_the_name_and_does_not_change_it(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    made = await scenario.stored.create(Namespace(metadata=ObjectMeta(name="kube-system")))
    scenario.cluster.fails["get"] = Unavailable("no answer")
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))
    assert not sink.sent
    scenario.cluster.fails.clear()
    await scenario.show(within=MINUTE)

    assert sink.sent[0].cluster == made.metadata.uid
    await scenario.end()


async def test_without_the_right_to_read_its_name_a_cluster_alerts_all_the_same(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    scenario.cluster.fails["get"] = Forbidden("not yours")
    with capture_logs() as logs:
        await scenario.lead()
        await scenario.show(scenario.waiting("llama"))

    assert sink.sent[0].dedup_key == KEY
    assert "alerts.cluster" in next(line for line in logs if line["event"] == "alerts.cluster_unknown")["note"]
    await scenario.end()


async def test_an_incident_is_resolved_under_the_key_that_it_was_opened_with(sink: FakeSink) -> None:
    """An upgrade gives the cluster a name, and an operator gives it another one, while an incident is open."""
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))
    await scenario.kill()
    scenario.policy = replace(scenario.policy, cluster="prod-eu")
    await scenario.lead()
    await scenario.show(scenario.waiting("bert", held_in=Phase.CHOOSING))
    await scenario.kill()
    scenario.policy = replace(scenario.policy, cluster="prod-us")
    await scenario.lead()
    now = scenario.clock.now()
    await scenario.show(*(scenario.a_gang(name, Phase.RECOVERED, ended_at=now) for name in ("llama", "bert")))

    other = "prod-eu/recovery/team-a/bert-1"
    assert [each.dedup_key for each in sink.sent if each.resolved is None] == [KEY, other]
    assert {each.dedup_key for each in sink.sent if each.resolved is not None} == {KEY, other}
    await scenario.end()


async def test_a_new_leader_sends_nothing_that_was_accepted(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    for _ in range(5):
        await scenario.lead()
        await scenario.show(scenario.waiting("llama", timeline=[]), within=MINUTE)
        await scenario.kill()

    assert len(sink.sent) == 1
    await scenario.end()


@pytest.mark.parametrize("seed", range(5))
async def test_killed_at_any_time_no_incident_is_lost_or_opened_twice(seed: int) -> None:
    dice, sink = random.Random(seed), FakeSink(rate=6000)
    scenario = OnCall(sink)
    sink.answer = lambda _: dice.choice([TOOK, TOOK, NOT_NOW])
    for number in range(40):
        if number % 5 == 0:
            await scenario.kill()
            await scenario.lead()
        gang = scenario.a_gang(f"job-{number}", Phase.HELD, held_in=Phase.CHOOSING)
        await scenario.show(gang, within=timedelta(milliseconds=dice.choice([0, 1, 250, 1500])))
    await scenario.show(within=10 * MINUTE)

    keys = {f"recovery/team-a/job-{number}-1" for number in range(40)}
    assert set(await scenario.records()) == keys
    delivered = {key: each.status.deliveries["oncall"].revision for key, each in (await scenario.records()).items()}
    assert delivered == {key: each.spec.revision for key, each in (await scenario.records()).items()}
    assert {*sink.keys, *(each.key for digest in sink.digests for each in digest)} == keys
    await scenario.end()


@pytest.mark.slow
async def test_a_storm_of_750_nodes_is_one_page() -> None:
    sink = FakeSink(rate=20)
    scenario = OnCall(sink, sinks=(a_sink_policy("oncall", severities=(Severity.PAGE,)),))
    await scenario.lead()
    for start in range(0, 750, 50):
        gangs = [
            scenario.a_gang(
                f"job-{n}", Phase.HELD, held_in=Phase.DETECTED, message=f"{OPEN}: {start} nodes", node=f"n{n}"
            )
            for n in range(start, start + 50)
        ]
        await scenario.show(*gangs)
    await scenario.show(within=5 * MINUTE)

    assert (set(sink.keys), sink.digests) == ({"recovery/team-a/job-0-1"}, [])
    assert len(sink.sent) <= 4, "the page and a few updates"
    assert (sink.sent[-1].title, len(sink.sent[-1].nodes)) == ("750 gangs on 750 nodes: the breaker is open", 750)
    assert scenario.sample("healthd_incidents_open", severity="page") == 1
    await scenario.end()


@pytest.mark.slow
async def test_gangs_of_one_storm_that_have_to_wait_an_hour_later_are_no_new_page(sink: FakeSink) -> None:
    scenario = OnCall(sink, sinks=(a_sink_policy("oncall", severities=(Severity.PAGE,)),))
    await scenario.lead()
    early, late = scenario.waiting("early"), scenario.waiting("late")
    await scenario.show(early, within=60 * MINUTE)
    await scenario.show(late, within=10 * MINUTE)
    await scenario.show(scenario.waiting("another"), within=10 * MINUTE)

    assert list(dict.fromkeys(sink.keys)) == ["recovery/team-a/early-1", "recovery/team-a/another-1"]
    await scenario.end()


async def test_a_service_that_hangs_holds_up_no_other_one() -> None:
    hangs, works = FakeSink("hangs"), FakeSink("works")
    hangs.gate.clear()
    scenario = OnCall(hangs, works)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))
    await scenario.show(scenario.a_gang("llama", Phase.STARTING), within=MINUTE)

    assert [each.revision for each in works.sent] == [1, 2]
    assert {each.revision for each in hangs.sent[:2]} <= {1, 2}
    waits = scenario.sample("healthd_alert_oldest_waiting_seconds", sink="hangs")
    assert waits is not None
    assert waits > TIMEOUT.total_seconds()
    await scenario.end()


async def test_a_service_that_fails_gets_the_newest_revision_when_it_is_back(sink: FakeSink) -> None:
    sink.answer = lambda _: NOT_NOW
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), within=MINUTE)
    tried = len(sink.sent)
    sink.answer = lambda _: TOOK
    await scenario.show(scenario.a_gang("llama", Phase.STARTING), within=3 * MINUTE)

    assert 3 <= tried <= 8, "with a pause that doubles"
    assert [each.revision for each in sink.sent[tried:]][-1] == 2
    assert (await scenario.records())[KEY].status.deliveries["oncall"].error == ""
    await scenario.end()


async def test_retry_after_is_kept(sink: FakeSink) -> None:
    sink.answer = lambda _: Outcome(Answer.RETRY, "429", retry_after=50)
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), within=timedelta(seconds=49))
    assert len(sink.sent) == 1

    await scenario.show(within=timedelta(seconds=3))
    assert len(sink.sent) == 2
    await scenario.end()


async def test_a_page_goes_out_although_it_cannot_be_stored(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    scenario.cluster.fails = {verb: Forbidden("no right") for verb in ("list", "create", "patch")}
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), within=MINUTE)
    assert sink.keys == [KEY]

    scenario.cluster.fails = {}
    await scenario.show(within=MINUTE)
    assert (await scenario.records())[KEY].status.deliveries["oncall"].revision == 1
    assert sink.keys == [KEY]
    await scenario.end()


async def test_a_page_does_not_wait_for_a_write_that_hangs(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    scenario.cluster.freezes_at = 1
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), within=timedelta(seconds=2))
    assert sink.keys == [KEY]

    await scenario.show(within=MINUTE)
    assert (await scenario.records())[KEY].status.deliveries["oncall"].revision == 1
    assert sink.keys == [KEY]
    await scenario.end()


async def test_without_its_kind_it_alerts_from_memory(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    scenario.cluster.fails = {verb: NotFound("no such kind") for verb in ("list", "create", "patch")}
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), within=MINUTE)
    await scenario.show(scenario.a_gang("llama", Phase.RECOVERED, ended_at=scenario.clock.now()), within=MINUTE)

    assert [each.resolved is not None for each in sink.sent] == [False, True]
    await scenario.end()


async def test_a_leader_that_cannot_read_what_is_stored_waits_for_that(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))
    await scenario.kill()
    scenario.cluster.fails = {"list": Unavailable("no answer")}
    await scenario.lead()
    await scenario.show(within=MINUTE)
    scenario.cluster.fails = {}
    await scenario.show(within=MINUTE)

    assert sink.keys == [KEY]
    await scenario.end()


async def test_on_an_old_view_of_the_cluster_nothing_is_resolved(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))
    scenario.blind = "no update of recoveries for 200 s"
    for recovery in list(scenario.state.recoveries()):
        scenario.state.remove(recovery)
    await scenario.show(within=MINUTE)
    assert len(sink.sent) == 1

    scenario.blind = None
    await scenario.show(within=MINUTE)
    assert sink.sent[-1].resolved is not None
    await scenario.end()


async def test_a_dead_letter_is_an_event_a_metric_and_in_the_record(sink: FakeSink) -> None:
    sink.answer = lambda _: Outcome(Answer.REFUSED, "400: no such routing key")
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), within=5 * MINUTE)

    assert len(sink.sent) == 1
    message = "revision 1 could not be sent to oncall: 400: no such routing key"
    assert scenario.events == [(name_of(KEY), "AlertNotDelivered", message)]
    assert scenario.sample("healthd_alert_dead_letters_total", sink="oncall") == 1
    assert (await scenario.records())[KEY].status.deliveries["oncall"].dead == 1
    await scenario.end()


async def test_an_error_of_a_sink_is_tried_again_and_its_text_is_kept_secret(sink: FakeSink) -> None:
    def fall(_: Incident) -> Outcome:
        raise RuntimeError("https://hooks.example.com/SECRET")

    sink.answer = fall
    scenario = OnCall(sink)
    with capture_logs() as logs:
        await scenario.lead()
        await scenario.show(scenario.waiting("llama"))

    assert (await scenario.records())[KEY].status.deliveries["oncall"].error == "error RuntimeError"
    assert "SECRET" not in repr(logs)
    await scenario.end()


class RefusesDigests(FakeSink):
    """As a service does that finds one text in it that it never takes, or the whole too large."""

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        await super().send_digest(incidents)
        return Outcome(Answer.REFUSED, "413: too large")


async def test_of_a_digest_that_is_refused_each_page_is_sent_alone() -> None:
    sink = RefusesDigests(rate=20)
    scenario = OnCall(sink)
    await scenario.lead()
    gangs = [scenario.a_gang(f"job-{n}", Phase.HELD, held_in=Phase.CHOOSING) for n in range(15)]
    await scenario.show(*gangs, within=30 * MINUTE)

    assert sink.digests
    assert len(set(sink.keys)) == 15
    assert not scenario.sample("healthd_alert_dead_letters_total", sink="oncall")
    await scenario.end()


async def test_what_is_more_than_the_rate_is_one_digest() -> None:
    sink = FakeSink(rate=20)
    scenario = OnCall(sink)
    await scenario.lead()
    gangs = [scenario.a_gang(f"job-{n}", Phase.HELD, held_in=Phase.CHOOSING) for n in range(300)]
    await scenario.show(*gangs, within=MINUTE)

    assert sum(len(digest) for digest in sink.digests) + len(sink.sent) == 300
    assert len(sink.digests) + len(sink.sent) <= 20
    assert all(each.status.deliveries["oncall"].revision == 1 for each in (await scenario.records()).values())
    await scenario.end()


async def test_a_service_that_forgets_gets_what_is_open_again_without_a_write() -> None:
    sink = FakeSink(resend_every=60)
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))
    writes = scenario.cluster.writes
    await scenario.show(within=10 * MINUTE)

    assert 10 <= len(sink.sent) <= 12
    assert scenario.cluster.writes == writes
    await scenario.show(scenario.a_gang("llama", Phase.RECOVERED, ended_at=scenario.clock.now()))
    over = len(sink.sent)
    await scenario.show(within=10 * MINUTE)
    assert (len(sink.sent), sink.sent[-1].resolved is not None) == (over, True)
    await scenario.end()


async def test_two_leaders_for_a_moment_open_one_incident(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), within=MINUTE)

    assert set(sink.keys) == {KEY}
    assert len(await scenario.records()) == 1
    assert (await scenario.records())[KEY].status.deliveries["oncall"].revision == 1
    await scenario.end()


async def test_an_incident_that_a_person_deleted_is_sent_again(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"))
    await scenario.stored.delete(IncidentRecord, name_of(KEY), namespace="healthd-system")
    await scenario.show(scenario.a_gang("llama", Phase.STARTING), within=3 * MINUTE)

    assert sink.sent[-1].severity is Severity.NOTICE
    assert list(await scenario.records()) == [KEY]
    await scenario.end()


@pytest.mark.slow
async def test_old_incidents_are_deleted_and_open_ones_stay(sink: FakeSink) -> None:
    scenario = OnCall(sink, keep_for=timedelta(hours=1))
    await scenario.lead()
    await scenario.show(scenario.waiting("llama"), scenario.a_gang("mistral", Phase.HELD, held_in=Phase.CHOOSING))
    await scenario.show(scenario.a_gang("llama", Phase.RECOVERED, ended_at=scenario.clock.now()), within=30 * MINUTE)
    assert len(await scenario.records()) == 2

    await scenario.show(within=60 * MINUTE)
    assert list(await scenario.records()) == ["recovery/team-a/mistral-1"]
    await scenario.end()


async def test_a_recovery_that_cannot_be_put_into_words_stops_no_other_page(sink: FakeSink) -> None:
    broken: Any = None
    scenario = OnCall(sink)
    await scenario.lead()
    with capture_logs():
        await scenario.show(scenario.a_gang("bad", Phase.HELD, message=broken), scenario.waiting("llama"))

    assert sink.keys == [KEY]
    errors = scenario.sample("healthd_object_errors_total", where="alerts")
    assert errors is not None
    assert errors > 0
    await scenario.end()


async def test_an_idle_cluster_costs_no_writes(sink: FakeSink) -> None:
    scenario = OnCall(sink)
    await scenario.lead()
    await scenario.show(a_node("n1"), within=10 * MINUTE)

    assert scenario.cluster.writes == 0
    assert sink.sent == []
    await scenario.end()
