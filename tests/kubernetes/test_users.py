"""What a user does to his gang while it is being recovered stands: the recovery is over, and the gang left alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.stage import MEMBERS, Stage
from tests.kubernetes.traps import Point, Trap, When
from tests.kubernetes.whole import one_in

pytestmark = [pytest.mark.lab, pytest.mark.slow]

Deed = Callable[[Stage], object]
RUNNING = (Point(Phase.DETECTED, When.RECORDED), Point(Phase.STOPPING, When.RECORDED))
STOPPED = (
    Point(Phase.STOPPING, When.LEAVING),
    Point(Phase.FENCING, When.RECORDED),
    Point(Phase.CHOOSING, When.RECORDED),
    Point(Phase.RESERVING, When.RECORDED),
    Point(Phase.STARTING, When.RECORDED),
)
STARTED = (Point(Phase.STARTING, When.LEAVING), Point(Phase.CONFIRMING, When.RECORDED))


def suspends(stage: Stage) -> None:
    patch(stage, {"spec": {"suspend": True}})


def resumes(stage: Stage) -> None:
    patch(stage, {"spec": {"suspend": False}})


def makes_it_smaller(stage: Stage) -> None:
    smaller = MEMBERS - 1
    size = (
        {"replicas": smaller} if stage.gang.kind == "StatefulSet" else {"parallelism": smaller, "completions": smaller}
    )
    patch(stage, {"spec": size})


def scales_to_zero(stage: Stage) -> None:
    patch(stage, {"spec": {"replicas": 0}})


def deletes(stage: Stage) -> None:
    stage.kubectl("delete", stage.gang.resource, "--all", "--wait=false")


def patch(stage: Stage, what: dict[str, Any]) -> None:
    stage.kubectl("patch", stage.gang.resource, "llama", "--type=merge", "-p", json.dumps(what))


async def meanwhile(stage: Stage, replicas: Replicas, which: str, point: Point, deed: Deed) -> None:
    """A gang is being recovered; at *point* its user does his *deed*, and the controller knows nothing of it yet."""
    await asyncio.gather(replicas.add(), stage.play(which))
    trap = Trap(replicas, stage.namespace, point, lambda replica: replica.gate.hold())
    stage.break_gpu(stage.node_of(rank=0))
    async with asyncio.timeout(30):
        await trap.sprung.wait()
    await asyncio.to_thread(deed, stage)
    for replica in replicas.all:
        replica.gate.release()


@pytest.mark.parametrize("point", one_in(2, [*RUNNING, *STARTED]), ids=str)
async def test_gang_that_its_user_suspends_stays_so(stage: Stage, replicas: Replicas, point: Point) -> None:
    await meanwhile(stage, replicas, "Job", point, suspends)

    await stage.until_phase(Phase.SUPERSEDED)
    await stage.until("no pod to live", lambda: not stage.living())
    assert stage.get("job/llama")["spec"]["suspend"]


@pytest.mark.parametrize("point", one_in(2, [*RUNNING, *STOPPED, *STARTED]), ids=str)
async def test_gang_that_its_user_deletes_is_not_made_again(stage: Stage, replicas: Replicas, point: Point) -> None:
    await meanwhile(stage, replicas, "Job", point, deletes)

    await stage.until_phase(Phase.SUPERSEDED)
    await stage.until("no pod to live", lambda: not stage.living())
    await stage.until("the spare to be given back", lambda: is_free(stage, stage.spares[0]))


@pytest.mark.parametrize("point", one_in(3, STOPPED), ids=str)
async def test_job_that_its_user_sets_going_is_not_stopped_again(
    stage: Stage, replicas: Replicas, point: Point
) -> None:
    await meanwhile(stage, replicas, "Job", point, resumes)

    await stage.until_phase(Phase.SUPERSEDED)
    assert not stage.get("job/llama")["spec"]["suspend"]
    assert attempts(stage) == {0}


@pytest.mark.parametrize("point", one_in(3, STOPPED), ids=str)
async def test_workers_that_their_user_sets_going_are_not_stopped_again(
    stage: Stage, replicas: Replicas, point: Point
) -> None:
    await meanwhile(stage, replicas, "StatefulSet", point, makes_it_smaller)

    await stage.until_phase(Phase.SUPERSEDED)
    assert stage.get("statefulset/llama")["spec"]["replicas"] == MEMBERS - 1
    assert attempts(stage) == {0}


@pytest.mark.parametrize("point", one_in(3, STOPPED), ids=str)
async def test_gang_that_its_user_changes_while_it_is_stopped_waits_for_him(
    stage: Stage, replicas: Replicas, point: Point
) -> None:
    await meanwhile(stage, replicas, "Job", point, makes_it_smaller)

    await stage.until_phase(Phase.SUPERSEDED)
    assert stage.get("job/llama")["spec"]["suspend"]
    assert set(map(tuple, stage.ranks.starts.values())) == {(0,)}


@pytest.mark.parametrize("point", one_in(2, [*RUNNING, *STARTED]), ids=str)
async def test_workers_that_their_user_scales_to_zero_stay_so(stage: Stage, replicas: Replicas, point: Point) -> None:
    await meanwhile(stage, replicas, "StatefulSet", point, scales_to_zero)

    await stage.until_phase(Phase.SUPERSEDED)
    await stage.until("no pod to live", lambda: not stage.living())
    assert stage.get("statefulset/llama")["spec"]["replicas"] == 0


@pytest.mark.parametrize("which", ["JobSet", "StatefulSet", "StatefulSet with a launcher", "plain pods"])
@pytest.mark.parametrize("point", [STOPPED[1], STARTED[1]], ids=str)
async def test_gang_of_any_kind_that_its_user_deletes_is_not_made_again(
    stage: Stage, replicas: Replicas, which: str, point: Point
) -> None:
    await meanwhile(stage, replicas, which, point, deletes)

    await stage.until_phase(Phase.SUPERSEDED)
    if which != "plain pods":
        await stage.until(
            "no worker to live", lambda: not [p for p in stage.living() if "launcher" not in p.metadata.name]
        )


async def test_plain_pods_that_their_user_deletes_after_a_restart_are_not_made_again(
    stage: Stage, replicas: Replicas
) -> None:
    await meanwhile(stage, replicas, "plain pods", STARTED[1], lambda stage: stage.kubectl("delete", "pods", "--all"))

    await stage.until_phase(Phase.SUPERSEDED)
    await stage.until("no pod to live", lambda: not stage.living())


def is_free(stage: Stage, spare: str) -> bool:
    node = stage.node(spare)
    return {taint.key for taint in node.spec.taints} == {"healthd.dev/spare"}


def attempts(stage: Stage) -> set[int]:
    """Those that ever began."""
    return {attempt for begun in stage.ranks.starts.values() for attempt in begun}
