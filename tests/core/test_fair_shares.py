"""Even shares of what is scarce."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from healthd.core.fair_shares import may_begin


def begun(who: Iterable[str], at_once: int = 8) -> list[str]:
    """Of those that come in this order, the ones that may begin while none ends."""
    running: list[str] = []
    for each in who:
        if may_begin(each, running, at_once):
            running.append(each)
    return running


def test_one_alone_has_all() -> None:
    assert begun("a" * 20) == ["a"] * 8


def test_who_comes_later_does_not_wait_for_those_who_took_all() -> None:
    assert begun("a" * 20 + "b" * 20).count("b") == 4


def test_who_has_more_than_an_even_share_waits_for_the_others() -> None:
    assert not may_begin("a", [*"aaaab"], 8)
    assert may_begin("b", [*"aaaab"], 8)


@pytest.mark.parametrize("others", [3, 7, 11])
def test_all_has_one_at_least(others: int) -> None:
    crowd = [chr(ord("a") + number) for number in range(others)]

    assert "z" in begun([*crowd, "z"])


def test_there_are_never_more_than_twice_as_many() -> None:
    assert len(begun(f"{number}" for number in range(100))) == 16
