"""Completion indexes as Kubernetes writes them."""

from __future__ import annotations

import pytest

from healthd.local.jobs.indexes import format_indexes, parse_indexes


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("", set()), ("0", {0}), ("0,1", {0, 1}), ("0-2", {0, 1, 2}), ("0-2,5,7-9", {0, 1, 2, 5, 7, 8, 9})],
)
def test_indexes_are_read_and_written_alike(text: str, indexes: set[int]) -> None:
    assert parse_indexes(text) == indexes
    assert format_indexes(indexes) == text
