"""What a user does to his gang while it is being recovered stands: the recovery is over, and the gang left alone."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.breakpoints import Breakpoint, Point, When
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.sampled import one_in
from tests.kubernetes.scenario import MEMBERS, Scenario

pytestmark = [pytest.mark.lab, pytest.mark.slow]

Deed = Callable[[Scenario], object]
RUNNING = (Point(Phase.DETECTED, When.RECORDED), Point(Phase.STOPPING, When.RECORDED))
STOPPED = (
    Point(Phase.STOPPING, When.LEAVING),
    Point(Phase.FENCING, When.RECORDED),
    Point(Phase.CHOOSING, When.RECORDED),
    Point(Phase.RESERVING, When.RECORDED),
    Point(Phase.STARTING, When.RECORDED),
)
STARTED = (Point(Phase.STARTING, When.LEAVING), Point(Phase.CONFIRMING, When.RECORDED))
OTHER_KINDS = ("JobSet", "StatefulSet", "StatefulSet with a launcher", "plain pods")


def suspends(scenario: Scenario) -> None:
    patch(scenario, {"spec": {"suspend": True}})


def resumes(scenario: Scenario) -> None:
    patch(scenario, {"spec": {"suspend": False}})


def makes_it_smaller(scenario: Scenario) -> None:
    smaller = MEMBERS - 1
    size = (
        {"replicas": smaller}
        if scenario.gang.kind == "StatefulSet"
        else {"parallelism": smaller, "completions": smaller}
    )
    patch(scenario, {"spec": size})


def scales_to_zero(scenario: Scenario) -> None:
    patch(scenario, {"spec": {"replicas": 0}})


def deletes(scenario: Scenario) -> None:
    scenario.kubectl("delete", scenario.gang.resource, "--all", "--wait=false")


def patch(scenario: Scenario, what: dict[str, Any]) -> None:
    scenario.kubectl("patch", scenario.gang.resource, "llama", "--type=merge", "-p", json.dumps(what))


async def meanwhile(scenario: Scenario, replicas: Replicas, which: str, point: Point, deed: Deed) -> None:
    """A gang is being recovered; at *point* its user does his *deed*, and the controller knows nothing of it yet."""
    await asyncio.gather(replicas.add(), scenario.play(which))
    breakpoint_at = Breakpoint(replicas, scenario.namespace, point, lambda replica: replica.proxy.hold())
    scenario.break_gpu(scenario.node_of(rank=0))
    async with asyncio.timeout(30):
        await breakpoint_at.sprung.wait()
    await asyncio.to_thread(deed, scenario)
    for replica in replicas.all:
        replica.proxy.release()


@pytest.mark.parametrize("point", one_in(3, [*RUNNING, *STARTED]), ids=str)
async def test_gang_that_its_user_suspends_stays_so(scenario: Scenario, replicas: Replicas, point: Point) -> None:
    await meanwhile(scenario, replicas, "Job", point, suspends)

    await scenario.until_phase(Phase.SUPERSEDED)
    await scenario.until("no pod to live", lambda: not scenario.living())
    assert scenario.get("job/llama")["spec"]["suspend"]


@pytest.mark.parametrize("point", one_in(4, [*RUNNING, *STOPPED, *STARTED]), ids=str)
async def test_gang_that_its_user_deletes_is_not_made_again(
    scenario: Scenario, replicas: Replicas, point: Point
) -> None:
    await meanwhile(scenario, replicas, "Job", point, deletes)

    await scenario.until_phase(Phase.SUPERSEDED)
    await scenario.until("no pod to live", lambda: not scenario.living())
    await scenario.until("the spare to be given back", lambda: is_free(scenario, scenario.spares[0]))


@pytest.mark.parametrize("point", one_in(3, STOPPED), ids=str)
async def test_job_that_its_user_sets_going_is_not_stopped_again(
    scenario: Scenario, replicas: Replicas, point: Point
) -> None:
    await meanwhile(scenario, replicas, "Job", point, resumes)

    await scenario.until_phase(Phase.SUPERSEDED)
    assert not scenario.get("job/llama")["spec"]["suspend"]
    assert attempts(scenario) == {0}


@pytest.mark.parametrize("point", one_in(3, STOPPED), ids=str)
async def test_workers_that_their_user_sets_going_are_not_stopped_again(
    scenario: Scenario, replicas: Replicas, point: Point
) -> None:
    await meanwhile(scenario, replicas, "StatefulSet", point, makes_it_smaller)

    await scenario.until_phase(Phase.SUPERSEDED)
    assert scenario.get("statefulset/llama")["spec"]["replicas"] == MEMBERS - 1
    assert attempts(scenario) == {0}


@pytest.mark.parametrize("point", one_in(3, STOPPED), ids=str)
async def test_gang_that_its_user_changes_while_it_is_stopped_waits_for_the_user(
    scenario: Scenario, replicas: Replicas, point: Point
) -> None:
    await meanwhile(scenario, replicas, "Job", point, makes_it_smaller)

    await scenario.until_phase(Phase.SUPERSEDED)
    assert scenario.get("job/llama")["spec"]["suspend"]
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0,)}


@pytest.mark.parametrize("point", one_in(3, [*RUNNING, *STARTED]), ids=str)
async def test_workers_that_their_user_scales_to_zero_stay_so(
    scenario: Scenario, replicas: Replicas, point: Point
) -> None:
    await meanwhile(scenario, replicas, "StatefulSet", point, scales_to_zero)

    await scenario.until_phase(Phase.SUPERSEDED)
    await scenario.until("no pod to live", lambda: not scenario.living())
    assert scenario.get("statefulset/llama")["spec"]["replicas"] == 0


@pytest.mark.parametrize(
    ("point", "which"), one_in(3, list(itertools.product((STOPPED[1], STARTED[1]), OTHER_KINDS))), ids=str
)
async def test_gang_of_any_kind_that_its_user_deletes_is_not_made_again(
    scenario: Scenario, replicas: Replicas, point: Point, which: str
) -> None:
    await meanwhile(scenario, replicas, which, point, deletes)

    await scenario.until_phase(Phase.SUPERSEDED)
    if which != "plain pods":
        await scenario.until(
            "no worker to live", lambda: not [p for p in scenario.living() if "launcher" not in p.metadata.name]
        )


async def test_plain_pods_that_their_user_deletes_after_a_restart_are_not_made_again(
    scenario: Scenario, replicas: Replicas
) -> None:
    await meanwhile(
        scenario, replicas, "plain pods", STARTED[1], lambda scenario: scenario.kubectl("delete", "pods", "--all")
    )

    await scenario.until_phase(Phase.SUPERSEDED)
    await scenario.until("no pod to live", lambda: not scenario.living())


def is_free(scenario: Scenario, spare: str) -> bool:
    node = scenario.node(spare)
    return {taint.key for taint in node.spec.taints} == {"healthd.dev/spare"}


def attempts(scenario: Scenario) -> set[int]:
    """Those that ever began."""
    return {attempt for begun in scenario.ranks.starts.values() for attempt in begun}
