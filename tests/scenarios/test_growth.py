"""A gang that had to go on with fewer members grows back when there are nodes for them, right after a save."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api import LABEL_SPARE, Recovery
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import RootOutcome
from tests.scenarios.scenario import Scenario

ELASTIC = {"healthd.dev/min-nodes": "2", "healthd.dev/grow-back": "enabled"}
SOON = RecoveryPolicy(grow_after=timedelta(minutes=1), grow_every=timedelta(minutes=3))


async def shrunk(options: dict[str, str] | None = None) -> Scenario:
    """A gang of three that had to leave node-1, and trains on the other two."""
    scenario = Scenario(ranks=3, spares=0, options=options or ELASTIC, recovery=SOON)
    await scenario.run_for(minutes=2)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    return scenario


def make_spare(scenario: Scenario, node: str) -> None:
    """A person puts *node* into the pool."""
    scenario.patch_node(
        node, {"metadata": {"labels": {LABEL_SPARE: "true"}}, "spec": {"taints": [{"key": LABEL_SPARE}]}}
    )


def growths(scenario: Scenario) -> list[Recovery]:
    """The planned restarts."""
    return [each for each in scenario.recoveries() if each.spec.cause.kind is CauseKind.CAPACITY]


@pytest.mark.slow
async def test_it_grows_back_onto_the_node_that_returned() -> None:
    scenario = await shrunk()
    scenario.repair("node-1")
    await scenario.run_for(minutes=10)

    (recovery,) = growths(scenario)
    assert recovery.status.phase is Phase.RECOVERED
    assert recovery.status.causes == [recovery.spec.cause]
    assert set(scenario.places().values()) == {"node-0", "node-1", "node-2"}
    assert scenario.root.world == 3
    assert recovery.status.let_through is not None
    assert recovery.status.no_advance == 0
    assert recovery.status.checkpoint is not None
    assert recovery.status.step_at_fault == recovery.status.checkpoint.step


@pytest.mark.slow
async def test_it_grows_back_onto_a_spare_and_gives_back_no_other() -> None:
    scenario = await shrunk()
    scenario.repair("node-1")
    await scenario.run_for(seconds=20)
    make_spare(scenario, "node-1")
    await scenario.run_for(minutes=10)

    assert len(growths(scenario)) == 1
    assert set(scenario.places().values()) == {"node-0", "node-1", "node-2"}
    assert scenario.pool() == []


@pytest.mark.slow
async def test_it_does_so_once() -> None:
    scenario = await shrunk()
    scenario.repair("node-1")
    await scenario.run_for(minutes=25)

    assert len(growths(scenario)) == 1
    assert scenario.root.attempt == 2


@pytest.mark.slow
async def test_without_the_annotation_it_stays_as_it_is() -> None:
    scenario = await shrunk({"healthd.dev/min-nodes": "2"})
    scenario.repair("node-1")
    await scenario.run_for(minutes=12)

    assert growths(scenario) == []
    assert scenario.root.world == 2


@pytest.mark.slow
async def test_a_size_that_its_user_chose_stays() -> None:
    scenario = await shrunk()
    scenario.patch_job({"spec": {"parallelism": 1, "completions": 1}})
    await scenario.run_for(minutes=4)
    scenario.repair("node-1")
    await scenario.run_for(minutes=12)

    assert growths(scenario) == []
    assert scenario.root.world == 1


@pytest.mark.slow
async def test_while_the_node_stays_bad_nothing_happens() -> None:
    scenario = await shrunk()
    await scenario.run_for(minutes=12)

    assert growths(scenario) == []


@pytest.mark.slow
async def test_a_restart_for_a_fault_brings_the_members_back_as_well() -> None:
    scenario = await shrunk()
    scenario.repair("node-1")
    await scenario.run_for(seconds=10)
    scenario.crash(0)
    await scenario.run_for(minutes=2)

    assert growths(scenario) == []
    assert scenario.root.world == 3


@pytest.mark.slow
async def test_a_controller_that_dies_at_any_moment_of_it_leaves_one_restart() -> None:
    scenario = await shrunk()
    scenario.repair("node-1")
    for _ in range(600):
        await scenario.run_for(seconds=1)
        if growths(scenario) and growths(scenario)[0].status.phase not in ENDED:
            scenario.restart_controller()
    (recovery,) = growths(scenario)

    assert recovery.status.phase is Phase.RECOVERED
    assert scenario.root.world == 3
    assert scenario.root.attempt == 2


@pytest.mark.slow
async def test_the_user_who_deletes_the_mark_while_it_is_stopped_keeps_it_stopped() -> None:
    scenario = await shrunk()
    scenario.repair("node-1")
    for _ in range(600):
        await scenario.run_for(seconds=1)
        if growths(scenario) and scenario.root.suspended:
            break
    scenario.suspend()
    await scenario.run_for(minutes=10)

    assert growths(scenario)[0].status.phase is Phase.SUPERSEDED
    assert scenario.processes() == []


@pytest.mark.slow
async def test_a_fault_while_it_is_stopped_to_grow_joins_and_it_goes_on_with_what_is_left() -> None:
    scenario = await shrunk()
    scenario.repair("node-1")
    for _ in range(600):
        await scenario.run_for(seconds=1)
        if growths(scenario) and scenario.root.suspended:
            break
    scenario.fault("node-1")
    await scenario.run_for(minutes=10)

    (recovery,) = growths(scenario)
    assert recovery.status.phase is Phase.RECOVERED
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.root.ending is RootOutcome.NOT_ENDED


@pytest.mark.slow
async def test_it_waits_between_two_such_restarts() -> None:
    scenario = Scenario(ranks=4, spares=0, budget=3, options=ELASTIC, recovery=SOON)
    await scenario.run_for(minutes=10)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.fault("node-2")
    await scenario.run_for(minutes=10)
    assert scenario.root.world == 2
    scenario.repair("node-1")
    await scenario.run_for(minutes=10)
    assert scenario.root.world == 3
    scenario.repair("node-2")
    await scenario.run_for(minutes=10)
    assert scenario.root.world == 4

    first, second = growths(scenario)
    assert first.status.ended_at is not None
    assert second.metadata.creation_timestamp is not None
    assert second.metadata.creation_timestamp - first.status.ended_at >= SOON.grow_every
