"""The windows that are known of all ranks of a gang."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from healthd.core.hang.work.common_windows import KNOWN_FOR, CommonWindows

LENGTH = 15
FIRST = 120_000_000
"""The number of a window."""


def at(number: int) -> datetime:
    """When window *number* ends."""
    return datetime.fromtimestamp(number * LENGTH, UTC)


def numbers(windows: CommonWindows[str], now: datetime) -> list[int]:
    """Those that are known of all by now."""
    found = list[int]()
    while (window := windows.next(now)) is not None:
        assert set(window.windows) == {"a", "b"}
        found.append(int(window.end.timestamp()) // LENGTH)
    return found


def several(first: int, last: int) -> dict[int, str]:
    return dict.fromkeys(range(first, last + 1), "works")


def test_a_window_is_handed_out_once_when_it_is_known_of_all() -> None:
    windows = CommonWindows[str](["a", "b"], LENGTH)
    windows.take("a", several(FIRST, FIRST + 5), at(FIRST + 5))
    assert numbers(windows, at(FIRST + 5)) == []
    windows.take("b", several(FIRST, FIRST + 3), at(FIRST + 5))

    assert numbers(windows, at(FIRST + 5)) == [FIRST, FIRST + 1, FIRST + 2, FIRST + 3]
    windows.take("b", several(FIRST, FIRST + 5), at(FIRST + 6))
    assert numbers(windows, at(FIRST + 6)) == [FIRST + 4, FIRST + 5]


def test_a_rank_of_which_nothing_is_known_yet_holds_up_no_window_of_later() -> None:
    windows = CommonWindows[str](["a", "b"], LENGTH)
    windows.take("a", several(FIRST, FIRST + 20), at(FIRST + 20))
    assert numbers(windows, at(FIRST + 20)) == []
    windows.take("b", several(FIRST + 18, FIRST + 20), at(FIRST + 20))

    assert numbers(windows, at(FIRST + 20)) == [FIRST + 18, FIRST + 19, FIRST + 20]


def test_a_window_that_stays_unknown_of_one_is_left_out() -> None:
    windows = CommonWindows[str](["a", "b"], LENGTH)
    windows.take("a", several(FIRST, FIRST + 2), at(FIRST + 2))
    windows.take("b", {FIRST: "works", FIRST + 2: "works"}, at(FIRST + 2))
    assert numbers(windows, at(FIRST + 2)) == [FIRST]

    assert numbers(windows, at(FIRST + 1) + KNOWN_FOR - timedelta(seconds=1)) == []
    assert numbers(windows, at(FIRST + 1) + KNOWN_FOR) == [FIRST + 2]
