"""Telling what happens as Kubernetes Events: it never waits, never fails, and never tells too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Forbidden, Unavailable
from healthd.core.api import ObjectReference, Occurrence
from healthd.telemetry.events import BURST, EVERY, LONGEST_MESSAGE, NORMAL, QUEUE, RETRY, WARNING, Announcer, about
from healthd.telemetry.metrics import Metrics
from tests.builders import a_node, a_recovery
from tests.fakes import ManualClock, counting_uids, settle

A_JOB = ObjectReference(api_version="batch/v1", kind="Job", namespace="default", name="train", uid="uid-1")


class Server:
    """A cluster that takes events, or does not."""

    def __init__(self, clock: ManualClock) -> None:
        self.cluster = EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids())
        self.trouble: Exception | None = None

    async def create(self, obj: Any) -> Any:
        if self.trouble is not None:
            raise self.trouble
        return await self.cluster.create(obj)

    async def told(self) -> list[Occurrence]:
        return (await self.cluster.list(Occurrence)).items


class Stage:
    """An announcer that somebody runs."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.server = Server(self.clock)
        self.metrics = Metrics()
        cluster: Any = self.server
        self.announcer = Announcer(
            cluster, self.clock, component="healthd-controller", instance="pod-1", metrics=self.metrics
        )

    def dropped(self) -> float | None:
        return self.metrics.registry.get_sample_value("healthd_events_dropped_total")

    def say(self, count: int) -> None:
        for number in range(count):
            self.announcer(A_JOB, NORMAL, "Stopping", f"number {number}")


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    running = asyncio.create_task(stage.announcer.run())
    yield stage
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_is_said_is_told_of_the_object(stage: Stage) -> None:
    stage.announcer(A_JOB, WARNING, "RecoveryHeld", "no spare")
    await settle()

    (event,) = await stage.server.told()
    assert (event.involved_object, event.type, event.reason, event.message) == (
        A_JOB,
        "Warning",
        "RecoveryHeld",
        "no spare",
    )
    assert event.metadata.namespace == "default"
    assert event.source.component == "healthd-controller"


async def test_an_object_in_no_namespace_is_told_of_where_kubectl_looks() -> None:
    stage = Stage()
    node = await stage.server.cluster.create(a_node("gpu-17"))
    stage.announcer(about(node), NORMAL, "GangStarting", "takes the place of gpu-3")
    await stage.announcer.tell_the_rest(limit=5)

    (event,) = await stage.server.told()
    assert event.metadata.namespace == "default"
    assert (event.involved_object.kind, event.involved_object.uid) == ("Node", node.metadata.uid)


async def test_the_same_twice_in_a_row_is_told_once(stage: Stage) -> None:
    for message in ("no spare", "no spare", "no checkpoint"):
        stage.announcer(A_JOB, WARNING, "RecoveryHeld", message)
    await settle()

    assert sorted(event.message for event in await stage.server.told()) == ["no checkpoint", "no spare"]


async def test_a_flood_is_told_slowly(stage: Stage) -> None:
    stage.say(BURST + 10)
    await settle()
    assert len(await stage.server.told()) == BURST

    await stage.clock.run_for(10 * EVERY)

    assert len(await stage.server.told()) == BURST + 10


async def test_what_does_not_fit_is_dropped_and_counted() -> None:
    stage = Stage()
    stage.say(QUEUE + 3)

    assert stage.dropped() == 3


async def test_a_server_that_is_away_is_told_when_it_is_back(stage: Stage) -> None:
    stage.server.trouble = Unavailable("no route")
    stage.say(2)
    await settle()
    stage.server.trouble = None
    await stage.clock.run_for(RETRY)

    assert len(await stage.server.told()) == 2
    assert stage.dropped() == 0


async def test_what_is_refused_is_not_said_again(stage: Stage) -> None:
    stage.server.trouble = Forbidden("events is forbidden")
    stage.say(2)
    await settle()
    stage.server.trouble = None
    await stage.clock.run_for(timedelta(minutes=1))

    assert await stage.server.told() == []
    assert stage.dropped() == 2


async def test_the_end_of_the_process_tells_the_rest() -> None:
    stage = Stage()
    stage.say(3)
    await stage.announcer.tell_the_rest(limit=5)

    assert len(await stage.server.told()) == 3


def test_an_object_is_named_as_the_api_server_knows_it() -> None:
    named = about(a_recovery("train-1"))

    assert (named.api_version, named.kind, named.namespace, named.name) == (
        "healthd.dev/v1alpha1",
        "Recovery",
        "default",
        "train-1",
    )


async def test_what_a_tenant_wrote_cannot_move_the_cursor_of_whoever_reads_it(stage: Stage) -> None:
    stage.announcer(A_JOB, WARNING, "GangInvalid", "one\ntwo \x1b[2J" + "x" * 5000)
    await settle()

    (event,) = await stage.server.told()
    assert event.message.startswith("one\\u000atwo \\u001b[2Jxxx")
    assert len(event.message) == LONGEST_MESSAGE


async def test_an_event_that_cannot_be_written_is_no_reason_to_end(stage: Stage) -> None:
    stage.server.trouble = ZeroDivisionError("a fault of ours")
    stage.say(1)
    await settle()
    stage.server.trouble = None
    stage.say(2)
    await settle()

    assert [event.message for event in await stage.server.told()] == ["number 1"]
