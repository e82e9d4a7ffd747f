"""Which checkpoint a gang resumes from, and what happens when there is none."""

from __future__ import annotations

import pytest

from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy, StartFresh
from tests.scenarios.scenario import Scenario


async def test_a_torn_checkpoint_is_refused_and_the_one_before_is_taken() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    newest = max(saved.step for saved in scenario.store.saved)
    scenario.store.save("train", 99, whole=False)
    scenario.crash(0)
    recovery = await scenario.run_until(Phase.CONFIRMING)

    assert recovery.status.checkpoint is not None
    assert recovery.status.checkpoint.step == newest > 0
    assert [rejected.step for rejected in recovery.status.rejected] == [99]
    assert {process.resumed_at for process in scenario.processes()} == {newest}


async def test_the_newest_checkpoint_is_taken_though_it_cannot_be_read_for_a_moment() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    newest = max(scenario.store.saved, key=lambda saved: saved.step)
    newest.is_readable = False
    scenario.crash(0)
    await scenario.run_for(minutes=1)
    assert "cannot be read: 503" in scenario.recovery().status.message
    assert scenario.processes() == []

    newest.is_readable = True
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.status.attempts[-1].checkpoint.step == newest.step


async def test_after_a_long_outage_of_the_store_the_newest_checkpoint_has_its_moment_too() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    newest = max(scenario.store.saved, key=lambda saved: saved.step)
    scenario.store.outage = "error"
    scenario.crash(0)
    await scenario.run_until(Phase.HELD)
    await scenario.run_for(minutes=10)
    scenario.store.outage, newest.is_readable = "", False
    await scenario.run_for(seconds=40)
    assert "cannot be read: 503" in scenario.recovery().status.message

    newest.is_readable = True
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.status.attempts[-1].checkpoint.step == newest.step


async def test_a_checkpoint_that_stays_unreadable_costs_two_minutes_and_no_more() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    newest = max(scenario.store.saved, key=lambda saved: saved.step)
    newest.is_readable = False
    scenario.crash(0)
    await scenario.run_for(minutes=3)

    assert scenario.recovery().status.attempts[-1].checkpoint.step == newest.step - 1


@pytest.mark.slow
async def test_with_nothing_but_torn_checkpoints_the_gang_is_held_until_there_is_a_whole_one() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    for saved in scenario.store.saved:
        saved.whole = False
    scenario.crash(0)
    held = await scenario.run_until(Phase.HELD)
    await scenario.run_for(hours=1)
    assert "no checkpoint at /checkpoints/train will load" in held.status.message
    assert scenario.processes() == []

    scenario.store.save("train", 3, whole=True)
    await scenario.run_until(Phase.RECOVERED)

    assert scenario.recovery().status.attempts[-1].checkpoint.step == 3


async def test_where_it_is_configured_the_gang_starts_fresh_instead() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(start_fresh=StartFresh.ALWAYS))
    await scenario.run_for(seconds=30)
    scenario.store.saved[0].whole = False
    scenario.crash(0)
    recovery = await scenario.run_until(Phase.CONFIRMING)

    assert recovery.status.attempts[-1].checkpoint.step == -1


async def test_a_gang_that_never_saved_starts_fresh() -> None:
    scenario = Scenario()
    await scenario.run_for(seconds=5)
    scenario.crash(0)
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.status.attempts[-1].checkpoint.step == -1


async def test_a_store_that_has_vanished_is_not_taken_for_one_that_was_always_empty() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.store.outage = "empty"
    scenario.crash(0)
    held = await scenario.run_until(Phase.HELD)
    assert "is it mounted?" in held.status.message

    scenario.store.outage = ""
    await scenario.run_until(Phase.RECOVERED)


async def test_a_store_that_vanishes_after_a_first_recovery_is_not_taken_for_an_empty_one() -> None:
    scenario = Scenario()
    await scenario.run_for(seconds=25)
    scenario.crash(0)
    await scenario.run_until(Phase.CONFIRMING)
    scenario.store.outage = "empty"
    scenario.crash(0)

    await scenario.run_until(Phase.HELD)


async def test_a_store_that_does_not_answer_is_asked_again() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=2)
    scenario.store.outage = "error"
    scenario.crash(0)
    held = await scenario.run_until(Phase.HELD)
    await scenario.run_for(minutes=10)
    assert held.status.message == "the checkpoints at /checkpoints/train cannot be read: the store does not answer"

    scenario.store.outage = ""
    await scenario.run_until(Phase.RECOVERED)
