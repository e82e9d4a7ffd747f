"""Ranks that others of their own pod wait for, as agents list them: what is recorded and reported."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.cluster.port import Forbidden
from healthd.controller.fleet.stragglers import EVERY
from healthd.core.api import ANNOTATION_SLOW_RANK, ANNOTATION_STRAGGLERS, Job, NodeHealth, Pod
from healthd.core.api.health import MemberState, PodRhythm, PodSlowRank
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.slow_in_pods import MISSING_FOR
from healthd.core.recovery.gang import Root
from tests.builders import a_finding
from tests.controller.fleet.test_slow_gpus import GpuGang
from tests.controller.fleet.test_stragglers import RANKS, Gang
from tests.fakes import START

pytestmark = pytest.mark.slow

MINUTE = timedelta(minutes=1)
SLOW = PodSlowRank(
    rank=13,
    pid=4711,
    since=START + MINUTE,
    slower=0.25,
    ran=0.8,
    starved=0.0,
    peers_ran=0.6,
    peers_starved=0.0,
    confidence=0.9,
)


class GangOfEights(Gang):
    """A Job of eight pods with eight ranks each."""

    @property
    def root(self) -> Root:
        return next(iter(self.state.roots.values()))

    async def train(self, time: timedelta, *slow: PodSlowRank, without: tuple[int, ...] = ()) -> None:
        """For so long the agent of node 1 lists these, and those of the nodes *without* list no pod."""
        end = self.clock.now() + time
        while self.clock.now() < end:
            await self.clock.run_for(EVERY)
            for rank in range(RANKS):
                await self._list(rank, list(slow) if rank == 1 else [], is_known=rank not in without)
            await self.compare()

    async def _list(self, rank: int, slow: list[PodSlowRank], *, is_known: bool) -> None:
        pod = await self.cluster.get(Pod, f"train-{rank}", "default")
        uid, state = pod.metadata.uid, MemberState.WORKING
        rhythm = PodRhythm(uid=uid, state=state, period=1.0, allowed=10.0, slow_ranks=slow)
        rhythms = [msgspec.to_builtins(rhythm)] if is_known else []
        status = {"rhythms": rhythms, "seenAt": self.clock.now().isoformat()}
        await self.cluster.patch(NodeHealth, f"node-{rank}", {"status": status}, subresource="status")


class SlowGpuGang(GpuGang):
    """A gang of which rank 5 has a slow GPU, and a pod has a rank that is slow."""

    async def compare(self) -> None:
        pod = await self.cluster.get(Pod, "train-1", "default")
        slow = PodRhythm(uid=pod.metadata.uid, state=MemberState.WORKING, period=1.0, allowed=10.0, slow_ranks=[SLOW])
        known = (await self.cluster.get(NodeHealth, "node-1")).status.rhythms
        rhythms = [msgspec.to_builtins(each) for each in (slow, *(each for each in known if each.uid != slow.uid))]
        await self.cluster.patch(NodeHealth, "node-1", {"status": {"rhythms": rhythms}}, subresource="status")
        await super().compare()


def recorded(**what: Any) -> dict[str, str]:
    """The record of one that was slow, as an annotation."""
    known = {"slower": 0.5, "since": START, "seen_at": START, "ran": 0, "starved": 0, "peers_ran": 0}
    straggler = Straggler(**{**known, "peers_starved": 0, "confidence": 1, **what})
    return {ANNOTATION_STRAGGLERS: msgspec.json.encode([straggler]).decode()}


async def a_gang(notes: dict[str, str] | None = None) -> GangOfEights:
    gang = GangOfEights()
    await gang.open(notes)
    await gang.train(2 * MINUTE)
    return gang


def ended(at: datetime) -> PodSlowRank:
    return msgspec.structs.replace(SLOW, ended_at=at)


async def test_it_is_reported_and_recorded_once_with_rank_pod_node_process_and_finding_and_so_is_its_end() -> None:
    gang = await a_gang()
    hot = msgspec.to_builtins(a_finding("host-cpu-throttled", device="node", message="a processor is too hot"))
    await gang.cluster.patch(NodeHealth, "node-1", {"status": {"findings": [hot]}}, subresource="status")
    await gang.train(3 * MINUTE, SLOW)

    [(reason, message)] = gang.reported
    assert reason == "GangStraggler"
    assert message == (
        "rank 13 (pod train-1, node node-1, process 4711) is about 25% slower than the other ranks of its pod, and "
        "they wait for it (90% sure): its main thread computes 80% of the time, its peers 60%: it has more to do on "
        "the processor, or its processor is slower; its node has node/host-cpu-throttled: a processor is too hot"
    )
    [recorded] = await gang.record()
    assert (recorded.rank, recorded.pod, recorded.pid, recorded.ended_at) == ("13", "train-1", 4711, None)
    assert [each.rank for each in gang.stragglers.present(gang.root)] == ["13"]

    await gang.train(MINUTE, ended(SLOW.since + 4 * MINUTE))
    assert gang.reported[1:] == [
        ("GangStragglerOver", "rank 13 keeps up with the others again, after 4 minutes"),
    ]
    assert gang.stragglers.present(gang.root) == []


async def test_a_new_leader_reports_it_no_second_time_and_reports_its_end() -> None:
    gang = await a_gang()
    await gang.train(3 * MINUTE, SLOW)
    gang.lead()
    await gang.train(3 * MINUTE, SLOW)
    assert gang.reasons == ["GangStraggler"]

    await gang.train(MINUTE, ended(SLOW.since + 6 * MINUTE))
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]


async def test_an_agent_that_is_restarted_ends_nothing_and_begins_nothing() -> None:
    gang = await a_gang()
    await gang.train(3 * MINUTE, SLOW)
    await gang.train(3 * MINUTE, without=(1,))
    await gang.train(3 * MINUTE)
    await gang.train(3 * MINUTE, msgspec.structs.replace(SLOW, since=gang.clock.now(), from_start=True))

    assert gang.reasons == ["GangStraggler"]


async def test_one_that_is_listed_no_more_is_over_after_a_while() -> None:
    gang = await a_gang()
    await gang.train(3 * MINUTE, SLOW)
    await gang.train(MISSING_FOR + MINUTE)

    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]


async def test_while_a_pod_of_its_gang_is_missing_none_begins() -> None:
    gang = await a_gang()
    await gang.cluster.delete(Pod, "train-5", namespace="default", grace_seconds=0)
    await gang.clock.run_for(EVERY)
    await gang._list(1, [SLOW], is_known=True)
    await gang.compare()

    assert gang.reported == []


async def test_pods_that_were_made_anew_end_it_and_what_was_listed_of_those_before_begins_nothing() -> None:
    gang = await a_gang()
    await gang.train(3 * MINUTE, SLOW)
    await gang.cluster.delete(Pod, "train-1", namespace="default", grace_seconds=0)
    await gang.start(1, await gang.cluster.get(Job, "train", "default"))
    await gang.train(3 * MINUTE, SLOW)

    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]
    assert [each.was_stopped for each in await gang.record()] == [True]


async def test_a_gang_is_not_moved_for_a_rank_within_a_pod() -> None:
    gang = await a_gang({ANNOTATION_SLOW_RANK: "swap", **recorded(rank="13", node="node-7", ended_at=START)})
    await gang.train(20 * MINUTE, SLOW)

    [(reason, message)] = gang.reported
    assert (reason, "swapped" in message) == ("GangStraggler", False)  # pod 13 was slow, which is no rank of it
    assert not gang.stragglers.slow_now(gang.root)


async def test_it_is_no_reason_to_stay_where_a_pod_is_slow_as_a_whole() -> None:
    gang = SlowGpuGang()
    await gang.open()
    await gang.train(timedelta(minutes=5))
    await gang.train(timedelta(minutes=11), slow=5)

    assert {each.rank for each in gang.stragglers.present(gang.root)} == {"5", "13"}
    assert [each.rank for each in gang.stragglers.slow_now(gang.root)] == ["5"]


async def test_ranks_with_the_same_number_in_two_pods_are_two() -> None:
    gang = await a_gang()
    await gang.train(MINUTE, SLOW)
    await gang._list(2, [SLOW], is_known=True)
    await gang.compare()

    assert [each.pod for each in gang.stragglers.present(gang.root)] == ["train-1", "train-2"]


async def test_a_new_leader_that_does_not_hear_of_a_pod_at_first_reports_it_no_second_time() -> None:
    gang = await a_gang()
    await gang.train(3 * MINUTE, SLOW)
    gang.lead()
    await gang.train(3 * MINUTE, without=(1,))
    await gang.train(3 * MINUTE, SLOW)
    assert gang.reasons == ["GangStraggler"]

    await gang.train(MINUTE, ended(SLOW.since + 9 * MINUTE))
    assert gang.reasons == ["GangStraggler", "GangStragglerOver"]


async def test_one_whose_record_was_refused_ends_with_its_pods() -> None:
    gang = await a_gang()
    gang.error = Forbidden
    await gang.train(3 * MINUTE, SLOW)
    await gang.cluster.delete(Pod, "train-1", namespace="default", grace_seconds=0)
    await gang.start(1, await gang.cluster.get(Job, "train", "default"))
    await gang.train(3 * MINUTE)

    assert gang.stragglers.present(gang.root) == []


async def test_a_record_that_its_owner_made_up_is_no_slow_rank_for_long() -> None:
    gang = GangOfEights()
    await gang.open(recorded(rank="5", pid=1, pod="train-1"))
    await gang.train(MISSING_FOR + 2 * MINUTE)

    assert gang.stragglers.present(gang.root) == []
    assert gang.reasons == ["GangStragglerOver"]


async def test_an_agent_that_lists_impossible_numbers_breaks_no_comparison() -> None:
    gang = await a_gang()
    await gang.train(3 * MINUTE, msgspec.structs.replace(SLOW, slower=10.0**15))

    assert gang.reasons == ["GangStraggler"]
    assert (await gang.record())[0].slower == 1000
