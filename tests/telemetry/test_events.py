"""Telling what happens as Kubernetes Events: it never waits, never fails, and never tells too much."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import ClusterError, Forbidden, Unavailable, WebhookFailed
from healthd.core.api import ObjectReference, Occurrence
from healthd.telemetry.events import (
    BURST,
    EVERY,
    LONGEST_MESSAGE,
    NORMAL,
    QUEUE,
    RETRY,
    RETRY_MOST,
    SAID_AGAIN,
    WARNING,
    Announcer,
    about,
)
from healthd.telemetry.metrics import Metrics
from tests.builders import a_node, a_recovery
from tests.fakes import ManualClock, counting_uids, settle

A_JOB = ObjectReference(api_version="batch/v1", kind="Job", namespace="default", name="train", uid="uid-1")


class Server:
    """A cluster that takes events, or does not."""

    def __init__(self, clock: ManualClock) -> None:
        self.cluster = EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids())
        self.trouble: Exception | None = None
        self.dead_webhook_of = ""
        """A namespace."""
        self.hangs = ""
        """A namespace of which no request is answered."""
        self.asked = 0

    async def create(self, obj: Any) -> Any:
        self.asked += 1
        if obj.metadata.namespace == self.hangs:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        if obj.metadata.namespace == self.dead_webhook_of:
            raise WebhookFailed("failed calling webhook")
        return await self.cluster.create(obj)

    async def reported(self) -> list[Occurrence]:
        return (await self.cluster.list(Occurrence)).items


class RunningAnnouncer:
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

    def announce(self, count: int) -> None:
        for number in range(count):
            self.announcer(A_JOB, NORMAL, "Stopping", f"number {number}")


@pytest.fixture
async def announcing() -> AsyncIterator[RunningAnnouncer]:
    announcing = RunningAnnouncer()
    running = asyncio.create_task(announcing.announcer.run())
    yield announcing
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_event_is_about_its_object(announcing: RunningAnnouncer) -> None:
    announcing.announcer(A_JOB, WARNING, "RecoveryHeld", "no spare")
    await settle()

    (event,) = await announcing.server.reported()
    assert (event.involved_object, event.type, event.reason, event.message) == (
        A_JOB,
        "Warning",
        "RecoveryHeld",
        "no spare",
    )
    assert event.metadata.namespace == "default"
    assert event.source.component == "healthd-controller"


async def test_an_event_about_an_object_without_a_namespace_is_where_kubectl_finds_it() -> None:
    announcing = RunningAnnouncer()
    node = await announcing.server.cluster.create(a_node("gpu-17"))
    announcing.announcer(about(node), NORMAL, "GangStarting", "takes the place of gpu-3")
    await announcing.announcer.flush(limit=5)

    (event,) = await announcing.server.reported()
    assert event.metadata.namespace == "default"
    assert (event.involved_object.kind, event.involved_object.uid) == ("Node", node.metadata.uid)


async def test_the_same_twice_in_a_row_is_reported_once(announcing: RunningAnnouncer) -> None:
    for message in ("no spare", "no spare", "no checkpoint"):
        announcing.announcer(A_JOB, WARNING, "RecoveryHeld", message)
    await settle()

    assert sorted(event.message for event in await announcing.server.reported()) == ["no checkpoint", "no spare"]


async def test_what_lasts_is_reported_again_before_the_api_server_has_forgotten_it(
    announcing: RunningAnnouncer,
) -> None:
    for _ in range(3):
        announcing.announcer(A_JOB, WARNING, "GangStuck", "a policy refuses it")
        announcing.announcer(A_JOB, WARNING, "GangStuck", "a policy refuses it")
        await announcing.clock.run_for(SAID_AGAIN)

    assert len(await announcing.server.reported()) == 3


async def test_a_flood_is_sent_slowly(announcing: RunningAnnouncer) -> None:
    announcing.announce(BURST + 10)
    await settle()
    assert len(await announcing.server.reported()) == BURST

    await announcing.clock.run_for(10 * EVERY)

    assert len(await announcing.server.reported()) == BURST + 10


async def test_what_does_not_fit_is_dropped_and_counted() -> None:
    announcing = RunningAnnouncer()
    announcing.announce(QUEUE + 3)

    assert announcing.dropped() == 3


@pytest.mark.parametrize("trouble", [Unavailable("no route"), WebhookFailed("failed calling webhook")])
async def test_what_cannot_be_sent_for_a_while_is_sent_later(
    announcing: RunningAnnouncer, trouble: ClusterError
) -> None:
    announcing.server.trouble = trouble
    announcing.announce(2)
    await settle()
    announcing.server.trouble = None
    await announcing.clock.run_for(RETRY)

    assert len(await announcing.server.reported()) == 2
    assert announcing.dropped() == 0


async def test_a_webhook_of_one_namespace_keeps_no_event_of_another_one(announcing: RunningAnnouncer) -> None:
    announcing.server.dead_webhook_of = "default"
    announcing.announce(2)
    announcing.announcer(about(a_recovery(namespace="other")), WARNING, "Held", "no spare")
    await settle()
    await announcing.clock.run_for(2 * RETRY)
    assert [event.message for event in await announcing.server.reported()] == ["no spare"]

    announcing.server.dead_webhook_of = ""
    await announcing.clock.run_for(2 * RETRY)

    assert len(await announcing.server.reported()) == 3
    assert announcing.dropped() == 0


async def test_many_events_behind_a_dead_webhook_delay_no_other_one(announcing: RunningAnnouncer) -> None:
    announcing.server.dead_webhook_of = "default"
    announcing.announce(20)
    await settle()

    announcing.announcer(about(a_recovery(namespace="other")), WARNING, "Held", "no spare")
    await settle()

    assert [event.message for event in await announcing.server.reported()] == ["no spare"]


async def test_nor_does_a_webhook_that_keeps_the_request_until_its_time_out(announcing: RunningAnnouncer) -> None:
    announcing.server.hangs = "default"
    announcing.announce(1)
    await settle()

    announcing.announcer(about(a_recovery(namespace="other")), WARNING, "Held", "no spare")
    await settle()

    assert [event.message for event in await announcing.server.reported()] == ["no spare"]


async def test_a_webhook_that_stays_dead_is_asked_less_and_less_often(announcing: RunningAnnouncer) -> None:
    announcing.server.dead_webhook_of = "default"
    announcing.announce(5)
    await announcing.clock.run_for(timedelta(minutes=10))
    assert 10 < announcing.server.asked < 20

    announcing.server.dead_webhook_of = ""
    await announcing.clock.run_for(RETRY_MOST)

    messages = [event.message for event in await announcing.server.reported()]
    assert sorted(messages) == [f"number {number}" for number in range(5)]
    assert announcing.dropped() == 0


async def test_events_that_cannot_be_sent_take_no_room_of_the_others(announcing: RunningAnnouncer) -> None:
    announcing.server.dead_webhook_of = "default"
    announcing.announce(QUEUE - 1)
    for number in range(3):
        announcing.announcer(about(a_recovery(f"train-{number}", namespace="other")), WARNING, "Held", "no spare")
    await settle()

    assert len(await announcing.server.reported()) == 3
    assert announcing.dropped() == 2


async def test_the_end_of_the_process_sends_what_no_webhook_keeps_back() -> None:
    announcing = RunningAnnouncer()
    announcing.server.hangs = "default"
    announcing.announce(1)
    announcing.announcer(about(a_recovery(namespace="other")), WARNING, "Held", "no spare")

    await announcing.announcer.flush(limit=0.05)

    assert [event.message for event in await announcing.server.reported()] == ["no spare"]
    assert announcing.dropped() == 1


async def test_what_is_refused_is_not_said_again(announcing: RunningAnnouncer) -> None:
    announcing.server.trouble = Forbidden("events is forbidden")
    announcing.announce(2)
    await settle()
    announcing.server.trouble = None
    await announcing.clock.run_for(timedelta(minutes=1))

    assert await announcing.server.reported() == []
    assert announcing.dropped() == 2


async def test_the_end_of_the_process_sends_the_rest() -> None:
    announcing = RunningAnnouncer()
    announcing.announce(3)
    await announcing.announcer.flush(limit=5)

    assert len(await announcing.server.reported()) == 3


def test_an_object_is_named_as_the_api_server_knows_it() -> None:
    named = about(a_recovery("train-1"))

    assert (named.api_version, named.kind, named.namespace, named.name) == (
        "healthd.dev/v1alpha1",
        "Recovery",
        "default",
        "train-1",
    )


async def test_what_a_tenant_wrote_cannot_move_the_cursor_of_a_terminal(announcing: RunningAnnouncer) -> None:
    announcing.announcer(A_JOB, WARNING, "GangInvalid", "one\ntwo \x1b[2J" + "x" * 5000)
    await settle()

    (event,) = await announcing.server.reported()
    assert event.message.startswith("one\\u000atwo \\u001b[2Jxxx")
    assert len(event.message) == LONGEST_MESSAGE


async def test_an_event_that_cannot_be_written_is_no_reason_to_end(announcing: RunningAnnouncer) -> None:
    announcing.server.trouble = ZeroDivisionError("a fault of ours")
    announcing.announce(1)
    await settle()
    announcing.server.trouble = None
    announcing.announce(2)
    await settle()

    assert [event.message for event in await announcing.server.reported()] == ["number 1"]
