"""The API server goes away in the middle of a recovery, or the controller stands still: one restart all the same."""

from __future__ import annotations

import asyncio
import itertools
from http import HTTPStatus

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.breakpoints import Breakpoint, Point, When
from tests.kubernetes.replicas import Replica, Replicas
from tests.kubernetes.sampled import one_in
from tests.kubernetes.scenario import Scenario
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.slow]

KINDS = ("Job", "plain pods")
POINTS = (
    Point(Phase.STARTING, When.ACTING),
    Point(Phase.STARTING, When.ACTING, acts=2),
    Point(Phase.STOPPING, When.ACTING),
    Point(Phase.STOPPING, When.LEAVING),
    Point(Phase.RESERVING, When.ACTING),
    Point(Phase.DETECTED, When.LEAVING),
    Point(Phase.CONFIRMING, When.LEAVING),
)
"""Where a leader stands still: what it sent last is on its way."""


def stand_still(replica: Replica) -> None:
    """What it has just sent is on its way, too."""
    replica.proxy.hold()
    replica.freeze()


def come_back(control_plane: ControlPlane) -> None:
    """
    The API server, and with it everybody who needs it. Those would come back by themselves, but each later than the
    last time: their client doubles its waits for as long as nothing answers, and forgets that after two quiet minutes.
    """
    control_plane.start_api_server()
    for name in ("kube-scheduler", "kube-controller-manager", "kwok", "jobset"):
        control_plane.programs[name].stop()
        control_plane.programs[name].start()


def refusals(replica: Replica, scenario: Scenario) -> list[int]:
    """How the API server refused what a replica wrote about the gang."""
    about = [(request, status) for request, status in replica.proxy.refused if scenario.namespace in request.path]
    return [status for request, status in about if request.is_about_gangs]


async def sprung(breakpoint_at: Breakpoint) -> Replica:
    """Who came to the moment."""
    async with asyncio.timeout(30):
        await breakpoint_at.sprung.wait()
    assert breakpoint_at.caught is not None
    return breakpoint_at.caught


async def recovered_once(scenario: Scenario) -> None:
    """The gang runs again after one restart, and each rank began exactly twice."""
    recovery = await scenario.until_phase(Phase.RECOVERED)
    await scenario.until_running(1)
    assert len(scenario.recoveries()) == 1
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert scenario.ranks.overlaps == []
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0, 1)}


@pytest.mark.parametrize(
    ("phase", "which"), one_in(3, list(itertools.product((Phase.STOPPING, Phase.STARTING), KINDS))), ids=str
)
async def test_gang_is_restarted_once_though_the_api_server_goes_away(
    scenario: Scenario, replicas: Replicas, phase: Phase, which: str
) -> None:
    await asyncio.gather(replicas.add(2), scenario.play(which))
    breakpoint_at = Breakpoint(
        replicas, scenario.namespace, Point(phase, When.ACTED), lambda replica: replica.proxy.hold()
    )
    scenario.break_gpu(scenario.node_of(rank=0))
    caught = await sprung(breakpoint_at)

    await asyncio.to_thread(scenario.control_plane.stop_api_server)
    caught.proxy.release()
    await asyncio.to_thread(come_back, scenario.control_plane)

    await recovered_once(scenario)


@pytest.mark.parametrize("which", one_in(2, KINDS))
async def test_gang_is_restarted_once_though_the_api_server_is_slow(
    scenario: Scenario, replicas: Replicas, which: str
) -> None:
    await asyncio.gather(replicas.add(2), scenario.play(which))
    for replica in replicas.all:
        replica.proxy.delay = 0.15

    scenario.break_gpu(scenario.node_of(rank=0))

    await recovered_once(scenario)


@pytest.mark.parametrize(("point", "which"), one_in(5, list(itertools.product(POINTS, KINDS))), ids=str)
async def test_late_writes_of_a_leader_that_stood_still_change_nothing(
    scenario: Scenario, replicas: Replicas, point: Point, which: str
) -> None:
    await asyncio.gather(replicas.add(2), scenario.play(which))
    leader = await replicas.leader()
    breakpoint_at = Breakpoint(replicas, scenario.namespace, point, stand_still)
    scenario.break_gpu(scenario.node_of(rank=0))
    assert await sprung(breakpoint_at) is leader

    await recovered_once(scenario)
    settled = scenario.recoveries()[0].status
    leader.proxy.release()
    await asyncio.to_thread(wait_until, "an answer to the late write", lambda: refusals(leader, scenario), limit=10)
    leader.thaw()
    await leader.says("leader.deposed")

    assert set(refusals(leader, scenario)) == {HTTPStatus.CONFLICT}
    assert scenario.recoveries()[0].status == settled
    await recovered_once(scenario)
