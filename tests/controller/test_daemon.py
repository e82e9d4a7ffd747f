"""Replicas of the controller: who acts, who stands by, and what happens when one ends or cannot see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from healthd.cluster.port import Cluster, NotFound
from healthd.controller.cache.informers import ASK_AGAIN, TOO_OLD
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.core.api import (
    IncidentRecord,
    JobSet,
    Node,
    Occurrence,
    Pod,
)
from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import Config
from healthd.core.node.quarantine import Record, cordon_patch
from healthd.gangs import ADAPTERS
from tests.builders import a_node
from tests.controller.alerts.sinks import FakeSink
from tests.controller.replicas import Link, Replicas
from tests.fakes import START, settle
from tests.simulation.training import SeenCheckpoints


@pytest.fixture
async def scenario() -> AsyncIterator[Replicas]:
    scenario = Replicas()
    await scenario.set_up()
    yield scenario
    await scenario.close()


async def test_a_replica_stops_the_gang_of_a_node_that_goes_bad(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)

    (recovery,) = await scenario.recoveries()
    assert (recovery.spec.cause.kind, recovery.spec.cause.node) == (CauseKind.HARDWARE, "node-1")
    assert recovery.metadata.labels["healthd.dev/gang"] == "train"


async def test_it_is_reported_on_the_objects_that_people_read(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)
    await settle()

    events = (await scenario.cluster.list(Occurrence)).items
    reported = {(event.involved_object.kind, event.involved_object.name, event.reason) for event in events}
    assert ("Job", "train", "RecoveryStopping") in reported
    assert ("Node", "node-1", "GangStopping") in reported


async def test_only_the_leader_acts(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.start("b")
    await scenario.clock.run_for(timedelta(minutes=1))

    assert scenario.gauge("a", "healthd_leading") == 1
    assert scenario.gauge("b", "healthd_leading") == 0


async def test_a_standby_takes_over_at_once_when_the_leader_stops(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.start("b")
    before = scenario.clock.now()
    await scenario.stop("a")
    await settle()

    assert await scenario.leader() == "b"
    assert scenario.clock.now() == before


async def test_a_new_leader_goes_on_with_what_was_begun(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.start("b")
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)
    await scenario.stop("a")
    for rank in range(2):
        await scenario.cluster.delete(Pod, f"train-{rank}", namespace="default", grace_seconds=0)

    async def is_held() -> bool:
        return [each.status.phase for each in await scenario.recoveries()] == [Phase.STOPPING]

    await scenario.until(is_held)

    assert await scenario.leader() == "b"


async def test_a_leader_that_cannot_reach_the_cluster_stops_acting_and_another_takes_over(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.start("b")
    scenario.links["a"].cut = True
    await scenario.until(lambda: scenario.is_led_by("b"))

    assert scenario.gauge("a", "healthd_leading") == 0


async def test_a_standby_is_ready(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.start("b")
    await scenario.until(lambda: scenario.is_led_by("a"))

    assert scenario.daemons["b"]._informers.trouble() is None


async def test_a_replica_that_has_not_seen_the_cluster_is_not_ready_and_does_not_lead(scenario: Replicas) -> None:
    await scenario.start("a")
    scenario.links["a"].cut = True
    blind = ControllerDaemon(
        Config(),
        ControllerDependencies(
            identity="blind",
            namespace="healthd-system",
            cluster=_typed(scenario.links["a"]),
            clock=scenario.clock,
            adapters=ADAPTERS,
            checkpoints=SeenCheckpoints({}),
            jitter=lambda: 0.5,
        ),
    )
    running = asyncio.create_task(blind.run())
    await settle()

    assert blind._informers.trouble() is not None
    assert blind.metrics.registry.get_sample_value("healthd_leading") == 0
    blind.stop()
    await running


def _typed(link: Link) -> Cluster:
    anything: Any = link
    cluster: Cluster = anything
    return cluster


async def test_a_watch_that_is_silent_for_long_turns_the_replica_unready(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    scenario.clock.advance(TOO_OLD + timedelta(seconds=1))

    trouble = scenario.daemons["a"]._informers.trouble()
    assert trouble is not None
    assert "no update of" in trouble


async def test_each_replica_shows_when_it_last_heard_of_each_kind(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.start("b")
    await scenario.until(lambda: scenario.is_led_by("a"))
    before = scenario.witness_report("b", "pods")
    scenario.clock.advance(TOO_OLD)

    assert before is not None
    assert before >= START.timestamp()
    assert scenario.witness_report("b", "pods") == before


async def test_before_the_first_list_of_a_kind_nothing_was_heard_of_it(scenario: Replicas) -> None:
    await scenario.start("a", cut=True)

    assert scenario.witness_report("a", "pods") == 0


async def test_a_replica_that_leads_no_more_does_not_show_when_its_loops_last_succeeded(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.clock.run_for(timedelta(minutes=2))
    name, loops = "healthd_loop_last_success_timestamp_seconds", ("controller", "precheck", "fabric")
    registry = scenario.daemons["a"].metrics.registry
    shown = [registry.get_sample_value(name, {"loop": loop}) for loop in loops]
    await scenario.stop("a")

    assert shown[0] == scenario.clock.now().timestamp()
    assert shown[2] is not None
    assert [registry.get_sample_value(name, {"loop": loop}) for loop in loops] == [None] * 3


async def test_nothing_is_decided_on_an_old_sight(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    scenario.clock.advance(TOO_OLD + timedelta(minutes=1))
    scenario.daemons["a"].cluster_state.upsert(_with_version(await _quarantined(scenario, "node-1")))
    scenario.daemons["a"]._wake.set()
    await settle()

    assert await scenario.recoveries() == []


async def _quarantined(scenario: Replicas, name: str) -> Node:
    record = Record(finding="gpu/xid-79", message="off the bus", since=START)
    node = await scenario.cluster.get(Node, name)
    return a_node(name, unschedulable=True, annotations=cordon_patch(node, record)["metadata"]["annotations"])


def _with_version(node: Node) -> Node:
    meta = msgspec.structs.replace(node.metadata, resource_version="999999", uid="uid-x")
    return msgspec.structs.replace(node, metadata=meta)


@pytest.mark.slow
async def test_a_kind_that_is_not_installed_is_no_trouble_and_is_found_later(scenario: Replicas) -> None:
    with capture_logs() as logged:
        await scenario.start("a", unknown={JobSet})
        await scenario.until(lambda: scenario.is_led_by("a"))
        await scenario.clock.run_for(3 * ASK_AGAIN)
    informers = scenario.daemons["a"]._informers
    with pytest.raises(NotFound, match="jobsets"):
        await informers.list(JobSet)

    scenario.links["a"].unknown = set()
    await scenario.clock.run_for(ASK_AGAIN)

    assert (await informers.list(JobSet)).items == []
    assert [entry for entry in logged if entry.get("kind") == "JobSet"] == []


async def test_people_are_alerted_to_a_recovery_by_the_leader_alone(scenario: Replicas) -> None:
    sink, standby = FakeSink(), FakeSink()
    await scenario.start("a", sinks=[sink])
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.start("b", sinks=[standby])
    await scenario.quarantine("node-1")

    async def is_told() -> bool:
        return bool(sink.sent)

    await scenario.until(is_told)
    reported = sink.sent[0]
    assert (reported.gang, reported.nodes, reported.namespace) == ("job/train", ("node-1",), "default")
    assert standby.sent == []
    await scenario.stop("a")
    assert sink.closed


async def test_without_alert_services_there_are_no_incidents(scenario: Replicas) -> None:
    await scenario.start("a")
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.quarantine("node-1")
    await scenario.clock.run_for(timedelta(minutes=5))

    assert (await scenario.cluster.list(IncidentRecord)).items == []
