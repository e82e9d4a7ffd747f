"""healthd is removed with all that it keeps, and installed anew; what it wrote on nodes and gangs is still there."""

from __future__ import annotations

import pytest

from healthd.core.api.model import Phase
from tests.scenarios.scenario import Scenario


async def test_a_node_that_is_still_quarantined_takes_its_slot_again_before_another_gets_it() -> None:
    scenario = Scenario(ranks=2, spares=1, budget=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-2")
    await scenario.run_for(minutes=1)
    scenario.reinstall()
    await scenario.run_for(minutes=1)
    assert scenario.slots() == 1

    scenario.fault("node-1")
    await scenario.run_for(minutes=5)

    assert scenario.quarantined() == ["node-2"]


async def test_an_agent_that_lives_on_takes_a_slot_again_when_a_person_deletes_that_of_its_node() -> None:
    scenario = Scenario(ranks=2, spares=1, budget=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-2")
    await scenario.run_for(minutes=1)
    scenario.delete_slots()
    await scenario.run_for(minutes=6)
    assert scenario.slots() == 1

    scenario.fault("node-1")
    await scenario.run_for(minutes=5)

    assert scenario.quarantined() == ["node-2"]


@pytest.mark.slow
async def test_a_node_whose_deleted_slot_another_took_is_counted_once_there_is_one_again() -> None:
    scenario = Scenario(ranks=2, spares=1, budget=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-2")
    await scenario.run_for(minutes=1)
    scenario.delete_slots()
    scenario.fault("node-1")
    await scenario.run_for(minutes=10)
    assert scenario.quarantined() == ["node-1", "node-2"]

    scenario.repair("node-1")
    await scenario.run_for(minutes=10)

    assert (scenario.quarantined(), scenario.slots()) == (["node-2"], 1)


async def test_a_gang_that_runs_is_recovered_from_its_next_fault_as_if_nothing_had_been() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    scenario.reinstall()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.root.attempt == 1


async def test_a_gang_that_a_recovery_had_stopped_which_is_gone_stays_stopped_for_its_user() -> None:
    scenario = Scenario(ranks=2, spares=0)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.HELD)
    scenario.reinstall()
    scenario.repair("node-1")
    await scenario.run_for(minutes=10)
    assert scenario.root.suspended

    scenario.resume()
    await scenario.run_for(minutes=5)

    assert len(scenario.processes()) == 2
