"""What the user stopped or deleted stays so, whatever healthd was doing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from tests.scenarios.stage import IsOvertaken, Stage

WAITING = [Phase.STOPPING, Phase.CHOOSING, Phase.STARTING, Phase.CONFIRMING]
"""Phases in which a recovery waits for the world; it passes the others in one go."""

CALLS = 60
"""So many calls a controller makes while it recovers this gang, or fewer."""


async def recovering(phase: Phase) -> Stage:
    """A gang that fails, and whose recovery has come to *phase*."""
    patience = timedelta(seconds=60 if phase in (Phase.CHOOSING, Phase.STARTING) else 2)
    stage = Stage(recovery=RecoveryPolicy(fault_window=patience))
    await stage.run_for(minutes=2)
    stage.crash(0)
    if phase is Phase.STARTING:
        await stage.run_until(Phase.CHOOSING)
        stage.kill_kubelet("node-0")  # it takes a while until this is noticed
        stage.kill_kubelet("node-1")
    await stage.run_until(phase)
    return stage


@pytest.mark.parametrize("phase", WAITING)
async def test_a_gang_that_the_user_stops_during_its_recovery_stays_stopped(phase: Phase) -> None:
    stage = await recovering(phase)
    stage.suspend()
    await stage.run_for(minutes=30)

    assert stage.root.suspended
    assert stage.recovery().status.phase is Phase.SUPERSEDED


@pytest.mark.parametrize("phase", WAITING)
async def test_a_gang_that_the_user_deletes_during_its_recovery_stays_deleted(phase: Phase) -> None:
    stage = await recovering(phase)
    stage.delete()
    await stage.run_for(minutes=30)

    assert stage.recovery().status.phase is Phase.SUPERSEDED
    assert stage.pool() == ["node-2"]


@pytest.mark.parametrize("phase", WAITING)
async def test_a_gang_that_the_user_lets_go_on_is_recovered_at_its_next_fault(phase: Phase) -> None:
    stage = await recovering(phase)
    stage.suspend()
    await stage.run_for(minutes=5)
    for node in ("node-0", "node-1"):
        stage.revive_kubelet(node)
    await stage.run_for(minutes=1)
    stage.resume()
    await stage.run_for(minutes=5)
    assert len(stage.processes()) == 2

    attempt = stage.root.attempt
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)

    assert stage.root.attempt == attempt + 1
    assert stage.places() == {"0": "node-0", "1": "node-2"}


async def test_a_healthy_gang_that_the_user_stops_is_none_of_our_business() -> None:
    stage = Stage()
    await stage.run_for(minutes=2)
    stage.suspend()
    stage.fault("node-1")
    await stage.run_for(minutes=30)

    assert stage.recoveries() == []
    assert stage.root.suspended


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, CALLS + 1, 3))
async def test_a_person_who_cordons_a_node_of_the_gang_for_a_while_costs_no_spare(number: int) -> None:
    stage = Stage(spares=2)

    async def cordon() -> None:
        stage.cordon("node-0")

    stage.add_loop(
        "controller",
        stage.new_controller("controller", IsOvertaken(stage.truth.seen_by("controller"), number, cordon), stage.truth),
    )
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_for(minutes=5)
    stage.uncordon("node-0")
    stage.repair("node-1")
    await stage.run_for(minutes=5)

    assert len(stage.pool()) == 2
    assert len(stage.processes()) == 2


@pytest.mark.parametrize("ranks", [1, 2])
async def test_a_gang_that_its_user_makes_smaller_runs_on(ranks: int) -> None:
    stage = Stage(ranks=3)
    await stage.run_for(minutes=2)
    stage.patch_job({"spec": {"parallelism": ranks, "completions": ranks}})
    await stage.run_for(minutes=5)

    assert stage.recoveries() == []
    assert len(stage.processes()) == ranks


async def test_a_gang_that_its_user_makes_smaller_after_a_recovery_gives_back_the_spare_that_it_leaves() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)
    assert stage.pool() == []

    stage.patch_job({"spec": {"parallelism": 1, "completions": 1}})
    await stage.run_for(minutes=5)

    assert stage.pool() == ["node-2"]


async def test_a_gang_that_its_user_makes_larger_after_a_recovery_gets_a_slot_for_the_new_member() -> None:
    stage = Stage(ranks=2, spares=1)
    stage.patch_job({"spec": {"parallelism": 1, "completions": 1}})
    await stage.run_for(minutes=2)
    stage.crash(0)
    await stage.run_until(Phase.RECOVERED)
    stage.patch_job({"spec": {"parallelism": 2, "completions": 2}})
    await stage.run_for(minutes=2)

    assert stage.places() == {"0": "node-0", "1": "node-1"}


async def test_a_gang_that_its_user_takes_over_while_it_is_stopped_keeps_the_spare_that_he_resumes_it_on() -> None:
    stage = Stage(spares=1)
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)
    stage.store.outage = "error"
    stage.crash(0)
    await stage.run_until(Phase.HELD)
    stage.patch_job({"metadata": {"annotations": {"healthd.dev/restart": None}}})
    await stage.run_for(minutes=5)
    assert stage.recovery().status.phase is Phase.SUPERSEDED

    stage.resume()
    await stage.run_for(minutes=5)

    assert stage.places() == {"0": "node-0", "1": "node-2"}
    assert stage.pool() == []
