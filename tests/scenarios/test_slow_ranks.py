"""
A gang leaves a node because a rank makes it slow there: only where its owner allows it, right after a save, and once.

The reports are made up. In the last tests the controller compares what agents publish; in the others a rank is simply
said to be slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from healthd.controller.cache.cluster_state import ClusterState
from healthd.controller.cache.informers import read_everything
from healthd.controller.fleet.stragglers import EVERY, Stragglers
from healthd.core.api import LABEL_SPARE, NodeHealth, ObjectReference, Pod, Recovery
from healthd.core.api.health import MemberState, PodRhythm
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.config import HangPolicy, RecoveryPolicy
from healthd.core.config.gangs import StragglerMode
from healthd.core.hang.straggler import Straggler
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.members import index_of
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.core.hang.published import LENGTH, Agents
from tests.fakes import START
from tests.scenarios.scenario import Scenario
from tests.scenarios.test_controllers import DiesAtWrite, stands_still
from tests.simulation.step_scheduler import Crashed, at_once

SWAP = {"healthd.dev/slow-rank": "swap"}
SOON = RecoveryPolicy(grow_every=timedelta(minutes=3), swap_every=timedelta(hours=1))
LONG = timedelta(minutes=12)
WRITES = 20
"""Such a move of this gang takes so many writes, or fewer."""


class DiesAfterOpening:
    """A cluster whose user dies as soon as it has opened a recovery."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def create(self, made: Any) -> Any:
        created = await self._cluster.create(made)
        if isinstance(made, Recovery):
            raise Crashed
        return created


class SlowGang(Scenario):
    """A gang with a rank of which its record says, and agents show, that the others wait for it."""

    def __init__(self, options: dict[str, str] | None = None, *, hang: HangPolicy | None = None, **given: Any) -> None:
        super().__init__(recovery=SOON, options=SWAP if options is None else options, hang=hang, **given)
        self.shown: list[Straggler] = []
        """What agents show now."""
        self.start_controller()

    def start_controller(self) -> None:
        """In place of the controller before it."""
        self.add_loop("controller", self.new_controller("controller", slow_ranks=self.slow_now))

    async def open_and_die(self) -> None:
        """A controller opens a recovery, and dies before it stops the gang."""
        cluster = DiesAfterOpening(self.ground_truth.seen_by("mortal"))
        mortal = self.new_controller("mortal", cluster=cluster, slow_ranks=self.slow_now)

        async def until_death(now: datetime) -> Any:
            try:
                return await mortal(now)
            except Crashed:
                self.add_loop("controller", stands_still)
                return timedelta(hours=1)

        self.add_loop("controller", until_death)
        for _ in range(300):
            await self.run_for(seconds=1)
            if self.recoveries():
                return
        raise AssertionError("no recovery was opened")

    def slow_now(self, root: Root) -> Sequence[Straggler]:
        del root
        return [replace(each, seen_at=self.clock.now()) for each in self.shown]

    def pod_of(self, rank: int) -> Pod:
        """The living pod of this index."""
        root = self.root
        there = [pod for pod in self.pods() if pod.metadata.deletion_timestamp is None]
        return next(pod for pod in there if index_of(pod, root) == str(rank) and pod.status.phase == "Running")

    def is_slow(self, rank: int, since: timedelta = LONG) -> Straggler:
        """From now on, and for as long as *since* already, the others wait for it."""
        pod, now = self.pod_of(rank), self.clock.now()
        straggler = Straggler(
            rank=str(rank), slower=0.15, since=now - since, seen_at=now, ran=1, starved=0, peers_ran=0.8,
            peers_starved=0, confidence=0.9, pod=pod.metadata.name, node=pod.spec.node_name, reason="it works",
        )  # fmt: skip
        self.shown = [straggler]
        self.write([*self.root.stragglers, straggler])
        return straggler

    def write(self, record: Sequence[Straggler]) -> None:
        """The record on the root."""
        text = msgspec.json.encode(record).decode()
        self.patch_job({"metadata": {"annotations": {"healthd.dev/stragglers": text}}})

    def swaps(self) -> list[Recovery]:
        return [each for each in self.recoveries() if each.spec.cause.kind is CauseKind.STRAGGLER]


async def training(options: dict[str, str] | None = None, **given: Any) -> SlowGang:
    """A gang of two that has run for a quarter of an hour."""
    scenario = SlowGang(options, **given)
    await scenario.run_for(minutes=15)
    assert scenario.recoveries() == []
    return scenario


async def test_it_moves_to_a_spare_right_after_a_save_and_no_step_is_lost() -> None:
    scenario = await training()
    scenario.is_slow(1)
    await scenario.run_for(minutes=5)

    (recovery,) = scenario.swaps()
    assert recovery.status.phase is Phase.RECOVERED
    assert recovery.status.causes == [recovery.spec.cause]
    assert recovery.spec.cause.message.endswith(
        ", node node-1) makes its gang about 15% slower (90% sure): it works: moves to node-2, after a save"
    )
    assert set(scenario.places().values()) == {"node-0", "node-2"}
    assert recovery.status.checkpoint is not None
    assert recovery.status.step_at_fault == recovery.status.checkpoint.step
    assert recovery.status.no_advance == 0


async def test_the_node_stays_in_service_and_becomes_the_spare() -> None:
    scenario = await training()
    scenario.is_slow(1)
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=3)

    assert scenario.quarantined() == []
    assert scenario.slots() == 0
    assert not scenario.node("node-1").spec.unschedulable
    assert scenario.pool() == ["node-1"]
    assert scenario.root.attempt == 1


@pytest.mark.parametrize(
    ("options", "hang"),
    [
        ({}, HangPolicy()),
        ({"healthd.dev/slow-rank": "report"}, HangPolicy(stragglers=StragglerMode.SWAP)),
        ({"healthd.dev/slow-rank": "ignore"}, HangPolicy(stragglers=StragglerMode.SWAP)),
        (SWAP, HangPolicy(stragglers=StragglerMode.IGNORE)),
        ({**SWAP, "healthd.dev/hang": "ignore"}, HangPolicy()),
        ({"healthd.dev/slow-rank": "Swap"}, HangPolicy()),
        ({**SWAP, "healthd.dev/restart": ""}, HangPolicy()),
    ],
)
async def test_a_gang_whose_owner_does_not_allow_it_runs_on(options: dict[str, str], hang: HangPolicy) -> None:
    scenario = await training(options, hang=hang)
    scenario.is_slow(1)
    await scenario.run_for(minutes=10)

    assert scenario.recoveries() == []


async def test_the_configuration_may_allow_it_for_all() -> None:
    scenario = await training({}, hang=HangPolicy(stragglers=StragglerMode.SWAP))
    scenario.is_slow(1)

    assert (await scenario.run_until(Phase.RECOVERED)).spec.cause.kind is CauseKind.STRAGGLER


async def test_it_waits_until_the_rank_has_been_slow_for_long() -> None:
    scenario = await training()
    scenario.is_slow(1, since=timedelta(minutes=3))
    await scenario.run_for(minutes=6)
    assert scenario.recoveries() == []

    await scenario.run_for(minutes=4)
    assert [each.status.phase for each in scenario.swaps()] == [Phase.RECOVERED]


async def test_a_rank_that_keeps_up_again_before_the_save_is_not_swapped() -> None:
    scenario = await training()
    slow = scenario.is_slow(1, since=timedelta(minutes=8))
    await scenario.run_for(minutes=1)
    scenario.write([replace(slow, ended_at=scenario.clock.now())])
    await scenario.run_for(minutes=8)

    assert scenario.recoveries() == []


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_a_record_without_reports_is_not_enough_and_reports_without_a_record_neither(is_recorded: bool) -> None:
    scenario = await training()
    scenario.is_slow(1)
    if is_recorded:
        scenario.shown = []
    else:
        scenario.write([])
    await scenario.run_for(minutes=8)

    assert scenario.recoveries() == []


async def test_without_a_spare_and_without_saves_it_runs_on() -> None:
    without = await training(spares=0)
    without.is_slow(1)
    await without.run_for(minutes=8)
    unseen = await training({**SWAP, "healthd.dev/checkpoint": ""})
    unseen.is_slow(1)
    await unseen.run_for(minutes=8)

    assert without.recoveries() == unseen.recoveries() == []


@pytest.mark.slow
async def test_the_same_rank_that_is_slow_on_its_next_node_is_not_swapped_again() -> None:
    scenario = await training(spares=2)
    scenario.is_slow(1)
    await scenario.run_until(Phase.RECOVERED)
    scenario.shown = []
    await scenario.run_for(hours=1.2)
    scenario.write([])  # even where its owner deletes the record
    scenario.is_slow(1)
    await scenario.run_for(minutes=5)

    assert len(scenario.recoveries()) == 1


@pytest.mark.slow
async def test_another_rank_is_swapped_some_time_later_and_a_deleted_recovery_is_no_licence() -> None:
    scenario = await training(spares=2)
    scenario.is_slow(1)
    await scenario.run_until(Phase.RECOVERED)
    scenario.shown = []
    await scenario.run_for(minutes=20)
    scenario.is_slow(0)
    await scenario.run_for(minutes=10)
    assert len(scenario.recoveries()) == 1

    await scenario.run_for(minutes=40)
    assert [each.spec.cause.suspects[0].member for each in scenario.swaps()] == ["1", "0"]

    scenario.delete_recoveries()
    scenario.shown = []
    await scenario.run_for(hours=1.2)
    scenario.is_slow(1)
    await scenario.run_for(minutes=5)
    assert scenario.recoveries() == []


@pytest.mark.slow
async def test_a_member_that_is_left_out_has_the_spare_first() -> None:
    elastic = {"healthd.dev/min-nodes": "2", "healthd.dev/grow-back": "enabled"}
    scenario = SlowGang({**SWAP, **elastic}, ranks=3, spares=0)
    await scenario.run_for(minutes=2)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=15)
    scenario.is_slow(1)
    scenario.repair("node-1")
    spare = {"metadata": {"labels": {LABEL_SPARE: "true"}}, "spec": {"taints": [{"key": LABEL_SPARE}]}}
    scenario.patch_node("node-1", spare)
    await scenario.run_for(minutes=10)

    assert [each.spec.cause.kind for each in scenario.recoveries()] == [CauseKind.HARDWARE, CauseKind.CAPACITY]
    assert scenario.root.world == 3


async def test_it_comes_some_time_after_another_recovery() -> None:
    scenario = await training(spares=2)
    scenario.crash(0)
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(seconds=90)
    scenario.is_slow(1, since=timedelta(seconds=30))
    assert scenario.swaps() == []
    await scenario.run_for(minutes=15)

    assert [each.status.phase for each in scenario.swaps()] == [Phase.RECOVERED]


async def test_a_fault_that_joins_is_recovered_from_and_both_nodes_are_left() -> None:
    scenario = await training(spares=2)
    scenario.is_slow(1)
    while not scenario.root.suspended:
        await scenario.run_for(seconds=1)
    scenario.fault("node-0")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [cause.kind for cause in recovery.status.causes] == [CauseKind.STRAGGLER, CauseKind.HARDWARE]
    assert set(scenario.places().values()) == {"node-2", "node-3"}


async def test_the_only_spare_is_for_the_fault_that_joins() -> None:
    scenario = await training()
    scenario.is_slow(1)
    while not scenario.root.suspended:
        await scenario.run_for(seconds=1)
    scenario.fault("node-0")
    await scenario.run_until(Phase.RECOVERED)

    assert set(scenario.places().values()) == {"node-1", "node-2"}


async def test_its_user_who_suspends_it_meanwhile_wins() -> None:
    scenario = await training()
    scenario.is_slow(1)
    while not scenario.root.suspended:
        await scenario.run_for(seconds=1)
    scenario.suspend()
    await scenario.run_for(minutes=5)

    assert scenario.recovery().status.phase is Phase.SUPERSEDED
    assert scenario.root.suspended
    assert scenario.processes() == []


async def test_its_user_who_takes_the_annotation_off_before_the_save_wins() -> None:
    scenario = await training()
    scenario.is_slow(1, since=timedelta(minutes=9))
    scenario.patch_job({"metadata": {"annotations": {"healthd.dev/slow-rank": None}}})
    await scenario.run_for(minutes=8)

    assert scenario.recoveries() == []


@pytest.mark.slow
async def test_a_controller_that_dies_at_any_moment_of_it_leaves_one_restart() -> None:
    scenario = await training()
    scenario.is_slow(1)
    for _ in range(300):
        await scenario.run_for(seconds=1)
        if scenario.swaps() and scenario.swaps()[-1].status.phase not in ENDED:
            scenario.start_controller()

    (recovery,) = scenario.swaps()
    assert recovery.status.phase is Phase.RECOVERED
    assert scenario.root.attempt == 1
    assert set(scenario.places().values()) == {"node-0", "node-2"}
    assert scenario.root.ending is RootOutcome.NOT_ENDED


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
async def test_a_controller_that_dies_at_any_write_is_continued_by_the_next(number: int, after: bool) -> None:
    scenario = await training()
    cluster = DiesAtWrite(scenario.ground_truth.seen_by("mortal"), number, after=after)
    mortal = scenario.new_controller("mortal", cluster=cluster, slow_ranks=scenario.slow_now)
    scenario.is_slow(1)

    async def until_death(now: datetime) -> Any:
        try:
            return await mortal(now)
        except Crashed:
            scenario.start_controller()
            return timedelta(0)

    scenario.add_loop("controller", until_death)
    await scenario.run_for(minutes=5)

    assert [each.status.phase for each in scenario.swaps()] == [Phase.RECOVERED]
    assert scenario.root.attempt == 1
    assert set(scenario.places().values()) == {"node-0", "node-2"}


@pytest.mark.parametrize("knows", [True, False])
async def test_a_controller_that_dies_between_the_record_and_the_stop_loses_no_step(knows: bool) -> None:
    """The next one stops the gang while the save is young, and only if agents have shown the slow rank to it, too."""
    scenario = await training()
    slow = scenario.is_slow(1)
    await scenario.open_and_die()
    scenario.shown = [slow] if knows else []
    scenario.start_controller()
    await scenario.run_for(minutes=2)

    (recovery,) = scenario.swaps()
    assert recovery.status.phase is (Phase.RECOVERED if knows else Phase.SUPERSEDED)
    assert scenario.root.attempt == (1 if knows else 0)


async def test_a_controller_that_comes_back_long_after_the_record_does_not_stop_it() -> None:
    scenario = await training()
    scenario.is_slow(1)
    await scenario.open_and_die()
    await scenario.run_for(minutes=5)
    scenario.start_controller()
    await scenario.run_for(seconds=1)

    (recovery,) = scenario.swaps()
    assert recovery.status.phase is Phase.SUPERSEDED
    assert recovery.status.message == "it is not moved now: its last save is too old, so steps would be lost"


async def test_a_gang_that_has_not_saved_lately_waits_for_its_next_save() -> None:
    scenario = await training()
    scenario.trainers.stalled.add("train")
    await scenario.run_for(minutes=3)
    scenario.is_slow(1)
    await scenario.run_for(minutes=3)
    assert scenario.recoveries() == []

    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)
    assert recovery.status.checkpoint is not None
    assert recovery.status.step_at_fault == recovery.status.checkpoint.step


RANKS = 8
EVEN = {str(rank): 4.0 for rank in range(RANKS)}
SLOW = {str(rank): 4.0 if rank == 5 else 3.4 for rank in range(RANKS)}
TWO_MINUTES = 8
"""Windows. Agents write so often."""


class ComparedGang(SlowGang):
    """A gang of eight, of which agents publish how much its ranks work, and a controller that compares that."""

    def __init__(self) -> None:
        super().__init__(ranks=RANKS, spares=1)
        self.agents = Agents(RANKS)
        self.events: list[str] = []
        self.lead()

    def lead(self) -> None:
        """A controller takes over: it has compared nothing yet."""
        state, metrics = ClusterState(ADAPTERS), Metrics()
        cluster: Any = self.ground_truth.seen_by("comparison")
        stragglers = Stragglers(cluster, self.clock, state, ADAPTERS, HangPolicy(), metrics, self._announce)

        async def compare(now: datetime) -> timedelta:
            del now
            await read_everything(cluster, state, ADAPTERS)
            await stragglers.compare()
            return EVERY

        self.add_loop("stragglers", compare)
        self.add_loop("controller", self.new_controller("controller", slow_ranks=stragglers.slow_now))

    def _announce(self, about: ObjectReference, kind: str, reason: str, message: str) -> None:
        del about, kind
        self.events.append(f"{reason}: {message}")

    async def work(self, minutes: int, cores: Mapping[str, float]) -> None:
        """Agents write every two minutes."""
        for _ in range(minutes // 2):
            await self.run_for(minutes=2)
            self.agents.now = self.clock.now() - TWO_MINUTES * timedelta(seconds=LENGTH)
            self.agents.work(TWO_MINUTES, cores)
            for rank, each in self.agents.published.items():
                pod = self.pod_of(int(rank))
                rhythm = PodRhythm(
                    uid=pod.metadata.uid, state=MemberState.WORKING, period=1.0, allowed=10.0, work=each.work
                )
                status = {"rhythms": [msgspec.to_builtins(rhythm)], "seenAt": self.clock.now().isoformat()}
                node = pod.spec.node_name
                at_once(self.ground_truth.patch(NodeHealth, node, {"status": status}, subresource="status"))


async def compared() -> ComparedGang:
    """One whose ranks have worked evenly for a while."""
    scenario = ComparedGang()
    await scenario.run_for(minutes=2)
    await scenario.work(20, EVEN)
    assert scenario.events == []
    return scenario


@pytest.mark.slow
async def test_what_agents_publish_moves_the_gang_once_and_then_it_is_reported_as_uneven_work() -> None:
    scenario = await compared()
    await scenario.work(8, SLOW)
    assert scenario.swaps() == []
    node = scenario.pod_of(5).spec.node_name
    while not scenario.swaps():
        await scenario.work(2, SLOW)
        assert scenario.clock.now() - START < timedelta(hours=1)
    recovery = await scenario.run_until(Phase.RECOVERED)
    assert list(recovery.status.replacements.items()) == [(node, "node-8")]
    assert [each.partition(":")[0] for each in scenario.events] == ["GangStraggler", "GangStragglerOver"]

    scenario.agents = Agents(RANKS)
    await scenario.work(20, EVEN)
    await scenario.work(40, SLOW)
    assert len(scenario.recoveries()) == 1
    assert scenario.events[2].endswith(
        f"it was slow on {node}, too, so it is most likely the job that gives it more to do: it is not swapped"
    )


@pytest.mark.slow
async def test_a_new_leader_swaps_only_what_it_has_seen_itself() -> None:
    scenario = await compared()
    await scenario.work(8, SLOW)
    scenario.lead()
    await scenario.run_for(minutes=4)
    assert len(scenario.root.stragglers) == 1
    assert scenario.swaps() == []

    await scenario.work(10, SLOW)
    assert [each.status.phase for each in scenario.swaps()] == [Phase.RECOVERED]


@pytest.mark.slow
async def test_a_rank_that_keeps_up_again_within_minutes_is_not_swapped() -> None:
    scenario = await compared()
    await scenario.work(8, SLOW)
    await scenario.work(14, EVEN)

    assert scenario.recoveries() == []
    assert [each.partition(":")[0] for each in scenario.events] == ["GangStraggler", "GangStragglerOver"]


@pytest.mark.slow
async def test_agents_that_fall_silent_show_nothing_any_more() -> None:
    scenario = await compared()
    await scenario.work(8, SLOW)
    await scenario.run_for(minutes=20)

    assert scenario.recoveries() == []
