"""A thousand schedules of faults, and the proof that they would find a bug."""

from __future__ import annotations

import pytest

from tests.simulation.plants import PLANTS
from tests.simulation.simulation import run

CHUNK = 125
FOUND_WITHIN = {
    "skip-fence": 40,
    "forget-intent": 10,
    "forget-preconditions": 60,
    "list-then-write-budget": 60,
    "resume-from-torn": 10,
}
"""Schedules after which each planted bug has been found, from seed 1 on."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1, 1001, CHUNK))
def test_no_schedule_of_faults_breaks_an_invariant(first: int) -> None:
    broken = [(o.seed, o.broken) for seed in range(first, first + CHUNK) if (o := run(seed)).broken]

    assert not broken, f"replay with: python -m tests.simulation --replay {broken[0][0]} -v"


@pytest.mark.slow
@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_bug_is_found(plant: str) -> None:
    seeds = range(1, FOUND_WITHIN[plant] + 1)

    assert any(run(seed, parts=PLANTS[plant]).broken for seed in seeds)


def test_a_seed_gives_the_same_trace_twice() -> None:
    assert run(7).trace == run(7).trace


def test_another_seed_gives_another_trace() -> None:
    assert run(7).trace != run(8).trace
