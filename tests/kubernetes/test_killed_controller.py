"""
The leading controller is killed in each phase of a recovery: the standby goes on, and there is one restart.

Every day half of the moments are tried, each with one kind of gang; `make scenarios` tries all moments with all kinds.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.breakpoints import Breakpoint, Point, When
from tests.kubernetes.replicas import Replica, Replicas
from tests.kubernetes.sampled import RUNS_ALL
from tests.kubernetes.scenario import Scenario

pytestmark = [pytest.mark.lab, pytest.mark.slow]

KINDS = ("Job", "JobSet", "StatefulSet", "plain pods")
POINTS = [
    Point(Phase.DETECTED, When.RECORDED),
    Point(Phase.STOPPING, When.RECORDED),
    Point(Phase.STOPPING, When.ACTED),
    Point(Phase.STOPPING, When.LEAVING),
    Point(Phase.FENCING, When.RECORDED),
    Point(Phase.CHOOSING, When.RECORDED),
    Point(Phase.RESERVING, When.RECORDED),
    Point(Phase.RESERVING, When.ACTED),
    Point(Phase.STARTING, When.RECORDED),
    Point(Phase.STARTING, When.ACTED),
    Point(Phase.STARTING, When.ACTED, acts=2),
    Point(Phase.STARTING, When.LEAVING),
    Point(Phase.CONFIRMING, When.RECORDED),
    Point(Phase.CONFIRMING, When.LEAVING),
]
IN_SEVERAL_WRITES = [
    (Point(Phase.STOPPING, When.ACTED, acts=3), "plain pods"),
    (Point(Phase.STARTING, When.ACTED, acts=4), "plain pods"),
    (Point(Phase.STARTING, When.ACTED, acts=6), "plain pods"),
    (Point(Phase.STOPPING, When.ACTED), "StatefulSet with a launcher"),
    (Point(Phase.STARTING, When.LEAVING), "StatefulSet with a launcher"),
]
EVERY_DAY = [*zip(POINTS[::2], itertools.cycle(KINDS)), *IN_SEVERAL_WRITES[::2]]
WHOLE = [*itertools.product(POINTS, KINDS), *IN_SEVERAL_WRITES]


@pytest.mark.parametrize(("point", "which"), WHOLE if RUNS_ALL else EVERY_DAY, ids=str)
async def test_gang_is_restarted_once_though_its_controller_is_killed(
    scenario: Scenario, replicas: Replicas, point: Point, which: str
) -> None:
    await asyncio.gather(replicas.add(2), scenario.play(which))
    await replicas.leader()
    breakpoint_at = Breakpoint(replicas, scenario.namespace, point, Replica.kill)
    bad = scenario.node_of(rank=0)

    scenario.break_gpu(bad)
    recovery = await scenario.until_phase(Phase.RECOVERED)

    killed = breakpoint_at.caught  # on a busy machine the lead may have moved before
    assert killed is not None
    assert await replicas.leader() is not killed
    pods = await scenario.until_running(1)
    assert {pod.spec.node_name for pod in pods} == {*scenario.nodes, *scenario.spares} - {bad}
    assert len(scenario.recoveries()) == 1
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert scenario.ranks.overlaps == []
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0, 1)}
