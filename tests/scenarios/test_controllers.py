"""Controllers die at any point, and two may believe that they lead: one fault is still one restart."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from healthd.core.api import Job, Node, Pod
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from tests.scenarios.scenario import ConcurrentWrite, Scenario
from tests.simulation.faulty_cluster import StaleCache
from tests.simulation.step_scheduler import Crashed, at_once


class DiesAtWrite:
    """A cluster whose user dies at its *number*th write, before or after it took effect."""

    def __init__(self, cluster: Any, number: int, *, after: bool) -> None:
        self._cluster = cluster
        self._left = number
        self._after = after

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)
        return self._mortal(verb) if name in ("create", "patch", "delete") else verb

    def _mortal(self, verb: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crashed
            answer = await verb(*args, **options)
            if self._left == 0:
                raise Crashed
            return answer

        return call


class DiesOnceStopped:
    """A cluster whose user dies as soon as it has changed a Job."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: type[Any], *args: Any, **options: Any) -> Any:
        written = await self._cluster.patch(kind, *args, **options)
        if kind is Job:
            raise Crashed
        return written


async def stands_still(now: datetime) -> timedelta:
    """A controller whose machine is paused."""
    return timedelta(hours=1)


CALLS = 8
"""So many calls a controller makes from a fault to its first write to the gang, or fewer."""
WRITES = 17
"""A recovery of this gang takes so many writes, or fewer."""


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
async def test_a_controller_that_dies_at_any_write_is_continued_by_the_next(number: int, after: bool) -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    mortal = scenario.new_controller(
        "controller", cluster=DiesAtWrite(scenario.ground_truth.seen_by("controller"), number, after=after)
    )

    async def until_death(now: datetime) -> Any:
        try:
            return await mortal(now)
        except Crashed:
            scenario.restart_controller()
            return await scenario.new_controller("controller")(now)

    scenario.add_loop("controller", until_death)
    scenario.fault("node-1")
    await scenario.run_for(minutes=5)

    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED]
    assert scenario.root.attempt == 1
    assert scenario.places() == {"0": "node-0", "1": "node-2"}


async def test_two_controllers_at_once_restart_once() -> None:
    scenario = Scenario()
    scenario.add_loop("second controller", scenario.new_controller("controller-2"))
    await scenario.run_for(minutes=2)
    scenario.fault("node-1")
    await scenario.run_for(minutes=5)

    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED]
    assert scenario.root.attempt == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, CALLS + 1))
async def test_a_controller_whose_write_conflicts_opens_no_second_recovery(number: int) -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.add_loop("controller", stands_still)
    scenario.fault("node-1")
    await scenario.settle()
    overwritten = ConcurrentWrite(
        scenario.ground_truth.seen_by("second"), number, partial(scenario.new_controller("first"), scenario.clock.now())
    )

    await scenario.new_controller("second", cluster=overwritten, informer=scenario.ground_truth)(scenario.clock.now())

    scenario.restart_controller()
    await scenario.run_for(minutes=5)
    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED]


async def test_a_gang_that_runs_again_is_not_stopped_for_what_a_node_of_it_was_before() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.crash(0)
    await scenario.run_until(Phase.CONFIRMING)
    scenario.add_loop("controller", stands_still)
    scenario.fault("node-1")
    await scenario.settle()
    informer = StaleCache(scenario.ground_truth.seen_by("controller"))
    at_once(informer.list(Node))
    scenario.repair("node-1")
    await scenario.settle()

    scenario.add_loop("controller", scenario.new_controller("controller", informer=informer))
    await scenario.run_for(seconds=1)

    assert scenario.recovery().status.phase is Phase.CONFIRMING


async def test_a_gang_that_its_user_set_going_again_is_not_restarted_for_a_rank_that_failed_before() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.add_loop("controller", stands_still)
    scenario.crash(0)
    await scenario.settle()
    informer = StaleCache(scenario.ground_truth.seen_by("controller"))
    at_once(informer.list(Pod))
    scenario.suspend()
    await scenario.run_for(minutes=1)
    scenario.resume()
    await scenario.run_for(minutes=1)

    scenario.add_loop("controller", scenario.new_controller("controller", informer=informer))
    await scenario.run_for(minutes=1)

    assert scenario.recoveries() == []


async def test_a_second_stop_waits_for_no_pod_whose_end_was_proven_before_the_first_start() -> None:
    """The controller that goes on with the stop has not seen yet that the pods of the first attempt are gone."""
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    informer = StaleCache(scenario.ground_truth.seen_by("second"))
    at_once(informer.list(Pod))
    scenario.crash(0)
    await scenario.run_until(Phase.CONFIRMING)
    scenario.add_loop("controller", stands_still)
    scenario.crash(0)
    await scenario.settle()
    mortal = DiesAtWrite(scenario.ground_truth.seen_by("first"), 1, after=True)
    with pytest.raises(Crashed):
        await scenario.new_controller("first", cluster=mortal)(scenario.clock.now())

    await scenario.new_controller("second", informer=informer)(scenario.clock.now())

    assert scenario.root.suspended
    scenario.restart_controller()
    await scenario.run_until(Phase.RECOVERED)
    assert scenario.root.attempt == 2


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_gang_that_one_controller_stops_is_not_given_up_for_what_another_read_of_it_before(number: int) -> None:
    """The other one stands still, at any call, while the user resumes the gang that was suspended."""
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.add_loop("controller", stands_still)
    scenario.crash(0)
    await scenario.settle()
    recorded = DiesAtWrite(scenario.ground_truth.seen_by("first"), 2, after=True)
    with pytest.raises(Crashed):
        await scenario.new_controller("first", cluster=recorded)(scenario.clock.now())
    scenario.suspend()

    async def meanwhile() -> None:
        scenario.resume()
        stops = DiesOnceStopped(scenario.ground_truth.seen_by("first"))
        with pytest.raises(Crashed):
            await scenario.new_controller("first", cluster=stops)(scenario.clock.now())

    paused = ConcurrentWrite(scenario.ground_truth.seen_by("second"), number, meanwhile)
    await scenario.new_controller("second", cluster=paused, informer=scenario.ground_truth)(scenario.clock.now())

    assert scenario.root.suspended
    scenario.restart_controller()
    await scenario.run_for(minutes=5)
    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED]
    assert scenario.root.attempt == 1


@pytest.mark.slow
async def test_a_controller_with_a_stale_view_does_no_harm() -> None:
    scenario = Scenario(recovery=RecoveryPolicy())
    informer = StaleCache(scenario.ground_truth.seen_by("controller-2"))
    scenario.add_loop("stale controller", scenario.new_controller("controller-2", informer=informer))
    dice = random.Random(3)
    await scenario.run_for(minutes=2)
    for fault in ("node-1", "node-0"):
        informer.refresh(dice, 0.5)
        scenario.fault(fault)
        await scenario.run_for(minutes=5)
        scenario.repair(fault)
        await scenario.run_for(minutes=5)

    assert [recovery.status.phase for recovery in scenario.recoveries()] == [Phase.RECOVERED] * 2
    assert scenario.root.attempt == 2
    assert scenario.pool() == ["node-0"]
