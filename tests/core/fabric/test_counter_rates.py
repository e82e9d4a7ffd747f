"""What of the growth of counters is published, and how coarsely."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.diagnosis.signals.tables import known_rules
from healthd.core.fabric.counter_rates import MEASURE_EVERY, QUIET, SPAN, WATCHED, Count, RateTracker, power_of
from tests.fakes import START

COUNT = Count("0000:5c:00.0", "port 1", "roce.out_of_sequence")
OTHER = Count("0000:5d:00.0", "port 1", "roce.out_of_sequence")


def metered(*totals: float, every: timedelta = MEASURE_EVERY) -> RateTracker:
    """A meter that saw these, one after the other."""
    meter = RateTracker()
    for number, total in enumerate(totals):
        meter.take({COUNT: total}, START + number * every)
    return meter


def test_nothing_is_reported_before_an_hour_was_watched() -> None:
    assert metered(*range(12)).hourly() == {}
    assert metered(*range(13)).hourly() == {COUNT: 12}


def test_what_grew_more_than_an_hour_ago_is_forgotten() -> None:
    assert metered(0, *[1000] * 13).hourly() == {COUNT: 0}


def test_growth_over_a_longer_time_counts_in_proportion() -> None:
    assert metered(0, 3000, every=3 * SPAN).hourly() == {COUNT: 1000}


def test_a_counter_that_began_anew_has_no_growth_until_it_was_watched_for_an_hour() -> None:
    assert metered(5000, *[10] * 12).hourly() == {}
    assert metered(5000, *[10] * 13).hourly() == {COUNT: 0}


def test_a_counter_that_came_later_does_not_hold_up_the_others() -> None:
    meter = metered(*range(12))
    meter.take({COUNT: 12, OTHER: 9}, START + SPAN)

    assert meter.hourly() == {COUNT: 12}


def test_a_repair_makes_what_was_counted_before_it_history() -> None:
    meter = metered(*range(13))
    meter.settle()
    meter.take({COUNT: 14}, START + 2 * SPAN)

    assert meter.hourly() == {}


def test_it_is_measured_every_five_minutes() -> None:
    meter = metered(0)

    assert RateTracker().is_due(START)
    assert not meter.is_due(START + MEASURE_EVERY - timedelta(seconds=1))
    assert meter.is_due(START + MEASURE_EVERY)


@pytest.mark.parametrize(("grown", "power"), [(0, 0), (1023, 0), (1024, 10), (2047.9, 10), (2048, 11), (1e9, 29)])
def test_growth_is_reported_as_a_power_of_two_and_little_of_it_as_none(grown: float, power: int) -> None:
    assert power_of(grown) == power


@pytest.mark.parametrize(
    ("grown", "before", "power"),
    [(1400, 0, 0), (1600, 0, 10), (3000, 10, 10), (3100, 10, 11), (700, 10, 10), (600, 10, 0), (1 << 20, 10, 20)],
)
def test_what_hovers_at_a_limit_is_not_reported_anew(grown: float, before: int, power: int) -> None:
    assert power_of(grown, before) == power


def test_what_is_published_is_read_because_a_rule_is_about_it() -> None:
    read = {rule.reads for rule in known_rules().values()}

    assert {reading for readings in WATCHED.values() for reading in readings} <= read
    assert QUIET == 10  # as the description of `Nic.growth` says
