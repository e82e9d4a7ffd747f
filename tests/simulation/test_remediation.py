"""Schedules of automatic remediation, and the proof that each of its invariants can fail."""

from __future__ import annotations

import itertools

import pytest

from healthd.core.api.remediations import Rung
from tests.seeds import first_fresh_seed, name_of
from tests.simulation.remediation import happenings
from tests.simulation.remediation.healing import heal
from tests.simulation.remediation.hosts import LINES
from tests.simulation.remediation.mutants import FOUND_BY, MUTANTS
from tests.simulation.remediation.simulation import RemediationSimulation, run

SEEDS, FRESH = 10, 20
"""Schedules with seeds from 1 on, and with seeds that follow from the commit."""
FOUND_WITHIN = 60
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


def test_a_person_has_time_for_each_node_that_waited_for_the_only_slot_of_the_budget() -> None:
    """The first one was uncordoned, so that it comes back by a repair by hand alone (seed 3460507536)."""
    worlds = (RemediationSimulation(seed) for seed in itertools.count(1))
    sim = next(each for each in worlds if each.config.quarantine.budget == 1 and len(each.hosts.all) > 2)
    for name in sorted(sim.hosts.all):
        sim.hosts.breaks(name, LINES["bus"], Rung.REBOOT, sim.clock.now())
    sim.luck.is_out = True
    sim.go(sim.agents["node-0"])
    happenings.uncordon(sim, "node-0")

    heal(sim)

    assert sim.watch.returns == len(sim.hosts.all)
