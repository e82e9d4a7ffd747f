"""Failures and repairs of a fleet, and what stands in for them while they are few."""

from __future__ import annotations

import pytest

from healthd.core.reliability.fleet_rates import OWN_FAILURES, OWN_REPAIRS, published_failures, rates
from healthd.core.reliability.history import left
from healthd.core.reliability.published import REPAIR_HOURS
from healthd.core.reliability.spare_pool import wanted_spares
from tests.core.reliability.histories import DAY, NOW, a_history, an_outage


def test_a_fleet_without_a_history_has_the_published_rates_nearly() -> None:
    (kind,) = rates([a_history(1, since=NOW - DAY)], NOW)

    assert kind.failures.value == pytest.approx(published_failures().value, rel=0.01)
    assert (kind.repair_hours.value, "assumption" in kind.repair_hours.source) == (REPAIR_HOURS.value, True)


def test_few_failures_count_together_with_what_was_published() -> None:
    (kind,) = rates([a_history(n) for n in range(63)], NOW)

    assert 0 < kind.failures.value < 0.01
    assert "published" in kind.failures.source


def test_a_fleet_with_failures_of_its_own_has_its_own_rate() -> None:
    fleet = [a_history(n, outages=[an_outage(10)] if n < OWN_FAILURES else []) for n in range(60)]

    (kind,) = rates(fleet, NOW)

    assert kind.failures.value == pytest.approx(OWN_FAILURES / (60 * 73) * 30, rel=0.01)
    assert kind.failures.source.startswith(f"{OWN_FAILURES} failures in 4,379 node-days")


def test_the_repair_time_is_the_mean_of_the_fleets_own_repairs() -> None:
    fleet = [a_history(n, outages=[an_outage(10, hours=hours)]) for n, hours in enumerate((2, 4, 12))]

    (kind,) = rates(fleet, NOW)

    assert kind.repair_hours == (6.0, f"mean of {OWN_REPAIRS} repairs of this fleet")


def test_a_repair_that_goes_on_counts_with_its_time_so_far() -> None:
    fleet = [a_history(n, outages=[an_outage(10, hours=4)]) for n in range(3)]
    fleet.append(a_history(9, outages=[an_outage(63, hours=None)]))

    (kind,) = rates(fleet, NOW)

    assert kind.repair_hours.value == pytest.approx((3 * 4 + 240) / 3)
    assert "1 of them going on" in kind.repair_hours.source


def test_each_kind_of_node_has_rates_of_its_own() -> None:
    old = [a_history(n, model="8 x A100", outages=[an_outage(day) for day in range(0, 60, 10)]) for n in range(3)]

    found = rates([*old, *(a_history(n) for n in range(10, 20))], NOW)

    assert [(kind.model, kind.nodes) for kind in found] == [("8 x NVIDIA H100 80GB HBM3", 10), ("8 x A100", 3)]
    assert found[1].failures.value > 10 * found[0].failures.value


def test_machines_that_are_away_are_history_and_no_nodes() -> None:
    (kind,) = rates([a_history(1), left(a_history(2, outages=[an_outage(1)]), NOW - DAY)], NOW)

    assert (kind.nodes, kind.failures.source[:9]) == (1, "1 failure")


def test_spares_of_one_kind_are_no_help_for_another() -> None:
    one = [a_history(n, outages=[an_outage(day, hours=48) for day in (5, 35)]) for n in range(60)]
    other = [a_history(n, model="8 x A100", outages=[an_outage(5, hours=48)]) for n in range(60, 120)]

    together = wanted_spares([*one, *other], [], NOW)

    assert together == wanted_spares(one, [], NOW) + wanted_spares(other, [], NOW)
    assert together > 4


def test_an_empty_cluster_wants_no_spare() -> None:
    assert wanted_spares([], [], NOW) == 0
