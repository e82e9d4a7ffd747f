"""The spares plan, against theory and against a simulated fleet."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from healthd.core.reliability.published import HOURS_IN_MONTH, NODE_FAILURES_PER_DAY
from healthd.core.reliability.spares_plan import MOST_NODES, Fleet, distribution, option, plan
from tests.core.reliability.repairs import RepairTime, exponential, lognormal, simulate

PUBLISHED = NODE_FAILURES_PER_DAY.value * 30


@pytest.mark.parametrize(("nodes", "spares"), [(1, 0), (20, 4), (200, 9)])
def test_with_a_crew_for_each_node_the_broken_ones_are_binomial(nodes: int, spares: int) -> None:
    fleet = Fleet(nodes, failures=1.5, repair_hours=60)
    load = 1.5 / HOURS_IN_MONTH * 60
    down = load / (1 + load)
    total = nodes + spares

    for number, share in distribution(fleet, spares):
        assert share == pytest.approx(math.comb(total, number) * down**number * (1 - down) ** (total - number))


def test_one_crew_is_the_machine_repairmans_problem() -> None:
    fleet = Fleet(4, failures=3.0, repair_hours=48, crews=1)
    load = 3.0 / HOURS_IN_MONTH * 48
    weights = [math.perm(4, number) * load**number for number in range(5)]

    shares = [share for _, share in distribution(fleet, 0)]

    assert shares == pytest.approx([weight / sum(weights) for weight in weights])


@pytest.mark.parametrize(
    ("nodes", "hours", "spares"),
    [(64, 24, 2), (128, 24, 4), (256, 24, 5), (512, 24, 8), (1024, 24, 13), (64, 4, 1), (512, 4, 3), (1024, 4, 4)],
)
def test_repair_time_drives_spares_more_than_size(nodes: int, hours: float, spares: int) -> None:
    wanted = plan(Fleet(nodes, PUBLISHED, hours), 0.01).wanted

    assert wanted is not None
    assert wanted.spares == spares


@pytest.mark.parametrize("shortage", [0.2, 0.01, 0.0001])
def test_a_plan_has_the_fewest_spares_that_are_enough(shortage: float) -> None:
    found = plan(Fleet(300, 0.4, 36), shortage)

    assert found.wanted is not None
    before = option(Fleet(300, 0.4, 36), found.wanted.spares - 1)
    assert found.wanted.shortage <= shortage < before.shortage


def test_each_further_spare_is_worth_less() -> None:
    lost = [option(Fleet(300, 0.4, 36), spares).lost_gpu_hours for spares in range(20)]

    saved = [before - after for before, after in itertools.pairwise(lost)]

    assert saved == sorted(saved, reverse=True)
    assert all(one > 0 for one in saved)


def test_one_more_spare_is_worth_the_hours_that_it_saves() -> None:
    fleet = Fleet(63, PUBLISHED, 24)

    found = plan(fleet, 0.01, around=0)

    assert found.next_is_worth == pytest.approx(option(fleet, 2).lost_gpu_hours - option(fleet, 3).lost_gpu_hours)


def test_a_missing_node_holds_its_whole_gang() -> None:
    alone, gang = option(Fleet(64, 0.2, 24), 1), option(Fleet(64, 0.2, 24, gang=16), 1)

    assert gang.lost_gpu_hours == pytest.approx(16 * alone.lost_gpu_hours, rel=1e-3)


def test_no_spares_are_enough_where_repairs_cannot_keep_up() -> None:
    assert plan(Fleet(20, failures=30, repair_hours=24, crews=1), 0.01).wanted is None


def test_a_fleet_that_never_fails_needs_no_spare() -> None:
    wanted = plan(Fleet(100, failures=0, repair_hours=24), 0.01).wanted

    assert wanted is not None
    assert (wanted.spares, wanted.shortage) == (0, 0)


def test_the_largest_fleet_is_planned_without_overflow() -> None:
    wanted = plan(Fleet(MOST_NODES, failures=1, repair_hours=72), 0.001).wanted

    assert wanted is not None
    assert wanted.shortage == pytest.approx(0.001, rel=0.2)


@pytest.mark.parametrize(
    ("fleet", "repair_time"),
    [
        (Fleet(63, 1.0, 24), exponential),
        (Fleet(63, 1.0, 24), lognormal),
        (Fleet(40, 1.5, 12, crews=2), exponential),
    ],
)
def test_a_simulated_fleet_is_short_as_often_as_planned(fleet: Fleet, repair_time: RepairTime) -> None:
    found = plan(fleet, 0.05, around=0).wanted
    assert found is not None

    seen = simulate(fleet, found.spares, years=60, draw=random.Random(1), repair_time=repair_time)

    assert seen.shortage == pytest.approx(found.shortage, abs=0.01)
    assert seen.refused == pytest.approx(found.refused, abs=0.03)
    assert seen.lost_gpu_hours == pytest.approx(found.lost_gpu_hours, rel=0.3)
