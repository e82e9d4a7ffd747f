"""The statistics: what is believed of one machine among its peers, and how few good ones are called lemons."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from healthd.core.reliability.lemons import FALSE_SHARE, Cell, Estimate, called, cell_of, estimate, fit, grouped
from healthd.core.reliability.published import NODE_FAILURES_PER_DAY
from tests.core.reliability.fleets import Recipe, found, precision_and_recall

GOOD = Counter({Cell(0, 70.0): 900, Cell(1, 70.0): 90, Cell(2, 70.0): 10})
"""A thousand machines with 0.11 outages each in ten weeks."""


def test_days_in_service_are_rounded_by_one_percent_at_most() -> None:
    assert all(cell_of(1, days).days == pytest.approx(days, rel=0.011) for days in (0.01, 0.5, 7, 73, 180))
    assert cell_of(0, 0).days == pytest.approx(0.01, rel=0.011)


def test_without_peers_what_was_published_is_usual() -> None:
    assert fit({}).rate == NODE_FAILURES_PER_DAY.value


def test_the_usual_rate_is_that_of_the_peers() -> None:
    assert fit(GOOD).rate == pytest.approx(0.11 / 70, rel=0.1)


def test_lemons_do_not_raise_the_rate_that_they_are_compared_with() -> None:
    with_lemons = GOOD + Counter({Cell(8, 70.0): 10})

    assert fit(with_lemons).rate == pytest.approx(fit(GOOD).rate, rel=0.2)  # all together have 1.7 times that rate
    assert fit(with_lemons).share > 3 * fit(GOOD).share


def test_a_machine_without_an_outage_has_a_low_rate_and_not_a_rate_of_0() -> None:
    peers = fit(GOOD)

    judged = estimate(Cell(0, 70.0), peers)

    assert 0 < judged.low < judged.rate < judged.high
    assert judged.rate < peers.rate * 30


def test_one_outage_in_the_first_week_is_no_sign() -> None:
    assert estimate(Cell(1, 7.0), fit(GOOD)).probability < 0.2


def test_more_outages_make_a_lemon_more_likely_and_more_time_less() -> None:
    peers = fit(GOOD)

    by_count = [estimate(Cell(count, 70.0), peers).probability for count in range(8)]
    by_days = [estimate(Cell(3, days), peers).probability for days in (20.0, 70.0, 180.0)]

    assert by_count == sorted(by_count)
    assert by_count[0] < 0.01 < 0.95 < by_count[6]
    assert by_days == sorted(by_days, reverse=True)


def test_the_interval_holds_the_true_rate_as_often_as_it_says() -> None:
    draw = random.Random(1)
    truths = [0.002 * draw.gammavariate(4, 0.25) for _ in range(400)]
    cells = [cell_of(sum(draw.random() < rate for _ in range(180)), 180.0) for rate in truths]
    peers = fit(Counter(cells))
    judged = {cell: estimate(cell, peers) for cell in set(cells)}

    inside = [judged[cell].low <= 30 * rate <= judged[cell].high for rate, cell in zip(truths, cells, strict=True)]

    assert 0.92 <= sum(inside) / len(inside) <= 1


def judged(*pairs: tuple[int, float]) -> list[tuple[Cell, Estimate]]:
    return [(Cell(count, 70.0), Estimate(1, 1, 1, probability)) for count, probability in pairs]


def test_lemons_are_called_while_few_of_them_are_expected_to_be_good() -> None:
    assert called(judged((5, 0.99), (5, 0.95), (4, 0.80), (3, 0.55))) == 0.80


def test_two_outages_are_never_a_lemon() -> None:
    assert called(judged((2, 0.99))) > 1


def test_what_is_more_likely_good_is_never_called_a_lemon() -> None:
    assert called(judged(*[(9, 0.9999)] * 100, (3, 0.49))) == 0.9999


def test_groups_go_from_all_to_the_same_kind_and_small_ones_are_left_out() -> None:
    units = [(("a", "young"), Cell(0, 7.0))] * 2 + [(("a", "old"), Cell(0, 70.0))] * 3 + [(("b", "old"), Cell(1, 70.0))]

    groups = grouped(units, 3)

    assert {kind: cells.total() for kind, cells in groups.items()} == {(): 6, ("a",): 5, ("a", "old"): 3}


def test_three_lemons_among_63_nodes_are_found_after_the_73_days_of_the_study() -> None:
    draw = random.Random(1)
    counts = sum((found(Recipe(outages=60), draw) for _ in range(25)), Counter[str]())

    precision, recall = precision_and_recall(counts)

    assert min(precision, recall) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0, 4, 2])
def test_lemons_are_found_also_where_good_nodes_differ(shape: float) -> None:
    draw = random.Random(2)
    counts = sum((found(Recipe(outages=60, shape=shape), draw) for _ in range(100)), Counter[str]())

    precision, recall = precision_and_recall(counts)

    assert min(precision, recall) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0, 4])
def test_of_thousands_of_good_nodes_hardly_any_is_called_a_lemon(shape: float) -> None:
    draw = random.Random(3)
    recipe = Recipe(outages=600, nodes=5000, lemons=0, days=180, shape=shape)

    wrong = sum(found(recipe, draw)["wrong"] for _ in range(4))

    assert wrong <= 4 * 5000 * 0.0005


@pytest.mark.slow
def test_few_of_those_that_are_called_are_good_in_a_large_fleet_as_well() -> None:
    draw = random.Random(4)
    recipe = Recipe(outages=3000, nodes=5000, lemons=50, share=0.2, shape=4)

    precision, recall = precision_and_recall(found(recipe, draw) + found(recipe, draw))

    assert precision >= 1 - 1.5 * FALSE_SHARE
    assert recall >= 0.9
