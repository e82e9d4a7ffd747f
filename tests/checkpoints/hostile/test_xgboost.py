"""Models of XGBoost that claim the absurd, and those that are only large."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints.builders import REAL
from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow

MB = 1 << 20
NO_MODEL = "a model with parts that are not what they should be"


def a_count(number: int) -> bytes:
    return b"L" + struct.pack(">q", number)


def a_text(size: int) -> bytes:
    return b"S" + a_count(size) + b"x" * size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (lambda: b"{i\x01a[$U#" + a_count(1 << 62), "claims 4,611,686,018,427,387,904 of something"),
        (lambda: b"{i\x01a[$N#" + a_count(9) + b"}", "no UBJSON"),
        (lambda: b"{i\x01a[$N#i\x09" + b" " * 9, "no UBJSON"),
        (lambda: b"{i\x01a[$[#i\x09" + b" " * 9, "no UBJSON"),
        (lambda: b"{i\x01a[$U#" + a_count(-1), "claims -1 of something"),
        (lambda: b"[" * 100_000, "too deep"),
        (lambda: b"{i\x01a" * 100_000, "too deep"),
        (lambda: b"[" + a_text(15 * MB) * 30 + b"]", NO_MODEL),
        (lambda: b"[" + a_text(4000) * 3000 + b"]", "too many values"),
        (
            lambda: b"{" + b"".join(b"I" + struct.pack(">h", 4000) + b"%04000dZ" % n for n in range(3000)) + b"}",
            "too many values",
        ),
        (lambda: b"[" + b"{i\x01aZ}" * 1_900_000 + b"]", "too many values"),
        (lambda: b"[" + b"[$U#i\0" * 1_900_000 + b"]", "too many values"),
        (lambda: b"{i\x05trees[" + b"Z" * 1_000_000 + b"]}", "in tree 0"),
    ],
    ids=range(13),
)
def test_a_hostile_ubjson_is_refused_soon(
    judge: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "model_1.ubj").write_bytes(content())

    assert reported in judge.verify(tmp_path / "model_1.ubj").reason


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (lambda: b"[" + b"[]," * 2_700_000 + b"1]}", "too many to verify"),
        (lambda: b"[" + b'{"a":1},' * 1_000_000 + b"1]}", "too many to verify"),
        (lambda: b"[" * 500_000, "not the whole JSON"),
        (lambda: b"9" * 1_000_000 + b"}", "not the whole JSON"),
        (lambda: b"NaN}", "not the whole JSON"),
    ],
    ids=range(5),
)
def test_a_hostile_json_is_refused_soon(
    judge: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "model_1.json").write_bytes(b'{"learner":' + content())

    assert reported in judge.verify(tmp_path / "model_1.json").reason


def with_more_trees_than_letters(model: dict[str, Any]) -> None:
    model["learner"]["gradient_booster"]["model"]["gbtree_model_param"]["num_trees"] = "9" * 5000


def with_nothing_for_a_tree(model: dict[str, Any]) -> None:
    model["learner"]["gradient_booster"]["model"]["trees"][0] = None


def with_a_number_beyond_all(model: dict[str, Any]) -> None:
    tree = model["learner"]["gradient_booster"]["model"]["trees"][0]
    tree["tree_param"]["num_nodes"] = 1e308


@pytest.mark.parametrize("change", [with_more_trees_than_letters, with_nothing_for_a_tree, with_a_number_beyond_all])
def test_a_model_that_claims_the_absurd_is_refused(
    judge: Judge, tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    model = json.loads((REAL / "xgboost" / "model_5.json").read_bytes())
    change(model)
    text = json.dumps(model, separators=(",", ":")).replace("1e+308", "1e999")
    (tmp_path / "model_1.json").write_text(text)

    assert judge.verify(tmp_path / "model_1.json").reason.startswith("model_1.json: ")


def as_ubjson(value: Any) -> bytes:
    """As XGBoost writes it: what is in a list of numbers is of one type."""
    if isinstance(value, dict):
        return b"{" + b"".join(as_ubjson(key)[1:] + as_ubjson(inner) for key, inner in value.items()) + b"}"
    if isinstance(value, str):
        return b"S" + a_count(len(value.encode())) + value.encode()
    if isinstance(value, list) and not any(isinstance(each, dict | str) for each in value):
        return b"[$l#" + a_count(len(value)) + struct.pack(f">{len(value)}i", *map(int, value))
    if isinstance(value, list):
        return b"[#" + a_count(len(value)) + b"".join(map(as_ubjson, value))
    return b"l" + struct.pack(">i", int(value))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_trees(judge: Judge, tmp_path: Path) -> None:
    model = json.loads((REAL / "xgboost" / "model_5.json").read_bytes())
    inner = model["learner"]["gradient_booster"]["model"]
    tree, count = as_ubjson(inner["trees"][0]), 25_000
    inner["gbtree_model_param"]["num_trees"] = str(count)
    inner["tree_info"] = [0] * count
    inner["iteration_indptr"] = [0, count]
    inner["trees"] = ["in their place"]
    head, _, tail = as_ubjson(model).partition(b"[#" + a_count(1) + as_ubjson("in their place"))
    (tmp_path / "model_1.ubj").write_bytes(head + b"[#" + a_count(count) + tree * count + tail)
    verdict = judge.verify(tmp_path / "model_1.ubj")

    assert verdict.reason == ""
    assert verdict.peak < 80 * MB
