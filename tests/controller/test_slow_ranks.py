"""A real controller, fed by watches alone, stops a gang to leave the node of a rank that agents show to be slow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import msgspec
import pytest

from healthd.core.api import (
    ANNOTATION_CHECKPOINT,
    ANNOTATION_RESTART,
    ANNOTATION_SLOW_RANK,
    Job,
    Node,
    NodeHealth,
    Occurrence,
    Pod,
)
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.api.model import CauseKind, Verdict
from tests.builders import a_job, a_node, a_nodehealth, a_pod
from tests.controller.replicas import Replicas
from tests.core.hang.published import LENGTH, Agents
from tests.fakes import START, settle
from tests.simulation.training import SeenCheckpoints, Store

pytestmark = pytest.mark.slow

RANKS = 8
EVEN = {str(rank): 4.0 for rank in range(RANKS)}
SLOW = {str(rank): 4.0 if rank == 5 else 3.4 for rank in range(RANKS)}
WINDOWS = 8
"""In two minutes: agents write, and the gang saves."""


class SlowGang(Replicas):
    """The gang `train` of eight, whose agents publish how much its pods work, and a spare."""

    def __init__(self) -> None:
        super().__init__(history=50)

    async def set_up(self) -> None:
        self.agents, self.store, self.steps = Agents(RANKS), Store(), 0
        for number in range(RANKS + 1):
            node = await self.cluster.create(a_node(f"node-{number}", spare=number == RANKS))
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            await self.cluster.patch(Node, node.metadata.name, ready, subresource="status")
            await self.cluster.create(a_nodehealth(node.metadata.name))
        notes = {ANNOTATION_RESTART: "enabled", ANNOTATION_CHECKPOINT: "/checkpoints/train"}
        job = await self.cluster.create(a_job("train", ranks=RANKS, annotations=notes))
        started = {"status": {"active": RANKS, "startTime": START.isoformat()}}
        await self.cluster.patch(Job, "train", started, namespace="default", subresource="status")
        for rank in range(RANKS):
            labels = {"batch.kubernetes.io/job-name": "train"}
            await self.cluster.create(a_pod(f"train-{rank}", node=f"node-{rank}", index=rank, owner=job, labels=labels))
            running = {"status": {"phase": "Running"}}
            await self.cluster.patch(Pod, f"train-{rank}", running, namespace="default", subresource="status")

    async def wait(self, minutes: int) -> None:
        """In small steps: all programs have their turn in between."""
        for _ in range(12 * minutes):
            await self.clock.run_for(timedelta(seconds=5))
            await settle()

    async def run(self, minutes: int, cores: Mapping[str, float]) -> None:
        """Until it is stopped."""
        for _ in range(minutes // 2):
            await self.wait(minutes=2)
            self.steps += 1
            self.store.save("train", self.steps, whole=True)
            self.agents.now = self.clock.now() - WINDOWS * timedelta(seconds=LENGTH)
            self.agents.work(WINDOWS, cores)
            for rank in range(RANKS + 1):
                await self.publish(rank)
            await settle()
            if await self.is_stopped():
                return

    async def publish(self, number: int) -> None:
        """What the agent of this node writes."""
        status: dict[str, object] = {"verdict": Verdict.HEALTHY, "seenAt": self.clock.now().isoformat()}
        if each := self.agents.published.get(str(number)):
            uid = (await self.cluster.get(Pod, f"train-{number}", "default")).metadata.uid
            rhythm = PodRhythm(uid=uid, state=MemberState.WORKING, period=1.0, allowed=10.0, work=each.work)
            status["rhythms"] = [msgspec.to_builtins(rhythm)]
        await self.cluster.patch(NodeHealth, f"node-{number}", {"status": status}, subresource="status")


@pytest.fixture
async def gang() -> AsyncIterator[SlowGang]:
    gang = SlowGang()
    await gang.set_up()
    await gang.start("a", checkpoints=SeenCheckpoints({"train": gang.store}))
    await gang.until(lambda: gang.is_led_by("a"))
    yield gang
    await gang.close()


async def test_it_is_stopped_right_after_a_save_and_the_events_say_why(gang: SlowGang) -> None:
    await gang.annotate("train", {ANNOTATION_SLOW_RANK: "swap"})
    await gang.run(20, EVEN)
    assert await gang.recoveries() == []
    await gang.run(30, SLOW)

    (recovery,) = await gang.recoveries()
    assert recovery.spec.cause.kind is CauseKind.STRAGGLER
    assert [(each.member, each.node) for each in recovery.spec.cause.suspects] == [("5", "node-5")]
    assert recovery.spec.cause.message.endswith(": moves to node-8, after a save")
    events = (await gang.cluster.list(Occurrence)).items
    (why,) = [each.message for each in events if each.reason == "RecoveryDetected"]
    assert "rank 5 (pod train-5, node node-5) makes its gang about 18% slower (90% sure)" in why


async def test_without_the_annotation_it_is_only_reported(gang: SlowGang) -> None:
    await gang.run(20, EVEN)
    await gang.run(30, SLOW)

    assert await gang.recoveries() == []
    assert "GangStraggler" in {each.reason for each in (await gang.cluster.list(Occurrence)).items}


async def test_what_another_leader_had_seen_does_not_count_for_the_next_one(gang: SlowGang) -> None:
    """It knows the record, and what agents publish: the last six minutes."""
    await gang.annotate("train", {ANNOTATION_SLOW_RANK: "swap"})
    await gang.run(20, EVEN)
    await gang.run(8, SLOW)
    await gang.stop("a")
    await gang.start("b", checkpoints=SeenCheckpoints({"train": gang.store}))
    await gang.until(lambda: gang.is_led_by("b"))
    await gang.wait(minutes=3)
    assert await gang.recoveries() == []

    await gang.run(20, SLOW)
    assert [each.spec.cause.kind for each in await gang.recoveries()] == [CauseKind.STRAGGLER]
