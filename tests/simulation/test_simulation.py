"""A thousand schedules of faults, and the proof that they would find a bug."""

from __future__ import annotations

import pytest

from tests.seeds import first_fresh_seed, name_of, pieces
from tests.simulation import single_node
from tests.simulation.mutants import MUTANTS, ON_SINGLE_NODE
from tests.simulation.simulation import run

FRESH = 250
"""Schedules of each kind with seeds that follow from the commit."""
FOUND_WITHIN = {
    "skip-fence": 40,
    "forget-intent": 10,
    "forget-preconditions": 100,
    "list-then-write-budget": 60,
    "resume-from-torn": 10,
    "doubt-nothing": 30,
    "swap-unasked": 60,
}
"""Schedules after which each planted bug has been found, from seed 1 on."""
FOUND_BY = {
    "trust-old-samples": 12,
    "believe-at-first-sight": 13,
    "forgive-late": 14,
    "overrule-the-kernel": 15,
    "keep-witnesses-apart": 16,
    "act-in-shadow": 17,
    "count-through-repairs": 13,
    "hear-of-no-repair": 18,
}
"""The invariant of readings that each bug breaks on a single node, within 60 schedules."""


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [*pieces(1, 250), *pieces(first_fresh_seed(), FRESH)], ids=name_of)
def test_no_schedule_of_faults_breaks_an_invariant(seeds: range) -> None:
    broken = [(o.seed, o.broken) for seed in seeds if (o := run(seed)).broken]

    assert not broken, f"replay with: python -m tests.simulation --replay {broken[0][0]} -v"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", sorted(MUTANTS))
def test_a_mutant_is_found(mutant: str) -> None:
    seeds = range(1, FOUND_WITHIN[mutant] + 1)

    assert any(run(seed, parts=MUTANTS[mutant]).broken for seed in seeds)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [*pieces(1, 250), *pieces(first_fresh_seed(), FRESH)], ids=name_of)
def test_no_schedule_of_readings_breaks_an_invariant(seeds: range) -> None:
    broken = [(o.seed, o.broken) for seed in seeds if (o := single_node.run(seed)).broken]

    assert not broken, f"replay with: python -m tests.simulation --single-node --replay {broken[0][0]} -v"


@pytest.mark.slow
@pytest.mark.parametrize("mutant", sorted(ON_SINGLE_NODE))
def test_a_mutant_of_the_judging_of_readings_is_found(mutant: str) -> None:
    found = (single_node.run(seed, parts=ON_SINGLE_NODE[mutant]).broken for seed in range(1, 61))

    assert any(why.startswith(f"invariant {FOUND_BY[mutant]}:") for why in found)


def test_a_gang_may_leave_nodes_within_the_step_in_which_their_maintenance_is_announced() -> None:
    assert not run(3210200588).broken


def test_a_node_of_a_gang_that_a_person_made_a_spare_leaves_the_pool_no_smaller() -> None:
    assert not run(3670002522).broken


def test_two_spares_in_place_of_one_node_leave_the_pool_no_smaller() -> None:
    assert not run(7200450).broken


def test_what_the_kernel_reported_is_remembered_where_the_agent_dies_before_it_says_so() -> None:
    assert not run(6200081875).broken


def test_a_gang_whose_second_stop_a_person_deleted_is_not_started_as_the_same_attempt() -> None:
    assert not run(6100010972).broken


def test_a_gang_whose_record_is_made_again_from_before_a_second_stop_is_not_started_as_the_same_attempt() -> None:
    assert not run(8100029603).broken


def test_a_pod_that_is_started_after_a_boot_is_not_let_go_for_that_boot() -> None:
    assert not run(8200013284).broken


def test_a_spare_that_was_given_back_stays_free_when_its_gang_is_made_larger_again() -> None:
    assert not run(8500002505).broken


def test_a_planned_restart_waits_after_a_recovery_that_the_cache_has_not_seen() -> None:
    assert not run(6200021624).broken


def test_a_clock_that_is_behind_is_not_put_forward_under_a_living_agent() -> None:
    assert not single_node.run(3310102161).broken


def test_a_seed_gives_the_same_days_twice() -> None:
    assert single_node.run(7).trace == single_node.run(7).trace


@pytest.mark.slow
def test_a_seed_gives_the_same_trace_twice() -> None:
    assert run(7).trace == run(7).trace


@pytest.mark.slow
def test_another_seed_gives_another_trace() -> None:
    assert run(7).trace != run(8).trace
