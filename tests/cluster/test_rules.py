"""
The pure rules: merge patches as RFC 7386 states them, and what counts as no change.
"""

from __future__ import annotations

from typing import Any

import pytest

from healthd.cluster.embedded.rules import is_same, merged


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_keeps_to_the_examples_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result


def test_merge_patch_leaves_its_arguments_alone() -> None:
    target, patch = {"a": {"b": 1}}, {"a": {"b": None, "c": 2}}
    merged(target, patch)

    assert (target, patch) == ({"a": {"b": 1}}, {"a": {"b": None, "c": 2}})


@pytest.mark.parametrize(
    ("new", "old"),
    [({"a": {}}, {}), ({}, {"a": []}), ({"a": {"b": {}}}, {"a": {}}), ({"a": None}, {}), ({"a": [1]}, {"a": [1]})],
)
def test_empty_and_absent_are_the_same(new: Any, old: Any) -> None:
    assert is_same(new, old)


@pytest.mark.parametrize(
    ("new", "old"),
    [({"a": 0}, {}), ({"a": False}, {}), ({"a": ""}, {}), ({"a": [{}]}, {"a": []}), ({"a": {}}, {"a": []})],
)
def test_zero_and_absent_differ(new: Any, old: Any) -> None:
    assert not is_same(new, old)
