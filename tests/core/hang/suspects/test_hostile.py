"""Parsers of what users' processes wrote: whatever they get, the result is bounded and printable, or the one error."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.core.hang.suspects.evidence import GroupProgress, RankEvidence
from healthd.core.hang.suspects.flight_recorder import NoDump, read_dump
from healthd.core.hang.suspects.ras import NoAnswer, read_answer
from healthd.core.hang.suspects.stacks import NoStack, read_py_spy
from healthd.core.hang.suspects.vote import vote

FIELDS = st.sampled_from(
    [
        "entries",
        "pg_config",
        "pg_status",
        "process_group",
        "collective_seq_id",
        "profiling_name",
        "pg_id",
        "ranks",
        "retired",
        "0",
        "communicators",
        "hash",
        "size",
        "rank",
        "host",
        "collective_counts",
        "frames",
        "name",
        "line",
    ]
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("[0, 1, x]"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(FIELDS, inner, max_size=6) | st.tuples(inner, inner),
    max_leaves=20,
)


@pytest.mark.slow
@given(VALUES, st.lists(st.dictionaries(FIELDS, VALUES, max_size=6), max_size=5))
def test_a_dump_of_anything_is_progress_that_may_be_stored_or_no_dump(value: Any, entries: list[Any]) -> None:
    for dump in (value, {"entries": entries, "pg_config": value, "pg_status": value}):
        with suppress(NoDump):
            _may_be_stored(read_dump(dump))


@given(st.binary(max_size=200) | VALUES.map(lambda value: msgspec.json.encode(_without_odd_numbers(value))))
def test_an_answer_of_anything_is_progress_that_may_be_stored_or_no_answer(answer: bytes) -> None:
    with suppress(NoAnswer):
        for rank in read_answer(answer, 2).values():
            _may_be_stored(rank.groups)


@given(st.binary(max_size=200) | VALUES.map(lambda value: msgspec.json.encode(_without_odd_numbers(value))))
def test_a_stack_of_anything_may_be_stored_or_is_no_stack(output: bytes) -> None:
    with suppress(NoStack):
        evidence = RankEvidence(0, stack=read_py_spy(output, 1))
        assert msgspec.json.decode(msgspec.json.encode(evidence), type=RankEvidence) == evidence


def _may_be_stored(groups: tuple[GroupProgress, ...]) -> None:
    evidence = RankEvidence(0, groups=groups)
    assert msgspec.json.decode(msgspec.json.encode(evidence), type=RankEvidence) == evidence
    assert all(group.group.isprintable() for group in groups)
    vote([evidence, RankEvidence(1, groups=groups)])


def _without_odd_numbers(value: Any) -> Any:
    """JSON as other programs write it: no integer beyond 64 bits."""
    if isinstance(value, dict):
        return {key: _without_odd_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_odd_numbers(each) for each in value]
    return value % 2**63 if isinstance(value, int) else value
