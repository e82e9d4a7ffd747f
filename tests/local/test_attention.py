"""For how long healthd itself did not run."""

from __future__ import annotations

from datetime import timedelta

from healthd.local.attention import Attention
from tests.fakes import START, ManualClock

SECOND = timedelta(seconds=1)


def attentive(clock: ManualClock, seconds: int = 10) -> Attention:
    """It has run for so many seconds."""
    attention = Attention(clock)
    for _ in range(seconds):
        clock.advance(SECOND)
        attention.note()
    return attention


def test_while_healthd_runs_nothing_is_missed() -> None:
    assert attentive(ManualClock()).missed_since(START) == timedelta(0)


def test_a_sleep_is_missed_from_the_moment_on_at_which_the_machine_woke() -> None:
    clock = ManualClock()
    attention = attentive(clock)
    clock.advance(timedelta(hours=8))

    assert attention.missed_since(START) == timedelta(hours=8), "whatever asks first"


def test_of_a_sleep_that_began_before_a_moment_the_rest_counts() -> None:
    clock = ManualClock()
    attention = attentive(clock)
    slept_at = clock.now()
    clock.advance(timedelta(hours=8))

    assert attention.missed_since(slept_at + timedelta(hours=6)) == timedelta(hours=2)
    assert attention.missed_since(clock.now()) == timedelta(0)


def test_sleeps_add_up_and_a_busy_machine_is_none() -> None:
    clock = ManualClock()
    attention = attentive(clock)
    for delay in (timedelta(minutes=5), 3 * SECOND, timedelta(minutes=1)):
        clock.advance(delay)
        attention.note()

    assert attention.missed_since(START) == timedelta(minutes=6)
