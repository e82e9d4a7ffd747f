"""The API server answers 429 to everything in the middle of a recovery: one restart all the same, and no spinning."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.api_proxy import Request
from tests.kubernetes.breakpoints import Breakpoint, Point, When
from tests.kubernetes.replicas import Replica, Replicas
from tests.kubernetes.sampled import one_in
from tests.kubernetes.scenario import Scenario
from tests.kubernetes.test_outages import recovered_once, sprung

pytestmark = [pytest.mark.lab, pytest.mark.slow]

POINTS = (
    Point(Phase.STARTING, When.ACTED),
    Point(Phase.DETECTED, When.RECORDED),
    Point(Phase.STOPPING, When.ACTED),
    Point(Phase.RESERVING, When.ACTED),
)
REFUSED = 40
"""Requests of all replicas that are refused before the storm ends: longer than a leader of this configuration leads."""
A_SECOND = 20
"""At most so many of one replica: each of its loops asks about once a second. A loop without a pause asks hundreds."""


@pytest.mark.parametrize("asks", ["0", "1"])
@pytest.mark.parametrize("point", one_in(4, POINTS), ids=str)
async def test_gang_is_restarted_once_though_the_api_server_refuses_everything_for_a_while(
    scenario: Scenario, replicas: Replicas, point: Point, asks: str
) -> None:
    is_long_enough = asyncio.Event()

    def refuse(_: Request) -> bool:
        if sum(len(replica.proxy.throttled) for replica in replicas.all) >= REFUSED:
            is_long_enough.set()
        return True

    def storm(_: Replica) -> None:
        for replica in replicas.all:
            replica.proxy.retry_after = asks
            replica.proxy.is_throttled = refuse

    await asyncio.gather(replicas.add(2), scenario.play("Job"))
    breakpoint_at = Breakpoint(replicas, scenario.namespace, point, storm)
    scenario.break_gpu(scenario.node_of(rank=0))
    await sprung(breakpoint_at)
    async with asyncio.timeout(120):
        await is_long_enough.wait()
    for replica in replicas.all:
        replica.proxy.is_throttled = lambda request: False

    await recovered_once(scenario)
    for replica in replicas.all:
        seconds = Counter(int(at) for at, _ in replica.proxy.throttled)
        assert max(seconds.values(), default=0) <= A_SECOND, seconds
