"""Progress and rhythm of a gang."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.config import HangPolicy
from healthd.core.recovery.progress import (
    KEPT_INTERVALS,
    NO_PROGRESS,
    Progress,
    advance,
    output_allowed,
    silence_allowed,
)
from tests.fakes import START

POLICY = HangPolicy(factor=5, floor=timedelta(minutes=1))


def steps(*seconds: float, attempt: int = 0, start: Progress = NO_PROGRESS) -> Progress:
    """Progress after one step at each of these moments."""
    progress = start
    for at in seconds:
        progress = advance(progress, progress.step + 1, attempt, START + timedelta(seconds=at))
    return progress


def test_intervals_between_steps_are_remembered() -> None:
    assert steps(0, 10, 40).intervals == [10, 30]


def test_only_the_newest_are_kept() -> None:
    assert len(steps(*range(100)).intervals) == KEPT_INTERVALS


def test_the_same_step_again_is_no_progress() -> None:
    progress = steps(0, 10)

    assert advance(progress, progress.step, 0, START + timedelta(hours=1)) is progress


def test_a_restart_is_no_interval() -> None:
    assert steps(1000, attempt=1, start=steps(0, 10)).intervals == [10]


def test_a_step_back_within_an_attempt_is_no_interval() -> None:
    assert advance(steps(0, 10, 20), 0, 0, START + timedelta(seconds=30)).intervals == [10, 10]


def test_time_in_which_the_machine_slept_is_no_part_of_an_interval() -> None:
    slept = timedelta(minutes=1)
    progress = advance(steps(0, 10), 2, 0, START + timedelta(seconds=80), slept)

    assert progress.intervals == [10, 10]


def test_a_clock_that_went_back_makes_no_negative_interval() -> None:
    assert steps(100, 40).intervals == [0]


def test_silence_is_measured_by_the_longest_interval() -> None:
    assert silence_allowed(steps(0, 10, 20, 60), POLICY, 0) == timedelta(seconds=200)


def test_silence_is_never_shorter_than_the_floor() -> None:
    assert silence_allowed(steps(0, 1, 2, 3), POLICY, 0) == timedelta(minutes=1)


def test_while_the_rhythm_is_not_known_a_gang_may_be_silent_as_long_as_before_its_first_step() -> None:
    assert silence_allowed(steps(0, 10, 20), POLICY, 0) == POLICY.first_step
    assert silence_allowed(NO_PROGRESS, HangPolicy(first_step=timedelta(0)), 0) == HangPolicy().floor


def test_a_new_attempt_has_its_start_up_before_its_first_step() -> None:
    known = steps(0, 10, 20, 60)
    seen_again = advance(known, known.step, 1, START + timedelta(minutes=5))

    assert silence_allowed(seen_again, POLICY, 1) == POLICY.first_step
    assert silence_allowed(steps(400, attempt=1, start=known), POLICY, 1) == timedelta(seconds=200)


def test_output_alone_counts_for_as_long_as_the_first_steps_may_take() -> None:
    assert output_allowed(steps(0, 10, 20, 60), POLICY, 0) == POLICY.first_step
    assert output_allowed(steps(0, 1000, 2000, 3000), POLICY, 0) == timedelta(seconds=5000)


def test_after_a_restart_it_counts_for_longer_until_a_save() -> None:
    known = steps(0, 10, 20, 60)

    assert output_allowed(known, POLICY, 1) == 4 * POLICY.first_step
    assert output_allowed(steps(400, attempt=1, start=known), POLICY, 1) == POLICY.first_step
