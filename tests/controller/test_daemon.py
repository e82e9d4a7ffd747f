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
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.controller.informers import ASK_AGAIN, TOO_OLD
from healthd.core.api import (
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
from tests.controller.replicas import Link, Stage
from tests.fakes import START, settle
from tests.simulation.training import SeenCheckpoints


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    await stage.set_up()
    yield stage
    await stage.close()


async def test_a_replica_stops_the_gang_of_a_node_that_goes_bad(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    await stage.quarantine("node-1")
    await stage.until(stage.is_stopped)

    (recovery,) = await stage.recoveries()
    assert (recovery.spec.cause.kind, recovery.spec.cause.node) == (CauseKind.HARDWARE, "node-1")
    assert recovery.metadata.labels == {"healthd.dev/gang": "train"}


async def test_it_is_told_where_people_look(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    await stage.quarantine("node-1")
    await stage.until(stage.is_stopped)
    await settle()

    events = (await stage.cluster.list(Occurrence)).items
    told = {(event.involved_object.kind, event.involved_object.name, event.reason) for event in events}
    assert ("Job", "train", "RecoveryStopping") in told
    assert ("Node", "node-1", "GangStopping") in told


async def test_only_the_leader_acts(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    await stage.start("b")
    await stage.clock.run_for(timedelta(minutes=1))

    assert stage.gauge("a", "healthd_leading") == 1
    assert stage.gauge("b", "healthd_leading") == 0


async def test_a_standby_takes_over_at_once_when_the_leader_is_told_to_stop(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    await stage.start("b")
    before = stage.clock.now()
    await stage.stop("a")
    await settle()

    assert await stage.leader() == "b"
    assert stage.clock.now() == before


async def test_whoever_takes_over_goes_on_with_what_was_begun(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    await stage.start("b")
    await stage.quarantine("node-1")
    await stage.until(stage.is_stopped)
    await stage.stop("a")
    for rank in range(2):
        await stage.cluster.delete(Pod, f"train-{rank}", namespace="default", grace_seconds=0)

    async def is_held() -> bool:
        return [each.status.phase for each in await stage.recoveries()] == [Phase.STOPPING]

    await stage.until(is_held)

    assert await stage.leader() == "b"


async def test_a_leader_that_cannot_reach_the_cluster_stops_acting_and_another_takes_over(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    await stage.start("b")
    stage.links["a"].cut = True
    await stage.until(lambda: stage.is_led_by("b"))

    assert stage.gauge("a", "healthd_leading") == 0


async def test_a_standby_is_ready(stage: Stage) -> None:
    await stage.start("a")
    await stage.start("b")
    await stage.until(lambda: stage.is_led_by("a"))

    assert stage.daemons["b"]._informers.trouble() is None


async def test_a_replica_that_has_not_seen_the_cluster_is_not_ready_and_does_not_lead(stage: Stage) -> None:
    await stage.start("a")
    stage.links["a"].cut = True
    blind = ControllerDaemon(
        Config(),
        ControllerDependencies(
            identity="blind",
            namespace="healthd-system",
            cluster=_typed(stage.links["a"]),
            clock=stage.clock,
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


async def test_a_watch_that_is_silent_for_long_turns_the_replica_unready(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    stage.clock.advance(TOO_OLD + timedelta(seconds=1))

    trouble = stage.daemons["a"]._informers.trouble()
    assert trouble is not None
    assert "nothing was heard of" in trouble


async def test_nothing_is_decided_on_an_old_sight(stage: Stage) -> None:
    await stage.start("a")
    await stage.until(lambda: stage.is_led_by("a"))
    stage.clock.advance(TOO_OLD + timedelta(minutes=1))
    stage.daemons["a"].cluster_state.upsert(_with_version(await _quarantined(stage, "node-1")))
    stage.daemons["a"]._wake.set()
    await settle()

    assert await stage.recoveries() == []


async def _quarantined(stage: Stage, name: str) -> Node:
    record = Record(finding="gpu/xid-79", message="off the bus", since=START)
    node = await stage.cluster.get(Node, name)
    return a_node(name, unschedulable=True, annotations=cordon_patch(node, record)["metadata"]["annotations"])


def _with_version(node: Node) -> Node:
    meta = msgspec.structs.replace(node.metadata, resource_version="999999", uid="uid-x")
    return msgspec.structs.replace(node, metadata=meta)


async def test_a_kind_that_is_not_installed_is_no_trouble_and_is_found_later(stage: Stage) -> None:
    with capture_logs() as logged:
        await stage.start("a", unknown={JobSet})
        await stage.until(lambda: stage.is_led_by("a"))
        await stage.clock.run_for(3 * ASK_AGAIN)
    informers = stage.daemons["a"]._informers
    with pytest.raises(NotFound, match="jobsets"):
        await informers.list(JobSet)

    stage.links["a"].unknown = set()
    await stage.clock.run_for(ASK_AGAIN)

    assert (await informers.list(JobSet)).items == []
    assert [entry["kind"] for entry in logged if entry["event"] == "kind.unknown"] == ["JobSet"]
