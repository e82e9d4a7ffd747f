"""A first sign that a rank of a gang may have become slow, by the windows that happen to be published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from healthd.core.hang.work.suspects import Suspect, still_slow, suspects
from healthd.core.hang.work.work_windows import Window

SLOW_AFTER = 100
"""The number of the last window before rank 3 becomes slow."""
NAMES = [str(rank) for rank in range(8)]


def published(until: Mapping[str, int], *, slow_until: int = 999, slow: int = 3) -> dict[str, dict[int, Window]]:
    """24 windows of each rank, up to another one. While one rank is slow the others work a tenth less."""
    return {
        name: {
            number: Window(
                (0.9 if SLOW_AFTER < number <= slow_until and int(name) != slow else 1.0) + 0.004 * (number % 3 - 1),
                0.0,
                0.0,
            )
            for number in range(newest - 23, newest + 1)
        }
        for name, newest in until.items()
    }


def found(windows: Mapping[str, Mapping[int, Window]]) -> list[Suspect]:
    return suspects(windows, exempt={"0"}, scale=1.0, usual=1.0)


def known(newest: int, of: str = "", older: int = 96) -> dict[str, int]:
    """*newest* of the ranks *of*, and older windows of the others."""
    return {name: newest if name in of else older for name in NAMES}


def test_a_rank_is_suspected_as_soon_as_its_own_windows_and_those_of_three_peers_show_it() -> None:
    (suspect,) = found(published(known(104, of="345")))

    assert (suspect.rank, suspect.since, suspect.until) == ("3", SLOW_AFTER, 104)


def test_none_is_suspected_while_its_own_agent_has_not_written() -> None:
    assert found(published(known(104, of="456"))) == []


def test_none_is_suspected_by_the_windows_of_one_peer() -> None:
    assert found(published(known(104, of="34"))) == []


def test_a_rank_that_works_more_is_suspected_before_the_agents_of_its_peers_have_written() -> None:
    """Those of peers that hardly wait write as rarely as in quiet times."""
    windows = published(known(104, of="3"))
    assert found(windows) == []

    windows["3"] |= {number: Window(1.08, 0.0, 0.0) for number in range(SLOW_AFTER + 1, 105)}
    assert [(each.rank, each.since) for each in found(windows)] == [("3", SLOW_AFTER)]


def test_peers_that_hardly_wait_do_not_show_that_it_is_over() -> None:
    windows = published(known(104, of="3456") | {"6": 107}, slow_until=SLOW_AFTER)
    windows["3"] |= {number: Window(1.1, 0.0, 0.0) for number in range(SLOW_AFTER + 1, 105)}
    for name in "456":
        windows[name] |= {number: Window(0.99, 0.0, 0.0) for number in range(SLOW_AFTER + 1, 105)}

    assert [each.rank for each in found(windows)] == ["3"]


@pytest.mark.parametrize("ranks", [2, 3])
def test_of_two_or_three_ranks_each_is_compared_with_its_peers_alone(ranks: int) -> None:
    names = dict.fromkeys(NAMES[:ranks], 104)

    assert [each.rank for each in found(published(names, slow=1))] == ["1"]
    assert found(published(names, slow=ranks)) == [], "none of them is slow"


def test_the_rank_that_saves_for_all_is_not_compared() -> None:
    assert found(published(known(104, of="01234567"), slow=0)) == []


def test_a_rank_is_not_suspected_any_more_when_a_peer_is_known_to_work_as_before() -> None:
    windows = published(known(104, of="3456") | {"6": 107}, slow_until=104)

    assert found(windows) == []
    assert [each.rank for each in found(published(known(104, of="3456") | {"6": 107}))] == ["3"]


def test_where_the_ranks_do_other_work_none_is_suspected() -> None:
    windows = published(known(104, of="01234567"))
    for name in "123":
        windows[name] = windows["3"]

    assert found(windows) == []


def test_an_evaluation_by_one_rank_is_no_sign() -> None:
    windows = published(known(104, of="01234567"))
    for name in NAMES:
        windows[name] |= {number: Window(1.0 if name == "3" else 0.2, 0.0, 0.0) for number in range(101, 105)}

    assert found(windows) == []


def test_whether_a_rank_is_still_slow_is_seen_by_windows_of_minutes_later_alone() -> None:
    (suspect,) = found(published(known(104, of="345")))

    def is_slow(windows: Mapping[str, Mapping[int, Window]]) -> bool:
        return still_slow([suspect], windows, scale=1.0, usual=1.0) == [suspect]

    assert is_slow(published(known(114, of="3456")))
    assert not is_slow(published(known(114, of="3456"), slow_until=110))
    assert not is_slow(published(known(104, of="3456")))


class Counted(dict[int, Window]):
    """Windows of one rank, and how often they were gone through."""

    read = 0

    def items(self) -> Any:
        """All of them."""
        self.read += 1
        return super().items()


def test_a_large_gang_of_which_many_are_suspected_at_once_is_not_read_anew_for_each_of_them() -> None:
    """Else the controller would do nothing but that for a minute."""
    windows = {
        str(rank): Counted(
            {n: Window(1.3 if n > SLOW_AFTER and rank % 3 == 0 else 1.0, 0.0, 0.0) for n in range(78, 103)}
        )
        for rank in range(600)
    }

    assert found(windows) == []
    assert sum(each.read for each in windows.values()) < 10 * len(windows)
    suspected = [Suspect(rank, SLOW_AFTER, SLOW_AFTER + 2, 0.0, 0.3) for rank in windows]
    assert still_slow(suspected, windows, scale=1.0, usual=1.0) == []
    assert sum(each.read for each in windows.values()) < 12 * len(windows)
