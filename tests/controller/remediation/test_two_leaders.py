"""Two controllers act at once, one of them deposed: their requests come in any order, and nothing is doubled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.controller.cache.informers import read_everything
from healthd.core.api.remediations import NodePhase
from healthd.gangs import ADAPTERS
from tests.controller.remediation.site import Site


class Slow:
    """A cluster as one controller reaches it: others have their turn before each of its requests, drawn from a seed."""

    def __init__(self, cluster: EmbeddedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random

    def __getattr__(self, name: str) -> Any:
        verb: Callable[..., Awaitable[Any]] = getattr(self._cluster, name)

        async def late(*args: Any, **options: Any) -> Any:
            for _ in range(self._random.choice((0, 0, 1, 3, 9))):
                await asyncio.sleep(0)
            return await verb(*args, **options)

        return late


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_two_leaders_ask_once_and_stay_within_the_limit(seed: int) -> None:
    random, site = Random(seed), Site()
    for name in ("gpu-17", "gpu-18"):
        await site.add(name)
    loops = [site.loop_over(Slow(site.cluster, random)) for _ in range(2)]
    for name in ("gpu-17", "gpu-18"):
        await site.breaks(name)
    for turn in range(12):
        await read_everything(site.cluster, site.state, ADAPTERS)
        await asyncio.gather(*(loop.look() for loop in loops))
        site.clock.advance(timedelta(seconds=10))
        asked, slots = await site.asked(), await site.slots()

        assert len(asked) <= 1, f"turn {turn}: {asked}"
        assert set(slots) <= {"healthd-remediation-cluster-0"}
        if turn == 5:
            await site.does()
            await site.gives_back(next(iter(slots.values())))
    statuses = [await site.status(name) for name in ("gpu-17", "gpu-18")]
    site.cluster.close()

    assert [len(status.attempts) for status in statuses] == [1, 1]
    assert sorted(status.phase for status in statuses) == [NodePhase.IN_SERVICE, NodePhase.REMEDIATING]
