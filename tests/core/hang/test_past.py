"""What share of its life a member spent at which level of processor time."""

from __future__ import annotations

import pytest

from healthd.core.hang.past import FULL, Past


def lived(*parts: tuple[float, float], every: float = 1.0) -> Past:
    """So many seconds at so many cores, one after the other."""
    past = Past()
    for seconds, cpu in parts:
        for _ in range(int(seconds / every)):
            past.add(cpu, every)
    return past


def test_of_a_member_without_a_past_nothing_is_usual() -> None:
    assert not Past().is_mostly_below(1.0)
    assert not lived((59, 0.001)).is_mostly_below(1.0)


@pytest.mark.parametrize("every", [1.0, 15.0])
def test_what_lasts_for_minutes_in_hours_is_not_usual(every: float) -> None:
    assert lived((3600, 0.002), (600, 2.5), every=every).is_mostly_below(0.5)
    assert not lived((600, 0.002), (3600, 2.5), every=every).is_mostly_below(0.5)


def test_steps_that_are_idle_for_most_of_their_time_are_work() -> None:
    past = Past()
    for _ in range(20):
        past.add(1.0, 6.0)
        past.add(0.0, 54.0)

    assert not past.is_mostly_below(0.02)


def test_a_job_that_changes_for_good_has_another_past_after_some_hours() -> None:
    past = lived((10 * 3600, 0.002), every=15.0)
    assert past.is_mostly_below(0.5)

    for _ in range(int(FULL / 15)):
        past.add(2.5, 15.0)
    assert not past.is_mostly_below(0.5)


@pytest.mark.parametrize("cpu", [0.0, 1e-9, 1e9, float("inf")])
def test_levels_without_bounds_are_levels(cpu: float) -> None:
    past = lived((120, cpu))

    assert past.is_mostly_below(0.0) == (cpu < 1)
