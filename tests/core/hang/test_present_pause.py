"""What is kept of a pause: which members polled for most of it."""

from __future__ import annotations

from healthd.core.hang.present_pause import MOST_SETS, PresentPause
from tests.core.hang.sampled import Gang, sleeps, spins, steps


def known(ranks: int) -> Gang:
    """A gang whose rhythm is known."""
    gang = Gang(ranks)
    assert gang.run(120, steps()) is None
    return gang


def test_a_night_in_which_each_second_other_members_poll_is_kept_in_little_room() -> None:
    gang, pause = known(6), PresentPause()
    for second in range(200):
        gang.run(1, *(spins if second >> rank & 1 else sleeps for rank in range(6)))
        pause.add(gang.rhythm.members, float(second))

    assert pause.counted == MOST_SETS


def test_the_members_that_mostly_polled_are_known_whatever_others_did_between() -> None:
    gang, pause = known(6), PresentPause()
    for second in range(240):
        polling = second // 3 if second % 3 == 0 else 1
        gang.run(1, *(spins if polling >> rank & 1 else sleeps for rank in range(6)))
        pause.add(gang.rhythm.members, float(second))

    assert pause.mostly_polled == {"0"}
