"""A heartbeat is due once in each interval, sooner after a failure, and only while the reconcile loop turns."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.alerts.heartbeat import Due, LastBeat, due
from tests.fakes import START

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def test_a_new_leader_beats_after_its_first_round_and_not_before() -> None:
    assert due(None, 0, START, MINUTE) is Due.WITHHOLD
    assert due(None, 1, START, MINUTE) is Due.SEND


@pytest.mark.parametrize(
    ("after", "rounds", "what"),
    [
        (59 * SECOND, 60, Due.NOT_YET),
        (60 * SECOND, 60, Due.SEND),
        (60 * SECOND, 7, Due.WITHHOLD),
        (3600 * SECOND, 7, Due.WITHHOLD),
        (3600 * SECOND, 8, Due.SEND),
        (-3600 * SECOND, 60, Due.NOT_YET),
    ],
)
def test_a_beat_needs_the_interval_and_a_round_since_the_last(after: timedelta, rounds: int, what: Due) -> None:
    assert due(LastBeat(START, 7), rounds, START + after, MINUTE) is what


@pytest.mark.parametrize(
    ("interval", "after", "what"),
    [
        (MINUTE, 9 * SECOND, Due.NOT_YET),
        (MINUTE, 10 * SECOND, Due.SEND),
        (10 * SECOND, 10 * SECOND, Due.SEND),
    ],
)
def test_a_beat_that_failed_is_tried_again_sooner(interval: timedelta, after: timedelta, what: Due) -> None:
    assert due(LastBeat(START, 7, has_failed=True), 8, START + after, interval) is what


def test_a_beat_that_failed_is_not_tried_again_while_the_loop_stands_still() -> None:
    assert due(LastBeat(START, 7, has_failed=True), 7, START + MINUTE, MINUTE) is Due.WITHHOLD
