"""A trouble that lasts is reported once."""

from __future__ import annotations

from healthd.local.reports.once import Once


def test_a_trouble_is_new_only_the_first_time() -> None:
    once = Once()

    assert [once.is_new("pod", "disk full") for _ in range(3)] == [True, False, False]


def test_another_trouble_is_new_and_so_is_another_things() -> None:
    once = Once()
    once.is_new("pod", "disk full")

    assert once.is_new("pod", "locked")
    assert once.is_new("other pod", "locked")


def test_a_trouble_that_comes_back_is_new() -> None:
    once = Once()
    once.is_new("pod", "disk full")
    once.over("pod")

    assert once.is_new("pod", "disk full")
