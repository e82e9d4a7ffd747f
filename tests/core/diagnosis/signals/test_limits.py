"""Limits of an operator's own: what makes sense is taken, what is always true or never is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.diagnosis.signals.rule import AtLeast, Changes, Grows, Test
from healthd.core.diagnosis.signals.tables import parse_limit


@pytest.mark.parametrize(
    ("text", "test"),
    [
        ("ib-link-flaps 5 in 6h", Grows(5, timedelta(hours=6))),
        ("ib-link-flaps 5", Grows(5, timedelta(hours=3))),
        ("nvml-temperature 92", AtLeast(92)),
        ("nvml-gpu-flaps 3 in 1m", Changes(3, timedelta(minutes=1))),
    ],
)
def test_a_limit_is_taken(text: str, test: Test) -> None:
    assert parse_limit(text).test == test


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ib-link-flaps 0 in 3h", "with a limit of 0 would always be true, or never"),
        ("ib-link-flaps 0.0", "with a limit of 0 would always be true, or never"),
        ("ib-link-flaps 50 in 0s", "cannot be counted in 0s: a span is at least 1m"),
        ("ib-link-flaps 50 in 59s", "a span is at least 1m"),
        ("nvml-gpu-flaps 0.5 in 1h", "counts whole changes, not 0.5"),
        ("nvml-temperature 0", "always be true"),
        ("nvml-temperature 4", "40 to 150 make sense"),
        ("nvml-temperature 900", "40 to 150 make sense"),
        ("filesystem-out-of-inodes 100", "0 to 99 make sense"),
        ("filesystem-full 0", "always be true, or never"),
        (f"ib-link-flaps {'9' * 400} in 3h", "always be true, or never"),
        ("ib-link-flaps -1 in 3h", "must be a limit such as"),
        ("ib-link-flap 1 in 3h", "did you mean 'ib-link-flaps'"),
    ],
)
def test_what_is_always_true_or_means_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_limit(text)
