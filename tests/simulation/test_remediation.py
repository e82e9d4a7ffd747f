"""Schedules of automatic remediation, and the proof that each of its invariants can fail."""

from __future__ import annotations

import pytest

from tests.seeds import first_fresh_seed, name_of
from tests.simulation.remediation.mutants import FOUND_BY, MUTANTS
from tests.simulation.remediation.simulation import run

SEEDS, FRESH = 10, 20
"""Schedules with seeds from 1 on, and with seeds that follow from the commit."""
FOUND_WITHIN = 40
"""Schedules from seed 1 on after which each planted bug has been found."""


def ranges() -> list[range]:
    fresh = first_fresh_seed()
    return [range(1, SEEDS + 1), range(fresh, fresh + FRESH)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", ranges(), ids=name_of)
def test_no_schedule_of_remediation_breaks_an_invariant(seeds: range) -> None:
    outcomes = [run(seed) for seed in seeds]
    broken = [(each.seed, each.broken) for each in outcomes if each.broken]

    assert not broken, f"replay with: python -m tests.simulation.remediation --replay {broken[0][0]} -v: {broken}"
    assert sum(each.requests for each in outcomes) > len(seeds) / 2
    assert sum(each.returns for each in outcomes) > len(seeds) / 4


@pytest.mark.slow
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_mutant_of_the_remediation_is_found(mutant: str) -> None:
    found = (run(seed, MUTANTS[mutant]).broken for seed in range(1, FOUND_WITHIN + 1))

    assert any(why.startswith(f"{FOUND_BY[mutant]}:") for why in found)


@pytest.mark.slow
def test_a_seed_gives_the_same_remediations_twice() -> None:
    assert run(7).trace == run(7).trace
