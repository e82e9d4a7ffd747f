"""The pace of one service: its rate holds in every minute, and nothing waits long."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.core.alerts.pacing import LONGEST_PAUSE, LONGEST_RETRY, MINUTE, Pace, retry_delay
from healthd.core.backoff import no_jitter
from tests.core.alerts.problems import at
from tests.fakes import START


def a_pace(rate: float = 20) -> Pace:
    return Pace.after(rate, (), START)


@settings(deadline=None)
@given(st.sampled_from([1, 2, 3, 20, 60, 100]), st.lists(st.floats(0, 20), max_size=200))
def test_no_minute_has_more_messages_than_the_rate(rate: float, waits: list[float]) -> None:
    pace, now, sent = a_pace(rate), START, list[datetime]()
    for wait in waits:
        now += timedelta(seconds=wait)
        for _ in range(pace.allowed(now)):
            pace = pace.took(1, now)
            sent.append(now)

    for end in sent:
        assert sum(1 for each in sent if end - MINUTE < each <= end) <= rate


def test_after_a_burst_the_next_message_waits_for_seconds() -> None:
    pace = a_pace(20).took(10, START)

    assert pace.allowed(START) == 0
    assert pace.next_at(START) == at(6)
    assert pace.allowed(at(6)) == 1


def test_a_new_leader_counts_what_the_last_one_sent() -> None:
    pace = Pace.after(20, [at(-number) for number in range(8)] + [at(-90)], START)

    assert pace.allowed(START) == 2


def test_a_service_that_fails_is_left_alone_for_longer_each_time() -> None:
    pace, pauses = a_pace(), []
    for _ in range(10):
        pace = pace.failed(START, no_jitter)
        pauses.append((pace.next_at(START) - START).total_seconds())

    assert pauses[:4] == [1, 2, 4, 8]
    assert max(pauses) == LONGEST_RETRY.total_seconds()
    assert pace.allowed(START) == 0
    assert pace.succeeded().allowed(START) == 10


@pytest.mark.parametrize(("asked", "pause"), [(30, 30), (0.1, 1), (-5, 1), (1e12, LONGEST_PAUSE.total_seconds())])
def test_a_pause_that_the_service_asks_for_is_kept_within_reason(asked: float, pause: float) -> None:
    assert a_pace().failed(START, no_jitter, asked).next_at(START) == at(pause)


def test_jitter_shortens_a_delay_by_up_to_half() -> None:
    assert retry_delay(3, lambda: 1.0) == timedelta(seconds=4)


def test_a_clock_that_was_set_back_gives_no_messages_for_nothing() -> None:
    assert a_pace().took(10, START).allowed(at(-3600)) == 0
