"""Hardware breaks under a gang."""

from __future__ import annotations

import pytest

from healthd.core.api.model import CauseKind, Phase
from tests.scenarios.scenario import APPLICATION, Scenario


async def test_a_broken_node_is_replaced_by_a_spare_and_training_goes_on() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=5)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert scenario.phases() == [
        Phase.DETECTED,
        Phase.STOPPING,
        Phase.FENCING,
        Phase.CHOOSING,
        Phase.RESERVING,
        Phase.STARTING,
        Phase.CONFIRMING,
        Phase.RECOVERED,
    ]
    assert recovery.spec.cause.kind is CauseKind.HARDWARE
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.quarantined() == ["node-1"]
    assert scenario.pool() == []


async def test_a_fault_of_the_application_changes_nothing() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1", APPLICATION)
    await scenario.run_for(minutes=10)

    assert scenario.recoveries() == []
    assert scenario.quarantined() == []
    assert scenario.root.attempt == 0


async def test_a_broken_node_without_a_gang_disturbs_no_gang() -> None:
    scenario = Scenario(spares=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-2")
    await scenario.run_for(minutes=10)

    assert scenario.quarantined() == ["node-2"]
    assert scenario.recoveries() == []


async def test_the_repaired_node_becomes_the_spare_and_the_gang_is_not_disturbed() -> None:
    scenario = Scenario(spares=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.repair("node-1")
    await scenario.run_for(minutes=2)

    assert scenario.quarantined() == []
    assert scenario.slots() == 0
    assert scenario.pool() == ["node-1"]
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.root.attempt == 1


@pytest.mark.slow
async def test_without_a_spare_the_gang_is_held_and_goes_on_after_the_repair() -> None:
    scenario = Scenario(spares=0)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    held = await scenario.run_until(Phase.HELD)
    await scenario.run_for(hours=1)
    assert held.status.message == "no spare for node-1: needs 1 more healthy node"
    assert scenario.processes() == []

    scenario.repair("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-1"}


async def test_a_gang_that_may_shrink_goes_on_with_fewer_members() -> None:
    scenario = Scenario(ranks=3, spares=0, options={"healthd.dev/min-nodes": "2"})
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-2"}


async def test_a_second_fault_while_the_gang_stops_joins_the_recovery() -> None:
    scenario = Scenario(ranks=2, spares=2)
    await scenario.run_for(minutes=1)
    scenario.fault("node-0")
    await scenario.run_until(Phase.STOPPING)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [cause.node for cause in recovery.status.causes] == ["node-0", "node-1"]
    assert len(scenario.recoveries()) == 1
    assert scenario.places() == {"0": "node-2", "1": "node-3"}
    assert scenario.root.attempt == 1


async def test_a_second_fault_before_training_moved_on_joins_and_restarts_once_more() -> None:
    scenario = Scenario(ranks=2, spares=2)
    await scenario.run_for(minutes=1)
    scenario.fault("node-0")
    await scenario.run_until(Phase.CONFIRMING)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [attempt.number for attempt in recovery.status.attempts] == [1, 2]
    assert len(scenario.recoveries()) == 1
    assert scenario.places() == {"0": "node-2", "1": "node-3"}


async def test_a_spare_that_breaks_in_its_turn_is_replaced_and_the_pool_is_whole_in_the_end() -> None:
    scenario = Scenario(ranks=2, spares=2)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.fault("node-2")
    await scenario.run_for(minutes=3)
    assert scenario.places() == {"0": "node-0", "1": "node-3"}

    scenario.repair("node-2")
    scenario.repair("node-1")
    await scenario.run_for(minutes=2)

    assert scenario.pool() == ["node-1", "node-2"]
    assert scenario.root.attempt == 2


async def test_with_the_budget_used_up_the_gang_goes_on_and_the_recovery_is_held() -> None:
    scenario = Scenario(ranks=2, spares=1, budget=0)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    held = await scenario.run_until(Phase.HELD)

    assert "node-1 is not quarantined" in held.status.message
    assert not scenario.root.suspended


async def test_a_gang_on_two_bad_nodes_leaves_both_also_where_the_budget_lets_only_one_out() -> None:
    """Else the one that is out waits for the end of the gang, with the only slot, and the other for that slot."""
    scenario = Scenario(ranks=2, spares=2, budget=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-0")
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.status.replacements == {"node-0": "node-2", "node-1": "node-3"}
    assert len(scenario.quarantined()) == 1


async def test_a_gang_that_is_broken_anyway_moves_off_a_node_that_could_not_be_quarantined() -> None:
    scenario = Scenario(ranks=2, spares=1, budget=0)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.HELD)
    scenario.crash(1)
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.status.replacements == {"node-1": "node-2"}
    assert scenario.quarantined() == []


@pytest.mark.slow
async def test_twenty_nodes_that_break_in_the_same_second_never_exceed_the_budget() -> None:
    scenario = Scenario(ranks=1, spares=20, budget=3)
    await scenario.run_for(minutes=1)
    for number in range(1, 21):
        scenario.fault(f"node-{number}")
    await scenario.run_for(minutes=5)

    assert len(scenario.quarantined()) == 3
    assert scenario.slots() == 3


async def test_the_next_node_is_quarantined_when_a_slot_becomes_free() -> None:
    scenario = Scenario(ranks=1, spares=2, budget=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.settle()
    scenario.fault("node-2")
    await scenario.run_for(minutes=1)
    assert scenario.quarantined() == ["node-1"]

    scenario.repair("node-1")
    await scenario.run_for(minutes=1)

    assert scenario.quarantined() == ["node-2"]


async def test_a_cordon_that_a_person_had_set_before_outlives_the_quarantine() -> None:
    scenario = Scenario()
    scenario.cordon("node-2")
    scenario.fault("node-2")
    await scenario.run_for(minutes=1)
    scenario.repair("node-2")
    await scenario.run_for(minutes=1)

    assert scenario.quarantined() == []
    assert scenario.node("node-2").spec.unschedulable


async def test_a_cordoned_spare_is_not_taken() -> None:
    scenario = Scenario(spares=2)
    scenario.cordon("node-2")
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert scenario.places() == {"0": "node-0", "1": "node-3"}
