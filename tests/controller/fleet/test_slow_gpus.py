"""Ranks with a slow GPU, by the clocks that agents publish: what is recorded and reported, also by a new leader."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.controller.fleet.stragglers import EVERY
from healthd.core.api import ANNOTATION_STRAGGLERS, Job, Node, NodeHealth, Pod
from healthd.core.api.health import (
    GPUS,
    MOST_WINDOWS,
    GpuClock,
    GpuClocks,
    GpuWork,
    HostBoundGpu,
    MemberState,
    PodRhythm,
)
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.gpus.slow_gpus import OVER
from healthd.core.recovery.gang import Root
from tests.builders import a_finding
from tests.controller.fleet.test_stragglers import RANKS, Gang
from tests.core.recovery.silences import with_gpus
from tests.fakes import START

pytestmark = pytest.mark.slow

PCI = "0000:3b:00.0"
USUAL = 1755.0
HOT = ("hw-thermal", "power-cap")


class GpuGang(Gang):
    """A Job of eight pods, each with the eight GPUs of its node, whose agents publish nothing but their clocks."""

    container = with_gpus()

    def __init__(self) -> None:
        super().__init__()
        self.memory: list[float] = []
        """Of the windows that all nodes publish: the part of the time in which the memory of their GPUs is used."""
        self.idle: dict[int, list[float]] = {rank: [] for rank in range(RANKS)}

    async def start(self, rank: int, job: Job) -> None:
        capacity = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}
        await self.cluster.patch(Node, f"node-{rank}", capacity, subresource="status")
        await super().start(rank, job)

    async def train(
        self, time: timedelta, *, slow: int | None = None, mhz: float = 1170.0, limits: Sequence[str] = HOT
    ) -> None:
        """For so long the slowest GPU of rank *slow* runs at *mhz*, and the controller compares them."""
        end = self.clock.now() + time
        while self.clock.now() < end:
            await self.clock.run_for(EVERY)
            for rank in range(RANKS):
                await (self._publish(rank, mhz, limits) if rank == slow else self._publish(rank, USUAL))
            await self.compare()

    async def train_with_late_gpus(
        self,
        time: timedelta,
        *late: HostBoundGpu,
        ranks: Sequence[int] = (5,),
        state: MemberState | None = MemberState.WORKING,
    ) -> None:
        """For so long the nodes of some *ranks* list these, and the controller follows. No *state*: none lists GPUs."""
        end = self.clock.now() + time
        while self.clock.now() < end:
            await self.clock.run_for(EVERY)
            for rank in range(RANKS):
                await self.list_gpus(rank, state, host_bound_gpus=[*late] if rank in ranks else [])
            await self.compare()

    async def train_with_windows(self, time: timedelta, late: int | None = None) -> None:
        """For so long all GPUs of rank *late* wait for their host, and those of the others for these."""
        end = self.clock.now() + time
        while self.clock.now() < end:
            await self.clock.run_for(EVERY)
            self.memory = [*self.memory, 0.4 if late is None else 0.36][-MOST_WINDOWS:]
            newest = datetime.fromtimestamp(self.clock.now().timestamp() // 15 * 15, UTC)
            for rank in range(RANKS):
                idle = [*self.idle[rank], 0.12 if rank == late else 0.02][-MOST_WINDOWS:]
                self.idle[rank] = idle
                await self.list_gpus(rank, gpu_work=GpuWork(end=newest, seconds=15, memory=self.memory, idle=idle))
            await self.compare()

    async def _publish(self, rank: int, mhz: float, limits: Sequence[str] = ("power-cap",)) -> None:
        now = self.clock.now()
        others = [GpuClock(pci=f"0000:af:00.{number}", mhz=USUAL) for number in range(7)]
        gpus = [GpuClock(pci=PCI, mhz=mhz, limited_by=list(limits)), *others]
        clocks = GpuClocks(begin=now - timedelta(seconds=75), end=now, usual=USUAL, highest=1980, gpus=gpus)
        await self.list_gpus(rank, clocks=clocks)

    async def list_gpus(self, rank: int, state: MemberState | None = MemberState.WORKING, **fields: Any) -> None:
        """Its node publishes this of its GPUs."""
        pod = await self.cluster.get(Pod, f"train-{rank}", "default")
        works = PodRhythm(uid=pod.metadata.uid, state=MemberState.WORKING, period=2.0, allowed=12.0)
        gpus = PodRhythm(uid=GPUS, state=state or MemberState.UNKNOWN, period=2.0, allowed=12.0, **fields)
        listed = [works, *([gpus] if state else [])]
        status = {"rhythms": msgspec.to_builtins(listed), "seenAt": self.clock.now().isoformat()}
        await self.cluster.patch(NodeHealth, f"node-{rank}", {"status": status}, subresource="status")

    @property
    def root(self) -> Root:
        return next(iter(self.state.roots.values()))


def a_late_gpu(gang: GpuGang) -> HostBoundGpu:
    """It begins to wait for its host now."""
    return HostBoundGpu(pci=PCI, since=gang.clock.now(), slower=0.1, idle=0.11, peers_idle=0.02, confidence=0.75)


async def a_gang_that_trains() -> GpuGang:
    gang = GpuGang()
    await gang.open()
    await gang.train(timedelta(minutes=5))
    return gang


async def test_a_slow_gpu_is_reported_and_recorded_once_with_pod_node_and_finding_and_so_is_its_end() -> None:
    gang = await a_gang_that_trains()
    hot = msgspec.to_builtins(a_finding("nvml-thermal-slowdown", device=PCI, message="it is too hot for its clock"))
    await gang.cluster.patch(NodeHealth, "node-5", {"status": {"findings": [hot]}}, subresource="status")
    await gang.train(timedelta(minutes=5), slow=5)

    [(reason, message)] = gang.reported
    assert reason == "GangStraggler"
    assert message == (
        "rank 5 (pod train-5, node node-5) has a GPU that is 50% slower than those of its peers, which have to wait "
        f"(95% sure): {PCI} runs at 1,170 MHz while it works, those of its peers at 1,755 MHz: it is too hot; "
        f"its node has {PCI}/nvml-thermal-slowdown: it is too hot for its clock"
    )
    [recorded] = await gang.record()
    assert (recorded.rank, recorded.gpu, recorded.node, recorded.ended_at) == ("5", PCI, "node-5", None)

    await gang.train(OVER + 2 * EVERY)
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]
    assert gang.stragglers.present(gang.root) == []


async def test_gpus_that_run_alike_are_not_reported() -> None:
    gang = await a_gang_that_trains()
    await gang.train(timedelta(minutes=30), slow=5, mhz=1700.0)

    assert gang.reported == []


async def test_a_new_leader_reports_it_no_second_time_and_reports_its_end() -> None:
    gang = await a_gang_that_trains()
    await gang.train(timedelta(minutes=5), slow=5)
    gang.lead()
    await gang.train(timedelta(minutes=5), slow=5)
    assert gang.reasons == ["GangStraggler"]

    await gang.train(OVER + 2 * EVERY)
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]


async def test_it_is_slow_now_while_the_newest_clocks_show_it() -> None:
    """So its gang may leave the node, where its owner allows it."""
    gang = await a_gang_that_trains()
    await gang.train(timedelta(minutes=11), slow=5)
    [slow] = gang.stragglers.slow_now(gang.root)
    assert (slow.rank, slow.seen_at - slow.since >= timedelta(minutes=10)) == ("5", True)

    await gang.train(EVERY)
    assert gang.stragglers.slow_now(gang.root) == ()


async def test_pods_that_were_made_anew_end_it() -> None:
    gang = await a_gang_that_trains()
    await gang.train(timedelta(minutes=5), slow=5)
    await gang.cluster.delete(Pod, "train-2", namespace="default", grace_seconds=0)
    await gang.start(2, await gang.cluster.get(Job, "train", "default"))
    await gang.compare()

    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]
    assert [each.was_stopped for each in await gang.record()] == [True]


async def test_what_was_usual_of_the_pods_before_says_nothing_of_the_gpus_of_others() -> None:
    """A rank that moved has other GPUs, whose addresses are those of the GPUs before."""
    gang = await a_gang_that_trains()
    await gang.train(timedelta(hours=1))
    await gang.cluster.delete(Pod, "train-5", namespace="default", grace_seconds=0)
    await gang.start(5, await gang.cluster.get(Job, "train", "default"))
    await gang.train(timedelta(minutes=10), slow=5, mhz=1600.0, limits=())  # by nature

    assert gang.reported == []


@pytest.mark.parametrize(("rank", "gpu"), [("3", "0000:ff:00.0"), ("3", PCI), ("of another gang", PCI)])
async def test_a_record_that_its_owner_made_up_is_no_slow_gpu_for_long(rank: str, gpu: str) -> None:
    made_up = Straggler(rank=rank, gpu=gpu, slower=0.5, since=START, seen_at=START, ran=0, starved=0, peers_ran=0,
                        peers_starved=0, confidence=1)  # fmt: skip
    gang = GpuGang()
    await gang.open({ANNOTATION_STRAGGLERS: msgspec.json.encode([made_up]).decode()})
    await gang.train(timedelta(minutes=10))

    assert gang.stragglers.present(gang.root) == []
    assert "GangStraggler" not in gang.reasons


async def test_a_gpu_whose_host_comes_late_is_reported_and_recorded_once_and_so_is_its_end() -> None:
    """The agent of its node compares it with the others there, and no gang is moved for it."""
    gang = await a_gang_that_trains()
    late = a_late_gpu(gang)
    await gang.train_with_late_gpus(timedelta(minutes=5), late)

    [(reason, message)] = gang.reported
    assert reason == "GangStraggler"
    assert message == (
        f"rank 5 (pod train-5, node node-5) makes its gang about 10% slower (75% sure): the GPU {PCI} runs no kernel "
        "11% of the time, those of its peers 2%, which wait for it: its host comes late, as with data that load slowly "
        "or other work of its processor"
    )
    [recorded] = await gang.record()
    assert (recorded.rank, recorded.gpu, recorded.node, recorded.idle) == ("5", PCI, "node-5", 0.11)
    assert not gang.stragglers.slow_now(gang.root)

    gang.lead()
    await gang.train_with_late_gpus(timedelta(minutes=5), late)
    assert gang.reasons == ["GangStraggler"]

    await gang.train_with_late_gpus(2 * EVERY, msgspec.structs.replace(late, ended_at=gang.clock.now()))
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]
    assert gang.stragglers.present(gang.root) == []


async def test_of_two_gpus_of_a_pod_that_are_late_one_is_reported_and_the_other_when_that_is_over() -> None:
    gang = await a_gang_that_trains()
    first = a_late_gpu(gang)
    second = msgspec.structs.replace(first, pci="0000:af:00.0")
    await gang.train_with_late_gpus(2 * EVERY, first, second)
    assert gang.reasons == ["GangStraggler"]
    over = msgspec.structs.replace(first, ended_at=gang.clock.now())
    await gang.train_with_late_gpus(2 * EVERY, over, second)

    assert gang.reasons == ["GangStraggler", "GangStragglerOver", "GangStraggler"]
    assert gang.reported[1][1] == f"the GPU {PCI} of rank 5 keeps up with the others again, after 1 minute"
    assert [each.gpu for each in await gang.record()] == [PCI, "0000:af:00.0"]


async def test_late_gpus_of_more_than_a_quarter_of_the_nodes_are_not_reported() -> None:
    gang = await a_gang_that_trains()
    late = a_late_gpu(gang)
    await gang.train_with_late_gpus(5 * EVERY, late, ranks=(3, 4, 5))

    assert gang.reported == []


@pytest.mark.parametrize("state", [MemberState.SILENT, None], ids=["they are silent", "they do not answer"])
async def test_gpus_of_which_nothing_new_is_known_end_no_late_one(state: MemberState | None) -> None:
    gang = await a_gang_that_trains()
    late = a_late_gpu(gang)
    await gang.train_with_late_gpus(2 * EVERY, late)
    await gang.train_with_late_gpus(timedelta(minutes=20), late, state=state)
    await gang.train_with_late_gpus(2 * EVERY, late)

    assert gang.reasons == ["GangStraggler"]


async def test_one_that_its_agent_lists_no_more_is_said_to_be_no_longer_seen() -> None:
    """An agent that begins anew does not know how much its GPUs usually wait."""
    gang = await a_gang_that_trains()
    await gang.train_with_late_gpus(2 * EVERY, a_late_gpu(gang))
    await gang.train_with_late_gpus(timedelta(minutes=20))

    [_, (_, message)] = gang.reported
    assert f"the GPU {PCI} of rank 5 is no longer seen to be slow, for its agent began anew, after" in message
    assert [each.was_lost for each in await gang.record()] == [True]


async def test_a_node_whose_gpus_wait_for_their_host_is_reported_once_whichever_controller_leads() -> None:
    gang = await a_gang_that_trains()
    await gang.train_with_windows(timedelta(minutes=30))
    assert gang.reported == []
    await gang.train_with_windows(timedelta(minutes=4), late=5)

    [(_, message)] = gang.reported
    assert message == (
        "rank 5 (pod train-5, node node-5) makes its gang about 11% slower (75% sure): its GPUs run no kernel 12% of "
        "the time, those of its peers 2%, which wait for it: its host comes late, as with data that load slowly or "
        "other work of its processor"
    )
    gang.lead()
    await gang.train_with_windows(timedelta(minutes=4), late=5)
    assert gang.reasons == ["GangStraggler"]
    assert not gang.stragglers.slow_now(gang.root)

    await gang.train_with_windows(timedelta(minutes=4))
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]
