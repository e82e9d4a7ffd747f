"""The API server goes away in the middle of a recovery, or the controller stands still: one restart all the same."""

from __future__ import annotations

import asyncio
import itertools
from http import HTTPStatus

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.replicas import Replica, Replicas
from tests.kubernetes.stage import Stage
from tests.kubernetes.traps import Point, Trap, When
from tests.kubernetes.whole import one_in
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
    replica.gate.hold()
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


def refusals(replica: Replica, stage: Stage) -> list[int]:
    """How the API server refused what a replica wrote about the gang."""
    about = [(request, status) for request, status in replica.gate.refused if stage.namespace in request.path]
    return [status for request, status in about if request.is_about_gangs]


async def sprung(trap: Trap) -> Replica:
    """Who came to the moment."""
    async with asyncio.timeout(30):
        await trap.sprung.wait()
    assert trap.caught is not None
    return trap.caught


async def recovered_once(stage: Stage) -> None:
    """The gang runs again after one restart, and each rank began exactly twice."""
    recovery = await stage.until_phase(Phase.RECOVERED)
    await stage.until_running(1)
    assert len(stage.recoveries()) == 1
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert stage.ranks.overlaps == []
    assert set(map(tuple, stage.ranks.starts.values())) == {(0, 1)}


@pytest.mark.parametrize("which", KINDS)
@pytest.mark.parametrize("phase", [Phase.STOPPING, Phase.STARTING])
async def test_gang_is_restarted_once_though_the_api_server_goes_away(
    stage: Stage, replicas: Replicas, phase: Phase, which: str
) -> None:
    await asyncio.gather(replicas.add(2), stage.play(which))
    trap = Trap(replicas, stage.namespace, Point(phase, When.ACTED), lambda replica: replica.gate.hold())
    stage.break_gpu(stage.node_of(rank=0))
    caught = await sprung(trap)

    await asyncio.to_thread(stage.control_plane.stop_api_server)
    caught.gate.release()
    await asyncio.to_thread(come_back, stage.control_plane)

    await recovered_once(stage)


@pytest.mark.parametrize("which", KINDS)
async def test_gang_is_restarted_once_though_the_api_server_is_slow(
    stage: Stage, replicas: Replicas, which: str
) -> None:
    await asyncio.gather(replicas.add(2), stage.play(which))
    leader = await replicas.leader()
    for replica in replicas.all:
        replica.gate.delay = 0.15

    stage.break_gpu(stage.node_of(rank=0))

    await recovered_once(stage)
    assert await replicas.leader() is leader


@pytest.mark.parametrize(("point", "which"), one_in(3, list(itertools.product(POINTS, KINDS))), ids=str)
async def test_late_writes_of_a_leader_that_stood_still_change_nothing(
    stage: Stage, replicas: Replicas, point: Point, which: str
) -> None:
    await asyncio.gather(replicas.add(2), stage.play(which))
    leader = await replicas.leader()
    trap = Trap(replicas, stage.namespace, point, stand_still)
    stage.break_gpu(stage.node_of(rank=0))
    assert await sprung(trap) is leader

    await recovered_once(stage)
    settled = stage.recoveries()[0].status
    leader.gate.release()
    await asyncio.to_thread(wait_until, "an answer to the late write", lambda: refusals(leader, stage), limit=10)
    leader.thaw()
    await leader.says("leader.deposed")

    assert set(refusals(leader, stage)) == {HTTPStatus.CONFLICT}
    assert stage.recoveries()[0].status == settled
    await recovered_once(stage)
