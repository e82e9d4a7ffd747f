"""The leader's heartbeat: it beats while the reconcile loop turns, and nothing else of healthd depends on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from healthd.alerts.sink import Answer, Outcome
from healthd.clock import Clock
from healthd.controller.alerts.heartbeat import Heartbeat
from healthd.core.api import Job, Recovery
from healthd.telemetry.metrics import Metrics
from tests.controller.replicas import Replicas
from tests.fakes import ManualClock, settle

MINUTE = timedelta(minutes=1)
HEARD = Outcome(Answer.ACCEPTED, "answered 200")
NOT_HEARD = Outcome(Answer.RETRY, "answered 500")


class FakeHeartbeat:
    """It hears everything, unless *answer* is something else. While *hangs* it does not answer."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.beats: list[datetime] = []
        self.answer: Outcome | Exception = HEARD
        self.hangs = False
        self.is_closed = False

    async def beat(self) -> Outcome:
        """Hear one."""
        self.beats.append(self._clock.now())
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        """Remember that."""
        self.is_closed = True


@pytest.fixture
async def scenario() -> AsyncIterator[Replicas]:
    scenario = Replicas(history=100)  # each tenth write, such as of the Lease, is a sign of life on every watch
    await scenario.set_up()
    yield scenario
    await scenario.close()


async def led_with(scenario: Replicas, heartbeat: FakeHeartbeat) -> None:
    """Replica "a" leads."""
    await scenario.start("a", heartbeat=heartbeat)
    await scenario.until(lambda: scenario.is_led_by("a"))


def count(scenario: Replicas, result: str) -> float | None:
    """How often that became of a heartbeat of "a"."""
    registry = scenario.daemons["a"].metrics.registry
    return registry.get_sample_value("healthd_heartbeats_total", {"result": result})


async def test_the_leader_beats_once_in_each_interval(scenario: Replicas) -> None:
    heartbeat = FakeHeartbeat(scenario.clock)
    await led_with(scenario, heartbeat)
    await scenario.clock.run_for(5 * MINUTE)

    gaps = {after - before for before, after in zip(heartbeat.beats, heartbeat.beats[1:], strict=False)}
    assert len(heartbeat.beats) in (5, 6)
    assert gaps == {MINUTE}
    assert count(scenario, "heard") == len(heartbeat.beats)
    heard = scenario.gauge("a", "healthd_heartbeat_heard_timestamp_seconds")
    assert heard == heartbeat.beats[-1].timestamp()


async def test_only_the_leader_beats_and_its_successor_goes_on_at_once(scenario: Replicas) -> None:
    first, second = FakeHeartbeat(scenario.clock), FakeHeartbeat(scenario.clock)
    await led_with(scenario, first)
    await scenario.start("b", heartbeat=second)
    await scenario.clock.run_for(2 * MINUTE)
    stood_by = list(second.beats)
    await scenario.stop("a")
    ended = scenario.clock.now()
    await scenario.until(lambda: scenario.is_led_by("b"))
    await scenario.clock.run_for(timedelta(seconds=5))

    assert stood_by == []
    assert first.is_closed
    assert second.beats[0] - ended < timedelta(seconds=20)


async def test_a_controller_that_sees_nothing_beats_no_more(scenario: Replicas) -> None:
    heartbeat = FakeHeartbeat(scenario.clock)
    await led_with(scenario, heartbeat)
    await scenario.clock.run_for(MINUTE)
    scenario.links["a"].cut = True
    cut = scenario.clock.now()
    await scenario.clock.run_for(10 * MINUTE)

    assert heartbeat.beats[-1] - cut < MINUTE


async def test_a_loop_that_stands_still_is_said_once_and_ends_the_beats_until_it_turns_again() -> None:
    clock, rounds, metrics = ManualClock(), [1], Metrics()
    service = FakeHeartbeat(clock)
    heartbeat = Heartbeat(service, clock, interval=MINUTE, rounds=lambda: rounds[0], metrics=metrics)
    running = asyncio.create_task(heartbeat.run())
    with capture_logs() as logs:
        await clock.run_for(5 * MINUTE)
    stood = list(service.beats)
    rounds[0] += 1
    await clock.run_for(timedelta(seconds=2))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert len(stood) == 1
    assert len(service.beats) == 2
    assert metrics.registry.get_sample_value("healthd_heartbeats_total", {"result": "withheld"}) == 1
    assert [line["log_level"] for line in logs if line["event"] == "heartbeat.withheld"] == ["error"]


@pytest.mark.parametrize("answer", [NOT_HEARD, RuntimeError("https://hc.example/secret")], ids=["status", "error"])
async def test_a_failure_is_counted_logged_and_tried_again_sooner(
    scenario: Replicas, answer: Outcome | Exception
) -> None:
    heartbeat = FakeHeartbeat(scenario.clock)
    heartbeat.answer = answer
    with capture_logs() as logs:
        await led_with(scenario, heartbeat)
        await scenario.clock.run_for(timedelta(seconds=35))

    said = [line for line in logs if line["event"] == "heartbeat.not_sent"]
    assert len(heartbeat.beats) == len(said) == count(scenario, "failed")
    assert heartbeat.beats[1] - heartbeat.beats[0] == timedelta(seconds=10)
    assert "secret" not in str(said)


async def test_a_service_that_hangs_holds_up_no_recovery(scenario: Replicas) -> None:
    heartbeat = FakeHeartbeat(scenario.clock)
    heartbeat.hangs = True
    await led_with(scenario, heartbeat)
    await scenario.quarantine("node-1")
    await scenario.until(scenario.is_stopped)
    await scenario.clock.run_for(MINUTE)
    await settle()

    assert len((await scenario.cluster.list(Recovery)).items) == 1
    assert (await scenario.cluster.get(Job, "train", "default")).spec.suspend
    assert (count(scenario, "failed") or 0) > 1
