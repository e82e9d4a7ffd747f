"""Pods that hang before their rhythm is known, by their control groups: which are listed, and what is no such hang."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from healthd.core.api.health import MemberState
from healthd.core.hang.pods import GpusOfNode
from healthd.core.hang.samples import Usage
from tests.core.hang.sampled_pods import Node, Second, serves, sleeps, trains

GPUS = GpusOfNode(answering=8)


def loads(dice: random.Random) -> Usage:
    """It imports its libraries."""
    return Usage(cpu=dice.uniform(0.7, 1.0), faults=3000, system=0.1)


def always(usage: Usage) -> Second:
    return lambda _dice: usage


def started(gpus: GpusOfNode | None = None) -> Node:
    """A pod has begun while the agent runs, and has loaded for 20 s."""
    node = Node()
    if gpus is not None:
        node.rhythms.observe_gpus(gpus)
    node.run(15, web=serves)
    node.run(20, rank=loads)
    return node


def test_a_pod_that_loads_and_then_does_nothing_is_silent_after_two_minutes() -> None:
    node = started()
    began = node.now
    node.run(119, rank=sleeps)
    assert node.states() == {}

    node.run(4, rank=sleeps)
    rhythm = node.only()
    assert (rhythm.state, rhythm.is_start, rhythm.allowed, rhythm.worked) == (MemberState.SILENT, True, 120.0, 0)
    assert rhythm.since is not None
    assert abs(rhythm.since - began) <= timedelta(seconds=2)


@pytest.mark.parametrize("later", range(0, 15, 2))
def test_one_that_has_loaded_for_seconds_before_it_was_first_looked_at_is_too(later: int) -> None:
    node = Node()
    node.run(15 + later, web=serves)
    node.run(5, rank=loads)
    node.run(153, rank=sleeps)

    assert node.states() == {"rank": "silent"}


def test_one_that_was_there_before_the_agent_is_not_judged() -> None:
    """It may have worked for days, too little to be sampled."""
    node = Node()
    node.run(20, rank=loads)
    node.run(600, rank=sleeps)

    assert node.states() == {}


def test_pods_that_the_agent_sees_late_or_again_have_not_begun() -> None:
    """It begins before it has looked for them, and may lose sight of all of them."""
    node = Node()
    node.run(15)
    node.run(40, rank=loads)
    used = node.used
    node.run(15)
    node.used = used
    node.run(20, rank=loads)
    node.run(600, rank=sleeps)

    assert node.states() == {}


def test_a_service_that_is_busy_for_a_moment_after_hours_is_in_no_start() -> None:
    node = Node()
    node.run(15, web=serves)
    node.run(3600, cron=sleeps)
    node.run(20, cron=loads)
    node.run(600, cron=sleeps)

    assert node.states() == {}


@pytest.mark.parametrize(
    "does",
    [
        always(Usage(cpu=0.03)),
        always(Usage(cpu=0.01, faults=40)),
        always(Usage(cpu=0.01, written=1e6)),
        always(Usage(cpu=0.01, calls=1)),
    ],
    ids=["a light step", "new memory", "a file", "a disk"],
)
def test_whatever_may_be_work_is_work(does: Second) -> None:
    node = started()
    for _ in range(6):
        node.run(60, rank=sleeps)
        node.run(2, rank=does)

    assert "silent" not in node.states().values()


@pytest.mark.parametrize(("gpus", "states"), [(None, set()), (GPUS, {"silent"})], ids=["none", "eight"])
def test_the_threads_of_eight_ranks_that_wait_are_little_beside_gpus(gpus: GpusOfNode | None, states: set[str]) -> None:
    node = started(gpus)
    node.run(150, rank=always(Usage(cpu=0.06)))

    assert {*node.states().values()} - {"working"} == states


def test_a_pod_that_has_hardly_begun_may_be_a_shell() -> None:
    node = Node()
    node.run(15, web=serves)
    node.run(2, rank=always(Usage(cpu=0.8)))
    node.run(150, rank=always(Usage(cpu=0.001)))

    assert node.states() == {}


def test_a_pod_whose_gpus_may_work_is_not_silent_until_they_have_stopped_for_as_long() -> None:
    node = started(GPUS)
    stopped = at_work(node, 200)[-1]
    assert node.states() == {}

    node.run(118, rank=sleeps)
    assert node.states() == {}
    node.run(5, rank=sleeps)
    assert node.only().since == stopped.replace(microsecond=0)


def at_work(node: Node, seconds: int) -> list[datetime]:
    """The GPUs of the node work, while its pod sleeps."""
    times = []
    for _ in range(seconds):
        times.append(node.now)
        node.rhythms.observe_gpus(GpusOfNode(answering=8, worked_at=node.now))
        node.run(1, rank=sleeps)
    return times


def test_what_works_again_is_taken_back_before_its_rhythm_is_known_and_then_may_be_idle_for_longer() -> None:
    node = started()
    node.run(150, rank=sleeps)
    assert node.states() == {"rank": "silent"}

    node.run(3, rank=loads)
    assert node.only().state is MemberState.WORKING
    assert node.only().is_start
    node.run(240, rank=sleeps)
    assert node.states() == {"rank": "working"}
    node.run(100, rank=sleeps)
    assert node.states() == {"rank": "silent"}


def test_a_start_that_hung_is_no_rhythm_and_what_follows_it_is() -> None:
    node = started()
    node.run(1200, rank=always(Usage(cpu=0.015)))
    assert node.only().state is MemberState.SILENT

    node.run(1300, rank=trains)
    assert (node.only().state, node.only().is_start) == (MemberState.WORKING, False)


def test_it_is_looked_at_as_any_silence_is() -> None:
    node = started()
    node.run(130, rank=sleeps)
    assert node.rhythms.to_look_at == ["rank"]
    node.rhythms.look_at({})

    activity = node.only().activity
    assert activity is not None
    assert activity.cpu < 0.01


def test_a_pod_that_is_idle_for_hours_is_no_longer_sampled() -> None:
    node = started()
    node.run(2 * 3600, rank=sleeps)
    assert node.rhythms.sampled == ["rank"]

    node.run(3700, rank=sleeps)
    assert node.rhythms.sampled == []
