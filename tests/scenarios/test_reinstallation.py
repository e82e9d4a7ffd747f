"""healthd is removed with all that it keeps, and installed anew; what it wrote on nodes and gangs is still there."""

from __future__ import annotations

from healthd.core.api.model import Phase
from tests.scenarios.stage import Stage


async def test_a_node_that_is_still_quarantined_takes_its_slot_again_before_another_gets_it() -> None:
    stage = Stage(ranks=2, spares=1, budget=1)
    await stage.run_for(minutes=1)
    stage.fault("node-2")
    await stage.run_for(minutes=1)
    stage.reinstall()
    await stage.run_for(minutes=1)
    assert stage.slots() == 1

    stage.fault("node-1")
    await stage.run_for(minutes=5)

    assert stage.quarantined() == ["node-2"]


async def test_an_agent_that_lives_on_takes_a_slot_again_when_a_person_deletes_that_of_its_node() -> None:
    stage = Stage(ranks=2, spares=1, budget=1)
    await stage.run_for(minutes=1)
    stage.fault("node-2")
    await stage.run_for(minutes=1)
    stage.delete_slots()
    await stage.run_for(minutes=6)
    assert stage.slots() == 1

    stage.fault("node-1")
    await stage.run_for(minutes=5)

    assert stage.quarantined() == ["node-2"]


async def test_a_node_whose_deleted_slot_another_took_is_counted_once_there_is_one_again() -> None:
    stage = Stage(ranks=2, spares=1, budget=1)
    await stage.run_for(minutes=1)
    stage.fault("node-2")
    await stage.run_for(minutes=1)
    stage.delete_slots()
    stage.fault("node-1")
    await stage.run_for(minutes=10)
    assert stage.quarantined() == ["node-1", "node-2"]

    stage.repair("node-1")
    await stage.run_for(minutes=10)

    assert (stage.quarantined(), stage.slots()) == (["node-2"], 1)


async def test_a_gang_that_runs_is_recovered_from_its_next_fault_as_if_nothing_had_been() -> None:
    stage = Stage(ranks=2, spares=1)
    await stage.run_for(minutes=1)
    stage.reinstall()
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)

    assert stage.places() == {"0": "node-0", "1": "node-2"}
    assert stage.root.attempt == 1


async def test_a_gang_that_a_recovery_had_stopped_which_is_gone_stays_stopped_for_its_user() -> None:
    stage = Stage(ranks=2, spares=0)
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.HELD)
    stage.reinstall()
    stage.repair("node-1")
    await stage.run_for(minutes=10)
    assert stage.root.suspended

    stage.resume()
    await stage.run_for(minutes=5)

    assert len(stage.processes()) == 2
