"""What the user stopped or deleted stays so, whatever healthd was doing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api import Job, Pod
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from tests.scenarios.scenario import ConcurrentWrite, Scenario
from tests.simulation.faulty_cluster import StaleCache

WAITING = [Phase.STOPPING, Phase.CHOOSING, Phase.STARTING, Phase.CONFIRMING]
"""Phases in which a recovery waits for the world; it passes the others in one go."""

CALLS = 60
"""So many calls a controller makes while it recovers this gang, or fewer."""


async def recovering(phase: Phase) -> Scenario:
    """A gang that fails, and whose recovery has come to *phase*."""
    patience = timedelta(seconds=60 if phase in (Phase.CHOOSING, Phase.STARTING) else 2)
    scenario = Scenario(recovery=RecoveryPolicy(fault_window=patience))
    await scenario.run_for(minutes=2)
    scenario.crash(0)
    if phase is Phase.STARTING:
        await scenario.run_until(Phase.CHOOSING)
        scenario.kill_kubelet("node-0")  # it takes a while until this is noticed
        scenario.kill_kubelet("node-1")
    await scenario.run_until(phase)
    return scenario


@pytest.mark.slow
@pytest.mark.parametrize("phase", WAITING)
async def test_a_gang_that_the_user_stops_during_its_recovery_stays_stopped(phase: Phase) -> None:
    scenario = await recovering(phase)
    scenario.suspend()
    await scenario.run_for(minutes=30)

    assert scenario.root.suspended
    assert scenario.recovery().status.phase is Phase.SUPERSEDED


@pytest.mark.parametrize("phase", WAITING)
async def test_a_gang_that_the_user_deletes_during_its_recovery_stays_deleted(phase: Phase) -> None:
    scenario = await recovering(phase)
    scenario.delete()
    await scenario.run_for(minutes=30)

    assert scenario.recovery().status.phase is Phase.SUPERSEDED
    assert scenario.pool() == ["node-2"]


@pytest.mark.slow
@pytest.mark.parametrize("phase", WAITING)
async def test_a_gang_that_the_user_lets_go_on_is_recovered_at_its_next_fault(phase: Phase) -> None:
    scenario = await recovering(phase)
    scenario.suspend()
    await scenario.run_for(minutes=5)
    for node in ("node-0", "node-1"):
        scenario.revive_kubelet(node)
    await scenario.run_for(minutes=1)
    scenario.resume()
    await scenario.run_for(minutes=5)
    assert len(scenario.processes()) == 2

    attempt = scenario.root.attempt
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert scenario.root.attempt == attempt + 1
    assert scenario.places() == {"0": "node-0", "1": "node-2"}


async def test_a_healthy_gang_that_the_user_stops_is_none_of_our_business() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.suspend()
    scenario.fault("node-1")
    await scenario.run_for(minutes=30)

    assert scenario.recoveries() == []
    assert scenario.root.suspended


@pytest.mark.parametrize("apart", [1, 4, 10])
async def test_a_gang_that_the_user_stops_and_starts_before_its_pods_are_gone_is_not_restarted(apart: int) -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.kill_kubelet("node-1")
    scenario.suspend()
    await scenario.run_for(seconds=apart)
    scenario.resume()
    await scenario.run_for(seconds=5)
    scenario.revive_kubelet("node-1")
    await scenario.run_for(minutes=5)

    assert scenario.recoveries() == []
    assert len(scenario.processes()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, CALLS + 1, 3))
async def test_a_person_who_cordons_a_node_of_the_gang_for_a_while_costs_no_spare(number: int) -> None:
    scenario = Scenario(spares=2)

    async def cordon() -> None:
        scenario.cordon("node-0")

    scenario.add_loop(
        "controller",
        scenario.new_controller(
            "controller",
            ConcurrentWrite(scenario.ground_truth.seen_by("controller"), number, cordon),
            scenario.ground_truth,
        ),
    )
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_for(minutes=5)
    scenario.uncordon("node-0")
    scenario.repair("node-1")
    await scenario.run_for(minutes=5)

    assert len(scenario.pool()) == 2
    assert len(scenario.processes()) == 2


@pytest.mark.parametrize("ranks", [1, 2])
async def test_a_gang_that_its_user_makes_smaller_runs_on(ranks: int) -> None:
    scenario = Scenario(ranks=3)
    await scenario.run_for(minutes=2)
    scenario.resize(ranks)
    await scenario.run_for(minutes=5)

    assert scenario.recoveries() == []
    assert len(scenario.processes()) == ranks


@pytest.mark.parametrize("apart", [1, 40], ids=["while a member ends", "after it was made again"])
async def test_a_gang_that_its_user_makes_smaller_and_larger_unseen_is_not_restarted(apart: int) -> None:
    scenario = Scenario(ranks=3)
    await scenario.run_for(minutes=2)
    with scenario.controller_paused():
        scenario.resize(2)
        await scenario.run_for(seconds=apart)
        scenario.resize(3)
    await scenario.run_for(minutes=5)

    assert scenario.recoveries() == []
    assert len(scenario.processes()) == 3


async def test_a_member_that_went_is_not_missed_before_the_change_of_its_gang_is_seen() -> None:
    scenario = Scenario(ranks=3)
    informer = StaleCache(scenario.ground_truth.seen_by("informer"))
    scenario.add_loop("controller", scenario.new_controller("controller", informer=informer))
    await scenario.run_for(minutes=2)
    scenario.resize(2)
    await scenario.run_for(seconds=1)
    scenario.resize(3)
    informer.forget(Pod)
    await scenario.run_for(minutes=1)
    assert scenario.recoveries() == []

    informer.forget(Job)
    informer.forget(Pod)
    await scenario.run_for(minutes=1)

    assert scenario.recoveries() == []
    assert len(scenario.processes()) == 3


async def test_a_gang_that_its_user_makes_smaller_after_a_recovery_gives_back_the_spare_that_it_leaves() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    assert scenario.pool() == []

    scenario.resize(1)
    await scenario.run_for(minutes=5)

    assert scenario.pool() == ["node-2"]


async def test_a_gang_that_its_user_makes_larger_after_a_recovery_gets_a_slot_for_the_new_member() -> None:
    scenario = Scenario(ranks=2, spares=1)
    scenario.resize(1)
    await scenario.run_for(minutes=2)
    scenario.crash(0)
    await scenario.run_until(Phase.RECOVERED)
    scenario.resize(2)
    await scenario.run_for(minutes=2)

    assert scenario.places() == {"0": "node-0", "1": "node-1"}


async def test_a_gang_that_its_user_takes_over_while_it_is_stopped_keeps_the_spare_it_is_resumed_on() -> None:
    scenario = Scenario(spares=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.store.outage = "error"
    scenario.crash(0)
    await scenario.run_until(Phase.HELD)
    scenario.patch_job({"metadata": {"annotations": {"healthd.dev/restart": None}}})
    await scenario.run_for(minutes=5)
    assert scenario.recovery().status.phase is Phase.SUPERSEDED

    scenario.resume()
    await scenario.run_for(minutes=5)

    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.pool() == []
