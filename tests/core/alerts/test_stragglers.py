"""What a gang with a slow rank is to the person on call."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from healthd.core.alerts.advice import IN_CLUSTER
from healthd.core.alerts.problem import Problem
from healthd.core.alerts.stragglers import straggler_problems
from healthd.core.api.incidents import Severity
from healthd.core.hang.straggler import Straggler
from tests.core.gangs import a_root
from tests.fakes import START

SLOW = Straggler(
    rank="5",
    slower=0.11,
    since=START,
    seen_at=START + timedelta(minutes=2),
    ran=1.0,
    starved=0.0,
    peers_ran=0.9,
    peers_starved=0.0,
    confidence=0.9,
    pod="train-5",
    node="gpu-7",
    reason="it works, and its peers wait",
)


def problems(*slow: Straggler) -> list[Problem]:
    return list(straggler_problems([a_root()], lambda _: slow, IN_CLUSTER))


def test_a_slow_rank_is_a_notice_that_names_it_its_node_and_why() -> None:
    (found,) = problems(SLOW)

    assert (found.severity, found.cause, found.since, found.nodes) == (Severity.NOTICE, "straggler", START, ("gpu-7",))
    assert found.title == "job/train in default is about 11% slower, because of rank 5"
    assert found.happened == (
        "Rank 5 (pod train-5, node gpu-7) makes its gang about 11% slower (90% sure): it works, and its peers wait."
    )
    assert found.did == "healthd does nothing about it."
    assert found.command == "healthd explain job/train -n default"


def test_several_ranks_of_a_gang_are_one_problem_under_the_key_of_the_first() -> None:
    later = replace(SLOW, rank="3", node="gpu-2", since=START + timedelta(minutes=9))
    (first,), (both,) = problems(SLOW), problems(later, SLOW)

    assert both.key == first.key
    assert both.nodes == ("gpu-2", "gpu-7")


def test_a_gang_without_one_is_no_problem() -> None:
    assert problems() == []
