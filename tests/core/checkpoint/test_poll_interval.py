"""When a gang that was restarted is looked at, where each look costs a pod."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from healthd.core.api.save_stats import Save, Saves
from healthd.core.checkpoint.poll_interval import next_poll
from healthd.core.recovery.gang import Root
from healthd.core.recovery.progress import Progress
from tests.core.gangs import a_root
from tests.fakes import START

LONGEST = timedelta(minutes=5)


def saving_every(seconds: float, *, writes: float = 0) -> Root:
    """A gang whose rhythm is known."""
    saves = Saves(good=[Save(step=1, at=START, seconds=writes)])
    return a_root(progress=Progress(step=9, at=START, intervals=[seconds] * 3), saves=saves)


def looks(root: Root, until: timedelta) -> Iterator[float]:
    """Seconds after the start at which it is looked at."""
    now = START
    while (now := now + next_poll(root, START, now, LONGEST)) <= START + until:
        yield (now - START).total_seconds()


def test_where_no_rhythm_is_known_looks_come_soon_and_then_more_rarely() -> None:
    assert list(looks(a_root(), timedelta(minutes=25))) == [10, 20, 40, 80, 160, 320, 620, 920, 1220]


def test_the_first_sample_comes_when_a_save_is_due_and_written() -> None:
    assert list(looks(saving_every(120, writes=20), timedelta(minutes=5))) == [140, 150, 160, 180, 220, 300]


@pytest.mark.parametrize("seconds", [1, 5])
def test_a_gang_that_saves_all_the_time_is_read_soon(seconds: float) -> None:
    assert next(looks(saving_every(seconds), LONGEST)) == 10


def test_no_two_reads_are_further_apart_than_that() -> None:
    assert list(looks(saving_every(3600), timedelta(minutes=16))) == [300, 600, 900]
