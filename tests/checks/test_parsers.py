"""What programs print may be anything: no parser raises, and nothing that is no result passes for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.check import CheckOutcome
from healthd.checks.dcgm_diag import parse_diag
from healthd.checks.nccl import parse_summary
from healthd.checks.rdma import parse_speed

pytestmark = pytest.mark.slow

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "results", "status", "warnings", "gpu_ids", "tests"]), inner, max_size=4
        )
    ),
    max_leaves=25,
)


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    results, summary, speed = list(parse_diag(text)), parse_summary(text), parse_speed(text)

    assert all(result.outcome in CheckOutcome for result in results)
    assert summary.gbps is None or "bandwidth" in text
    assert speed is None or speed >= 0


@given(JSON)
def test_any_document_is_survived(document: Any) -> None:
    for result in parse_diag(json.dumps(document)):
        assert result.outcome in CheckOutcome


@given(st.text(max_size=12))
def test_only_a_word_that_says_so_is_a_pass(word: str) -> None:
    found = list(parse_diag(json.dumps({"name": "memory", "results": [{"status": word}]})))

    good = {"pass", "passed", "warn", "warning"}
    assert [result.outcome is CheckOutcome.PASS for result in found] == [" ".join(word.lower().split()) in good]


@given(st.integers(min_value=0), st.floats(min_value=0, max_value=1e6))
def test_a_summary_is_read_whatever_stands_around_it(wrong: int, gbps: float) -> None:
    text = f"noise\n# Out of bounds values : {wrong} FAILED\n# Avg bus bandwidth    : {gbps:.4f} \n#\n"

    assert parse_summary(text) == (wrong, round(gbps, 4))


@given(st.floats(min_value=0, max_value=1e4))
def test_the_average_is_read_from_a_row(gbps: float) -> None:
    assert parse_speed(f" 65536      5000             387.24             {gbps:.2f}             0.7\n") == round(
        gbps, 2
    )
