"""Every kind whose gangs may have fewer members: a node breaks, there is no spare, and later the node returns."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import RecoveryPolicy
from tests.gangs.described import WITH_THREE_WORKERS
from tests.scenarios.operated import MEMBERS, OperatedGang

pytestmark = pytest.mark.slow

OPTIONS = {"healthd.dev/min-nodes": "2", "healthd.dev/grow-back": "enabled"}
SOON = RecoveryPolicy(grow_after=timedelta(minutes=1), grow_every=timedelta(minutes=2))


def a_gang(kind: str, spec: dict[str, Any] | None = None, **options: str) -> OperatedGang:
    """Three workers, of which two are enough, beside one that is always there."""
    return OperatedGang(kind, spec=spec or WITH_THREE_WORKERS[kind], options={**OPTIONS, **options}, policy=SOON)


async def smaller(kind: str) -> OperatedGang:
    """One that had to leave node-2, and trains on the other nodes."""
    gang = a_gang(kind)
    await gang.run_for(minutes=2)
    gang.break_node("node-2")
    await gang.run_for(minutes=2)
    assert [each.status.phase for each in gang.recoveries()] == [Phase.RECOVERED], gang.recoveries()
    assert (gang.root.world, gang.nodes()) == (MEMBERS - 1, {"node-0", "node-1", "node-3"})
    return gang


@pytest.mark.parametrize("kind", WITH_THREE_WORKERS)
async def test_it_goes_on_smaller_and_is_as_large_as_before_when_the_node_returns(kind: str) -> None:
    gang = await smaller(kind)
    gang.repair_node("node-2")
    await gang.run_for(minutes=4)

    first, second = gang.recoveries()
    assert first.spec.cause.kind is not CauseKind.CAPACITY
    assert (second.spec.cause.kind, second.status.phase) == (CauseKind.CAPACITY, Phase.RECOVERED)
    assert (gang.root.world, gang.root.attempt) == (MEMBERS, 2)
    assert gang.nodes() == {f"node-{number}" for number in range(MEMBERS)}


@pytest.mark.parametrize("kind", ["PyTorchJob", "RayCluster"])
async def test_a_controller_that_is_new_knows_how_large_it_was(kind: str) -> None:
    gang = await smaller(kind)
    gang.restart_controller()
    gang.repair_node("node-2")
    await gang.run_for(minutes=4)

    assert gang.root.world == MEMBERS


@pytest.mark.parametrize("kind", ["MPIJob", "RayJob"])
async def test_while_the_node_is_bad_it_stays_smaller(kind: str) -> None:
    gang = await smaller(kind)
    await gang.run_for(minutes=4)

    assert (gang.root.world, len(gang.recoveries())) == (MEMBERS - 1, 1)


@pytest.mark.parametrize("kind", ["PyTorchJob", "RayCluster"])
async def test_below_its_own_minimum_it_waits_for_a_node(kind: str) -> None:
    gang = await smaller(kind)
    gang.break_node("node-1")
    await gang.run_for(minutes=3)

    assert gang.recoveries()[-1].status.phase is Phase.HELD
    assert "allows" in gang.recoveries()[-1].status.message
