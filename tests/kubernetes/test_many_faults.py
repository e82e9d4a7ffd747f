"""Much breaks at once, or more than there are spares for."""

from __future__ import annotations

import asyncio

import pytest

from healthd.core.api.model import Phase
from healthd.core.node.quarantine import read_record
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]


async def test_nothing_is_restarted_while_a_third_of_all_nodes_are_bad_and_that_is_said(
    scenario: Scenario, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(breaker={"unhealthy_share": 0.1}), scenario.play(members=9, spares=2))
    bad = [scenario.node_of(rank) for rank in range(3)]
    for node in bad:
        scenario.break_gpu(node)

    held = await scenario.until_phase(Phase.HELD)
    assert "the breaker is open: 3 of 11 nodes" in held.status.message
    await asyncio.to_thread(wait_until, "a warning", lambda: "the breaker is open" in warnings(scenario), limit=10)
    assert len(scenario.running(0)) == 9
    assert scenario.ranks.starts == {str(rank): [0] for rank in range(9)}

    await asyncio.to_thread(scenario.repair, bad[0])
    await scenario.until_phase(Phase.RECOVERED)
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0, 1)}


async def test_last_spare_goes_to_one_of_two_gangs_and_the_other_waits_for_a_repair(
    scenario: Scenario, other_stage: Scenario, replicas: Replicas
) -> None:
    await replicas.add()
    # In turns: while both begin, the scheduler may place a pod of one gang on a node that the stage of the other made.
    await scenario.play()
    await other_stage.play("JobSet", spares=0)
    bad = {each: each.node_of(rank=0) for each in (scenario, other_stage)}

    for each, node in bad.items():
        each.break_gpu(node)
    phases = (Phase.HELD, Phase.RECOVERED)
    first = {each: (await each.until_phase(*phases)).status.phase for each in bad}

    assert sorted(first.values()) == sorted(phases)
    waiting = next(each for each, phase in first.items() if phase is Phase.HELD)
    assert "no spare" in waiting.recoveries()[-1].status.message
    assert not waiting.living()

    await asyncio.to_thread(waiting.repair, bad[waiting])
    await waiting.until_phase(Phase.RECOVERED)
    await asyncio.gather(*(each.until_running(1) for each in bad))
    assert all(set(map(tuple, each.ranks.starts.values())) == {(0, 1)} for each in bad)


async def test_of_140_agents_that_fire_at_once_exactly_the_budget_takes_its_node_out(scenario: Scenario) -> None:
    nodes = scenario.add_nodes(140)
    await scenario.give_agents(nodes, budget=10)

    for node in nodes:
        scenario.break_gpu(node)
    await scenario.until("every agent to have judged", lambda: scenario.unhealthy() == set(nodes))

    assert sum(read_record(scenario.node(node)) is not None for node in nodes) == 10
    assert scenario.most_quarantined == 10


def warnings(scenario: Scenario) -> str:
    """What `kubectl events` shows people."""
    return scenario.kubectl("get", "events", "--field-selector", "type=Warning", "-o", "wide")
