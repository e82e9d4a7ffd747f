"""How lost kernel records are told of."""

from __future__ import annotations

from datetime import timedelta

from healthd.agent.listen import TELL_EVERY, Losses
from tests.fakes import START


def test_a_flood_is_told_of_at_once_and_then_in_sums() -> None:
    losses = Losses()

    told = [losses.to_tell(10, START + timedelta(milliseconds=100 * batch)) for batch in range(201)]

    assert told[0] == 10
    assert [lost for lost in told[1:] if lost] == [1000, 1000]


def test_the_rest_of_a_flood_is_told_of_later() -> None:
    losses = Losses()
    losses.to_tell(3, START)
    losses.to_tell(4, START + timedelta(seconds=1))

    assert losses.to_tell(0, START + timedelta(seconds=2)) == 0
    assert losses.to_tell(0, START + TELL_EVERY) == 4
    assert losses.to_tell(0, START + 2 * TELL_EVERY) == 0


def test_a_clock_that_was_set_back_silences_nobody() -> None:
    losses = Losses()
    losses.to_tell(3, START)

    assert losses.to_tell(1, START - timedelta(days=1)) == 1
