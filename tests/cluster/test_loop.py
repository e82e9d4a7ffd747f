"""The one loop shape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.informer import Informer, Watched
from healthd.cluster.loop import RETRY, cycle_on_change, cycle_when_woken
from healthd.cluster.port import Unusable
from healthd.core.api import Node
from tests.builders import a_node
from tests.fakes import ManualClock, counting_uids, settle


class Cycles:
    """Counts its turns; on the first ones it raises *troubles*."""

    def __init__(self, *troubles: Exception) -> None:
        self.turns = 0
        self._troubles = list(troubles)

    async def turn(self, now: datetime) -> timedelta:
        self.turns += 1
        if self._troubles:
            raise self._troubles.pop(0)
        return timedelta(hours=1)


@asynccontextmanager
async def looping(cycle: Cycles, clock: ManualClock) -> AsyncIterator[EmbeddedCluster]:
    with EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids()) as cluster:
        loop = asyncio.create_task(cycle_on_change(cluster, clock, [Node], cycle.turn, asyncio.Event()))
        await settle()
        try:
            yield cluster
        finally:
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)


async def test_a_change_wakes_it() -> None:
    cycle = Cycles()
    async with looping(cycle, ManualClock()) as cluster:
        before = cycle.turns
        await cluster.create(a_node("node-1"))
        await settle()

        assert cycle.turns > before


async def test_a_fault_of_one_cycle_is_not_the_end_of_it() -> None:
    clock = ManualClock()
    cycle = Cycles(*[ZeroDivisionError("a fault of ours")] * 3)
    async with looping(cycle, clock):
        before = cycle.turns
        await clock.run_for(RETRY)

        assert cycle.turns > before


async def test_a_cluster_that_will_never_answer_again_ends_it() -> None:
    clock, cycle = ManualClock(), Cycles(Unusable("the file is damaged"))
    with (
        EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids()) as cluster,
        pytest.raises(ExceptionGroup) as e,
    ):
        await cycle_on_change(cluster, clock, [], cycle.turn, asyncio.Event())

    assert e.group_contains(Unusable)


async def test_a_mirror_can_wake_it() -> None:
    clock, cycle, wake = ManualClock(), Cycles(), asyncio.Event()
    with EmbeddedCluster.open(None, clock=clock, new_uid=counting_uids()) as cluster:
        informer = Informer(cluster, clock, [Watched(kind=Node)])
        informer.listen(lambda _: wake.set())
        tasks = [asyncio.create_task(work) for work in (informer.run(), cycle_when_woken(clock, cycle.turn, wake))]
        await settle()
        before = cycle.turns
        await cluster.create(a_node("node-1"))
        await settle()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert cycle.turns > before
