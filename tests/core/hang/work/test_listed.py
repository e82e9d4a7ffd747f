"""What an agent lists of those that are slow on its node."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from healthd.core.api.health import MOST_SLOW_RANKS
from healthd.core.hang.work.listed import ENDED_FOR, Listed
from tests.fakes import START

MINUTE = timedelta(minutes=1)


class Slow(NamedTuple):
    """One that others wait for."""

    since: datetime = START
    ended_at: datetime | None = None


def test_those_that_are_over_make_room_first() -> None:
    listed, still_slow = Listed[Slow](), Slow()
    listed.note("slow", still_slow)
    for number in range(MOST_SLOW_RANKS + 2):
        listed.note("another", Slow(START + number * MINUTE, START + number * MINUTE))

    assert len(listed.newest) == MOST_SLOW_RANKS
    assert still_slow in listed.newest


def test_of_those_that_are_still_slow_the_newest_are_listed() -> None:
    listed = Listed[Slow]()
    for number in range(MOST_SLOW_RANKS + 1):
        listed.note(number, Slow(START + number * MINUTE))

    assert [each.since for each in listed.newest] == [START + n * MINUTE for n in range(1, MOST_SLOW_RANKS + 1)]


def test_its_end_replaces_what_was_known_of_one() -> None:
    listed = Listed[Slow]()
    listed.note(1, Slow())
    listed.note(1, Slow(ended_at=START + MINUTE))

    assert listed.newest == [Slow(ended_at=START + MINUTE)]


def test_one_that_is_over_is_forgotten_after_a_while() -> None:
    listed = Listed[Slow]()
    listed.note(1, Slow(ended_at=START))
    listed.note(2, Slow())
    listed.forget_ended(START + ENDED_FOR)
    assert len(listed.newest) == 2

    listed.forget_ended(START + ENDED_FOR + MINUTE)
    assert listed.newest == [Slow()]
