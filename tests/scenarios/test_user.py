"""What the user stopped or deleted stays so, whatever healthd was doing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.model import Phase
from healthd.core.policy import RecoveryPolicy
from tests.scenarios.stage import Stage

WAITING = [Phase.STOPPING, Phase.CHOOSING, Phase.STARTING, Phase.CONFIRMING]
"""Phases in which a recovery waits for the world; it passes the others in one go."""


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
