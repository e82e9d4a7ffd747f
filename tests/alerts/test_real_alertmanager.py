"""healthd's sink and a real Alertmanager: one incident is one alert there, whatever happens in between."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.alerts.registry import make_sink
from healthd.alerts.sink import Answer, Sink
from healthd.alerts.sinks.alertmanager import VALID_FOR
from healthd.clock import Clock, SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import GangRef, IncidentRecord, ObjectMeta, Recovery, TimelineEntry
from healthd.core.api.incidents import Incident, Severity
from healthd.core.api.model import Phase
from healthd.core.config.alerts import SinkKind, SinkPolicy
from tests.alerts.incidents import an_incident
from tests.builders import a_cause
from tests.core.gangs import a_recovery_in
from tests.fakes import ManualClock
from tests.lab import web
from tests.lab.alertmanager import Alertmanager, Held, replicas
from tests.lab.endpoint import Endpoint, Sent
from tests.lab.fixtures import get
from tests.lab.modules import ALERTMANAGER

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SECOND = timedelta(seconds=1)


@pytest.fixture
def pager(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """Where Alertmanager notifies."""
    get(ALERTMANAGER, request)
    with Endpoint() as endpoint:
        yield endpoint


def routes(pager: Endpoint) -> dict[str, Any]:
    """Each incident is a notification of its own, as docs/monitoring/alert-services.md asks for."""
    times = {"group_wait": "200ms", "group_interval": "200ms", "repeat_interval": "1h"}
    hook = {"name": "pager", "webhook_configs": [{"url": f"http://{pager.address}/pager"}]}
    return {"route": {"receiver": "pager", "group_by": ["incident"], **times}, "receivers": [hook]}


@pytest.fixture
def alertmanager(tmp_path: Path, pager: Endpoint) -> Iterator[Alertmanager]:
    with Alertmanager(tmp_path / "am", routes(pager)) as running:
        yield running


def sink_to(clock: Clock, *urls: str) -> Sink:
    """As it is configured for Alertmanager in the same cluster."""
    return make_sink(SinkPolicy(name="am", kind=SinkKind.ALERTMANAGER, urls=urls, insecure=True), clock)


@pytest.fixture
async def sink(alertmanager: Alertmanager) -> AsyncIterator[Sink]:
    sink = sink_to(SystemClock(), alertmanager.url)
    yield sink
    await sink.close()


def opened(**fields: Any) -> Incident:
    """A gang that waits since a minute ago."""
    now = SystemClock().now()
    return an_incident(opened=now - 60 * SECOND, updated=now, **fields)


def updated(incident: Incident, **fields: Any) -> Incident:
    """The next revision."""
    return replace(incident, revision=incident.revision + 1, updated=SystemClock().now(), **fields)


def notified(pager: Endpoint) -> list[tuple[str, str]]:
    """Of each notification: `firing` or `resolved`, and the title."""
    bodies = [sent.json for sent in pager.to("/pager")]
    return [(body["status"], body["commonAnnotations"]["summary"]) for body in bodies]


async def test_an_incident_is_one_alert_from_its_begin_to_its_end(
    sink: Sink, alertmanager: Alertmanager, pager: Endpoint
) -> None:
    incident = opened(title="waits")
    first = await sink.send(incident, "")
    alertmanager.wait_until("notified", lambda: notified(pager))
    begun = alertmanager.alerts()
    incident = updated(incident, title="waits for two")
    second = await sink.send(incident, first.thread)
    changed = alertmanager.alerts()
    incident = updated(incident, resolved=SystemClock().now(), title="goes on")
    await sink.send(incident, second.thread)
    alertmanager.wait_until("resolved", lambda: len(notified(pager)) == 2)

    assert [alert.annotations["summary"] for alert in begun + changed] == ["waits", "waits for two"]
    assert begun[0].labels == changed[0].labels
    assert begun[0].starts == changed[0].starts == milliseconds(incident.opened)
    assert alertmanager.alerts() == []
    assert notified(pager) == [("firing", "waits"), ("resolved", "goes on")]


def milliseconds(at: datetime) -> datetime:
    """As Alertmanager shows a time."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


async def test_what_is_sent_again_stays_one_alert_that_lasts_longer(
    sink: Sink, alertmanager: Alertmanager, pager: Endpoint
) -> None:
    incident = opened()
    outcomes = [await sink.send(incident, "") for _ in range(3)]
    (first,) = alertmanager.alerts()
    await sink.send_digest([incident])
    (last,) = alertmanager.alerts()
    await sink.send(updated(incident, resolved=SystemClock().now()), "")
    alertmanager.wait_until("resolved", lambda: any(status == "resolved" for status, _ in notified(pager)))

    assert {outcome.answer for outcome in outcomes} == {Answer.ACCEPTED}
    assert first.starts == last.starts
    assert first.ends < last.ends
    assert [status for status, _ in notified(pager)] == ["firing", "resolved"]


async def test_an_alert_lasts_for_ten_minutes_from_when_it_was_sent_last(
    sink: Sink, alertmanager: Alertmanager
) -> None:
    before = SystemClock().now()
    await sink.send(opened(), "")
    (alert,) = alertmanager.alerts()

    assert timedelta(0) <= alert.ends - milliseconds(before) - VALID_FOR < 10 * SECOND


async def test_an_incident_that_is_not_sent_again_ends_by_itself(alertmanager: Alertmanager, pager: Endpoint) -> None:
    clock = ManualClock(SystemClock().now() - VALID_FOR + 2 * SECOND)  # it says: ends in two seconds
    sink = sink_to(clock, alertmanager.url)
    await sink.send(opened(), "")
    begun = alertmanager.alerts()
    alertmanager.wait_until("resolved", lambda: [status for status, _ in notified(pager)] == ["firing", "resolved"])
    await sink.close()

    assert len(begun) == 1
    assert alertmanager.alerts() == []


async def test_a_notice_that_becomes_a_page_is_another_alert_and_the_notice_ends(
    sink: Sink, alertmanager: Alertmanager
) -> None:
    notice = opened(severity=Severity.NOTICE)
    outcome = await sink.send(notice, "")
    await sink.send(updated(notice, severity=Severity.PAGE), outcome.thread)

    assert [alert.labels["severity"] for alert in alertmanager.alerts()] == ["page"]


async def test_a_silence_holds_for_all_later_revisions(sink: Sink, alertmanager: Alertmanager, pager: Endpoint) -> None:
    incident, other = opened(), opened(key="recovery/team-b/bert-1")
    silence = alertmanager.silence(SystemClock().now() - SECOND, incident=incident.key)
    alertmanager.wait_until("silenced", lambda: alertmanager.silences() == [silence])
    for each in (incident, updated(incident), updated(updated(incident)), other):
        await sink.send(each, "page")
    alertmanager.wait_until("notified of the other", lambda: pager.to("/pager"))
    found = {alert.labels["incident"]: alert.silenced_by for alert in alertmanager.alerts()}

    assert found == {incident.key: [silence], other.key: []}
    assert [sent.json["groupLabels"]["incident"] for sent in pager.to("/pager")] == [other.key]


async def test_of_two_replicas_both_have_it_and_one_notifies(tmp_path: Path, pager: Endpoint) -> None:
    one, two = replicas(tmp_path, routes(pager))
    sink, incident = sink_to(SystemClock(), one.url, two.url), opened()
    with one, two:
        two.wait_until("joined", lambda: len(one.peers()) == len(two.peers()) == 2)
        outcome = await sink.send(incident, "")
        held = [[alert.labels for alert in each.alerts()] for each in (one, two)]
        one.wait_until("notified, or has seen that the other did", lambda: has_decided(one))
        two.wait_until("notified, or has seen that the other did", lambda: has_decided(two))
    await sink.close()

    assert outcome.answer is Answer.ACCEPTED
    assert held[0] == held[1]
    assert len(held[0]) == len(pager.to("/pager")) == 1


def has_decided(replica: Alertmanager) -> bool:
    """It has looked into the log of what was notified; that is the last thing before it notifies."""
    return replica.metric("alertmanager_nflog_queries_total") > 0


async def test_a_replica_that_was_away_has_it_again_with_the_next_repetition(tmp_path: Path, pager: Endpoint) -> None:
    one, two = replicas(tmp_path, routes(pager))
    sink, incident = sink_to(SystemClock(), one.url, two.url), opened()
    with two:
        half = await sink.send(incident, "")
        with one:
            whole = await sink.send(incident, "page")
            held = [[(alert.labels, alert.starts) for alert in each.alerts()] for each in (one, two)]
    await sink.close()

    assert half.answer is whole.answer is Answer.ACCEPTED
    assert "1 of 2 replicas have it" in half.detail
    assert held[0] == held[1]
    assert len(held[0]) == 1


# A leader that is killed ----------------------------------------------------------------------------------------------


class Leaders:
    """Leaders in processes of their own, one after the other, over one store."""

    def __init__(self, store: Path, address: str) -> None:
        self._command = [sys.executable, "-m", "tests.bench._alerts_leader", str(store), f"http://{address}"]
        self._process: asyncio.subprocess.Process | None = None

    async def next(self) -> None:
        """The next one."""
        self._process = await asyncio.create_subprocess_exec(*self._command)

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def ended(self) -> None:
        """Return when the last one has ended."""
        assert self._process is not None
        async with asyncio.timeout(30):
            await self._process.wait()


async def hold_a_gang(cluster: EmbeddedCluster) -> None:
    """A gang waits for a spare."""
    now = SystemClock().now()
    entered = TimelineEntry(phase=Phase.HELD, at=now, message="no spare")
    recovery = a_recovery_in(
        Phase.HELD, causes=[a_cause(node="gpu-7", at=now)], timeline=[entered], held_in=Phase.RESERVING
    )
    gang = GangRef(kind="Job", name="llama", namespace="team-a", uid="uid")
    named, spec = ObjectMeta(name="llama-1", namespace="team-a"), replace(recovery.spec, gang=gang)
    await cluster.create(replace(recovery, metadata=named, spec=spec))
    status = {"status": msgspec.to_builtins(recovery.status)}
    await cluster.patch(Recovery, "llama-1", status, namespace="team-a", subresource="status")


async def test_a_leader_that_is_killed_before_it_hears_the_answer_leaves_one_alert(
    tmp_path: Path, alertmanager: Alertmanager, pager: Endpoint
) -> None:
    """Alertmanager has the alert, healthd has not recorded that, and the next leader sends it again."""
    kills = 2

    def pass_on(sent: Sent) -> None:
        web.ask(alertmanager.port, sent.method, sent.path, sent.json)
        if len(between.sent) <= kills:
            leaders.kill()

    with (
        Endpoint(before_answer=pass_on) as between,
        EmbeddedCluster.open(tmp_path / "store", clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster,
    ):
        leaders = Leaders(tmp_path / "store", between.address)
        await hold_a_gang(cluster)
        for _ in range(kills):
            await leaders.next()
            await leaders.ended()
        before = (await cluster.list(IncidentRecord)).items
        held = alertmanager.alerts()
        await leaders.next()
        after = await recorded(cluster)
        leaders.kill()
        await leaders.ended()

    assert [each.status.deliveries for each in before] == [{}]
    assert [each.status.deliveries["oncall"].revision for each in after] == [1]
    assert len(between.sent) == kills + 1
    assert identities(held) == identities(alertmanager.alerts())
    assert len(held) == 1
    assert [status for status, _ in notified(pager)] == ["firing"]


async def recorded(cluster: EmbeddedCluster) -> list[IncidentRecord]:
    """The incidents, once it is recorded that Alertmanager has the first."""
    async with asyncio.timeout(30):
        listed = await cluster.list(IncidentRecord)
        if listed.items[0].status.deliveries:
            return listed.items
        async for event in cluster.watch(IncidentRecord, since=listed.resource_version):
            if event.obj and event.obj.status.deliveries:
                break
    return (await cluster.list(IncidentRecord)).items


def identities(alerts: list[Held]) -> list[tuple[dict[str, str], datetime]]:
    """By what Alertmanager knows an alert, and since when it has it."""
    return [(alert.labels, alert.starts) for alert in alerts]
