"""A gang leaves a node before its planned maintenance: right after a save, and only where the site asks for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api import Recovery
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.config import ForeignPolicy, RecoveryPolicy
from healthd.core.recovery.gang import RootOutcome
from tests.scenarios.scenario import Scenario

PLANNED = "MaintenancePlanned"
"""One of the conditions that KEP-5683 names."""
MOVES = ForeignPolicy(
    rows=(f"condition {PLANNED} -> move", "taint node.kubernetes.io/unschedulable -> move"),
)
SOON = RecoveryPolicy(grow_every=timedelta(minutes=3))


def announce(scenario: Scenario, node: str, status: str = "True") -> None:
    """The site announces the maintenance of *node*, or with another *status* that it is over."""
    scenario.watchdog.announced.add(node)
    ready = {"type": "Ready", "status": "True"}
    scenario.patch_node(node, {"status": {"conditions": [ready, {"type": PLANNED, "status": status}]}}, "status")


def moves(scenario: Scenario) -> list[Recovery]:
    """The planned restarts."""
    return [each for each in scenario.recoveries() if each.spec.cause.kind is CauseKind.MAINTENANCE]


async def training(foreign: ForeignPolicy = MOVES, *, spares: int = 1) -> Scenario:
    """A gang of two that has saved a few times."""
    scenario = Scenario(ranks=2, spares=spares, foreign=foreign, recovery=SOON)
    await scenario.run_for(minutes=4)
    assert scenario.recoveries() == []
    return scenario


async def test_it_moves_to_a_spare_right_after_a_save_and_redoes_nothing() -> None:
    scenario = await training()
    announce(scenario, "node-1")
    await scenario.run_for(minutes=5)

    (recovery,) = moves(scenario)
    assert recovery.status.phase is Phase.RECOVERED
    assert recovery.status.causes == [recovery.spec.cause]
    assert set(scenario.places().values()) == {"node-0", "node-2"}
    assert recovery.status.checkpoint is not None
    assert recovery.status.step_at_fault == recovery.status.checkpoint.step
    assert recovery.status.no_advance == 0
    assert scenario.quarantined() == []


async def test_it_moves_once_and_the_node_joins_the_pool_when_its_maintenance_is_over() -> None:
    scenario = await training()
    announce(scenario, "node-1")
    await scenario.run_for(minutes=12)
    assert len(moves(scenario)) == 1
    assert scenario.pool() == []

    announce(scenario, "node-1", "False")
    await scenario.run_for(minutes=6)

    assert scenario.pool() == ["node-1"]
    assert scenario.root.attempt == 1


async def test_a_node_that_is_drained_is_left_before_its_pods_are_evicted() -> None:
    scenario = await training()
    cordon = {"unschedulable": True, "taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}
    scenario.watchdog.announced.add("node-1")
    scenario.patch_node("node-1", {"spec": cordon})
    await scenario.run_for(minutes=5)

    assert [each.status.phase for each in moves(scenario)] == [Phase.RECOVERED]
    assert set(scenario.places().values()) == {"node-0", "node-2"}


@pytest.mark.parametrize(
    "foreign", [ForeignPolicy(), ForeignPolicy(rows=(f"condition {PLANNED} -> avoid",))], ids=["no row", "avoid"]
)
async def test_without_a_row_that_asks_for_it_a_gang_stays(foreign: ForeignPolicy) -> None:
    scenario = await training(foreign)
    announce(scenario, "node-1")
    await scenario.run_for(minutes=8)

    assert scenario.recoveries() == []


async def test_without_a_spare_for_each_of_its_nodes_it_runs_on() -> None:
    scenario = await training(spares=1)
    announce(scenario, "node-0")
    announce(scenario, "node-1")
    await scenario.run_for(minutes=8)

    assert scenario.recoveries() == []


async def test_a_spare_that_awaits_a_maintenance_itself_is_no_place_to_go() -> None:
    scenario = await training()
    announce(scenario, "node-1")
    announce(scenario, "node-2")
    await scenario.run_for(minutes=8)

    assert scenario.recoveries() == []


async def test_two_nodes_are_left_in_one_restart() -> None:
    scenario = await training(spares=2)
    announce(scenario, "node-0")
    announce(scenario, "node-1")
    await scenario.run_for(minutes=8)

    assert len(moves(scenario)) == 1
    assert set(scenario.places().values()) == {"node-2", "node-3"}


async def test_two_moves_are_some_time_apart_and_a_fault_waits_for_nothing() -> None:
    scenario = await training(spares=2)
    announce(scenario, "node-1")
    await scenario.run_until(Phase.RECOVERED)
    announce(scenario, "node-0")
    await scenario.run_for(minutes=2)
    assert len(scenario.recoveries()) == 1

    scenario.fault("node-0")
    await scenario.run_for(minutes=2)

    kinds = [each.spec.cause.kind for each in scenario.recoveries()]
    assert kinds == [CauseKind.MAINTENANCE, CauseKind.HARDWARE]


async def test_a_fault_joins_while_the_gang_is_stopped_to_move() -> None:
    scenario = await training(spares=2)
    announce(scenario, "node-1")
    while not scenario.root.suspended:
        await scenario.run_for(seconds=1)
    scenario.fault("node-0")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [cause.kind for cause in recovery.status.causes] == [CauseKind.MAINTENANCE, CauseKind.HARDWARE]
    assert set(scenario.places().values()) == {"node-2", "node-3"}


async def test_a_gang_in_recovery_from_a_fault_leaves_such_a_node_as_well() -> None:
    scenario = await training(spares=2)
    announce(scenario, "node-0")
    scenario.crash(1)
    await scenario.run_until(Phase.RECOVERED)

    assert moves(scenario) == []
    assert "node-0" not in scenario.places().values()


async def test_a_gang_that_its_user_took_out_of_healthds_hands_stays() -> None:
    scenario = await training()
    scenario.patch_job({"metadata": {"annotations": {"healthd.dev/restart": None}}})
    announce(scenario, "node-1")
    await scenario.run_for(minutes=8)

    assert scenario.recoveries() == []


@pytest.mark.slow
async def test_a_controller_that_dies_at_any_moment_of_it_leaves_one_restart() -> None:
    scenario = await training()
    announce(scenario, "node-1")
    for _ in range(300):
        await scenario.run_for(seconds=1)
        if moves(scenario) and moves(scenario)[0].status.phase not in ENDED:
            scenario.restart_controller()

    (recovery,) = moves(scenario)
    assert recovery.status.phase is Phase.RECOVERED
    assert scenario.root.attempt == 1
    assert scenario.root.ending is RootOutcome.NOT_ENDED
