"""A store that is slow, or never answers, is no wait for anything else: its gangs' faults least of all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from healthd.cluster.port import Unavailable
from healthd.controller.dependencies import ReconcilerDependencies
from healthd.controller.ports import CheckpointAnswer
from healthd.controller.reconciler import Reconciler
from healthd.core.api import ANNOTATION_CHECKPOINT, ChosenCheckpoint
from healthd.core.api.model import CauseKind, Phase
from healthd.core.recovery.gang import Root
from healthd.gangs import ADAPTERS
from tests.controller.replicas import Replicas
from tests.fakes import settle
from tests.scenarios.scenario import METRICS, TICK, Scenario
from tests.simulation.training import SeenCheckpoints, Store

pytestmark = pytest.mark.slow


class Hanging(SeenCheckpoints):
    """Stores that never answer while they hang; *asking* are the reads that wait for them."""

    def __init__(self, stores: dict[str, Store]) -> None:
        super().__init__(stores)
        self.hang = False
        self.asking: list[str] = []

    async def newest_step(self, root: Root) -> int | None:
        await self._wait("step")
        return await super().newest_step(root)

    async def latest(
        self,
        root: Root,
        newer_than: int | None = None,
        recovery: object = None,
        doubted: Sequence[ChosenCheckpoint] = (),
    ) -> CheckpointAnswer:
        await self._wait("latest")
        return await super().latest(root, newer_than, recovery, doubted)

    async def _wait(self, what: str) -> None:
        if not self.hang:
            return
        self.asking.append(what)
        try:
            await asyncio.Event().wait()
        finally:
            self.asking.remove(what)


class Slow:
    """A gang of two with a spare, and a controller whose reads run beside it."""

    def __init__(self) -> None:
        self.scenario = Scenario(ranks=2, spares=2)
        self.reported: list[tuple[str, str]] = []
        self.stores = Hanging(self.scenario.trainers.stores)
        self.controller = self._new()
        self._round: asyncio.Task[timedelta] | None = None
        self._reads: asyncio.Task[None] | None = None
        self.scenario.add_loop("controller", self._look)

    def _new(self) -> Reconciler:
        dependencies = ReconcilerDependencies(
            cluster=self.scenario.ground_truth.seen_by("controller"),
            clock=self.scenario.clock,
            adapters=ADAPTERS,
            checkpoints=self.stores,
            metrics=METRICS,
            announce=lambda about, kind, reason, message: self.reported.append((reason, message)),
        )
        return Reconciler(dependencies, self.scenario.config)

    def begin(self) -> None:
        """Let it read."""
        self._reads = asyncio.create_task(
            self.controller.reads.run(lambda key: self.scenario.add_loop("controller", self._look))
        )

    async def _look(self, now: datetime) -> timedelta:
        """One round, or the rest of one that waits for something."""
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self.controller.reconcile_all(now))
        await settle()
        return self._round.result() if self._round.done() else TICK

    async def close(self) -> None:
        """As a leader ends."""
        tasks = [task for task in (self._round, self._reads) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def slow() -> AsyncIterator[Slow]:
    slow = Slow()
    slow.begin()
    yield slow
    await slow.close()
    assert slow.stores.asking == []


async def test_a_hardware_fault_is_answered_at_once_while_the_store_hangs(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.stores.hang = True
    await slow.scenario.run_for(seconds=30)
    assert slow.stores.asking == ["step"]
    slow.scenario.fault("node-1")
    began = slow.scenario.clock.now()
    await slow.scenario.settle()

    assert [each.spec.cause.kind for each in slow.scenario.recoveries()] == [CauseKind.HARDWARE]
    assert slow.scenario.root.suspended
    assert slow.scenario.clock.now() == began


async def test_a_second_fault_is_answered_at_once_while_the_store_hangs_after_the_start(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.scenario.fault("node-1")
    await slow.scenario.run_until(Phase.CONFIRMING)
    slow.stores.hang = True
    await slow.scenario.run_for(seconds=15)
    assert slow.stores.asking == ["latest"]
    slow.scenario.fault(slow.scenario.places()["1"])
    await slow.scenario.settle()

    assert slow.scenario.recovery().status.phase is Phase.STOPPING
    assert slow.scenario.recovery().status.attempt == 2


async def test_what_the_user_wants_is_seen_while_the_checkpoints_are_verified(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.scenario.fault("node-1")
    slow.stores.hang = True
    await slow.scenario.run_until(Phase.CHOOSING)
    slow.scenario.delete()
    await slow.scenario.run_for(seconds=1)

    assert slow.scenario.recovery().status.phase is Phase.SUPERSEDED
    assert slow.stores.asking == []


async def test_what_was_read_before_a_gang_was_stopped_is_not_believed_after_it(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.stores.hang = True
    await slow.scenario.run_for(seconds=30)
    slow.scenario.fault("node-1")
    await slow.scenario.run_for(seconds=2)

    assert "step" not in slow.stores.asking


async def test_a_gang_that_is_gone_is_not_read_any_more(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.stores.hang = True
    await slow.scenario.run_for(seconds=30)
    slow.scenario.delete()
    await slow.scenario.run_for(minutes=1)

    assert slow.stores.asking == []
    assert slow.controller.reads._gangs == {}


async def test_that_a_verification_takes_long_is_reported_once(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.stores.hang = True
    slow.scenario.fault("node-1")
    await slow.scenario.run_until(Phase.CHOOSING)
    await slow.scenario.run_for(minutes=10)

    reported = [message for reason, message in slow.reported if reason == "CheckpointsSlow"]
    assert reported == [slow.scenario.recovery().status.message]
    assert reported[0].startswith(
        "the checkpoints at /checkpoints/train have been read for more than 10 s, without an answer"
    )


async def test_a_gang_that_waited_for_its_store_goes_on_when_that_answers(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.scenario.fault("node-1")
    slow.scenario.store.outage = "error"
    held = await slow.scenario.run_until(Phase.HELD)
    slow.scenario.store.outage = ""
    await slow.scenario.run_until(Phase.RECOVERED)

    assert held.status.message == "the checkpoints at /checkpoints/train cannot be read: the store does not answer"


async def test_a_store_that_fails_again_and_again_is_asked_less_and_less_often(slow: Slow) -> None:
    asked: list[datetime] = []

    async def latest(*_: Any, **__: Any) -> CheckpointAnswer:
        asked.append(slow.scenario.clock.now())
        raise OSError("connection refused")

    await slow.scenario.run_for(minutes=2)
    slow.scenario.fault("node-1")
    slow.stores.latest = latest  # type: ignore[method-assign]  # a store of this test
    await slow.scenario.run_until(Phase.HELD)
    version = slow.scenario.recovery().metadata.resource_version
    await slow.scenario.run_for(hours=1)

    assert len(asked) <= 70
    assert slow.scenario.recovery().metadata.resource_version == version
    assert [reason for reason, _ in slow.reported].count("RecoveryHeld") == 1


async def test_an_unreadable_store_of_a_started_gang_is_reported_until_it_can_be_read(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=2)
    slow.scenario.fault("node-1")
    confirming = await slow.scenario.run_until(Phase.CONFIRMING)
    slow.scenario.store.outage = "error"
    await slow.scenario.run_for(minutes=5)
    unseen = slow.scenario.recovery().status
    slow.scenario.store.outage = ""
    await slow.scenario.run_until(Phase.RECOVERED)

    assert confirming.status.phase_since == unseen.phase_since
    assert unseen.message == (
        "all of it runs, but whether training moves on cannot be seen: "
        "the checkpoints at /checkpoints/train cannot be read: the store does not answer"
    )


async def test_a_gang_that_may_hang_while_its_store_hangs_is_reported_once_and_left_running(slow: Slow) -> None:
    await slow.scenario.run_for(minutes=10)
    slow.scenario.store.outage = "error"
    await slow.scenario.run_for(hours=2)

    assert slow.scenario.recoveries() == []
    assert [reason for reason, _ in slow.reported] == ["GangMayHang"]


async def test_a_failed_read_of_the_api_server_is_no_evidence_about_the_store(slow: Slow) -> None:
    failures = [Unavailable("timed out"), Unavailable("timed out")]
    real = slow.stores.latest

    async def latest(*args: Any, **_: Any) -> CheckpointAnswer:
        if failures:
            raise failures.pop()
        return await real(*args)

    await slow.scenario.run_for(minutes=2)
    slow.stores.latest = latest  # type: ignore[method-assign]  # a store of this test
    slow.scenario.fault("node-1")
    await slow.scenario.run_until(Phase.RECOVERED)

    assert failures == []
    assert Phase.HELD not in slow.scenario.phases()


async def test_a_leader_that_is_deposed_or_stopped_leaves_no_read() -> None:
    scenario, stores = Replicas(), Hanging({})
    stores.hang = True
    await scenario.set_up()
    await scenario.annotate("train", {ANNOTATION_CHECKPOINT: "/checkpoints/train"})
    await scenario.start("a", checkpoints=stores)
    await scenario.until(lambda: scenario.is_led_by("a"))
    await scenario.clock.run_for(timedelta(seconds=30))
    by_the_leader = list(stores.asking)
    scenario.links["a"].cut = True
    await scenario.clock.run_for(timedelta(minutes=1))
    once_deposed = list(stores.asking)
    scenario.links["a"].cut = False
    await scenario.clock.run_for(timedelta(minutes=1))
    leading_again = list(stores.asking)
    await scenario.close()

    assert (by_the_leader, once_deposed, leading_again, stores.asking) == (["step"], [], ["step"], [])
