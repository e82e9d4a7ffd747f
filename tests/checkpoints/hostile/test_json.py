"""JSON and lists in text that blow up when they are decoded."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints.builders import REAL, a_sharded_step, refusal, safetensors_bytes
from tests.checkpoints.judge import FAULT, Judge

pytestmark = pytest.mark.slow

MB = 1 << 20


def wide() -> bytes:
    """One letter that takes four bytes makes all others take as many."""
    return b'"' + "\U0001f525".encode() + b"x" * (60 * MB) + b'"'


def lists() -> bytes:
    return b"[" + b"[]," * 15_000_000 + b"1]"


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    """A folder of the Trainer with its state and a model."""
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    (folder / "trainer_state.json").write_bytes(b'{"global_step":1}')
    (folder / "model.safetensors").write_bytes(safetensors_bytes({"a": 1}))
    return folder


def a_state(reported: bytes) -> bytes:
    return b'{"global_step":1,"log_history":' + reported + b"}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "reported",
    [
        lambda: b"[NaN]",
        lambda: b"[-Infinity, Infinity]",
        lambda: b'"NaN, NaN"',
        lambda: b'"\\ud83d"',
        lambda: b"[NaN," + lists()[1:],
        wide,
    ],
    ids=range(6),
)
def test_a_history_is_not_held(judge: Judge, trainer: Path, reported: Callable[[], bytes]) -> None:
    (trainer / "trainer_state.json").write_bytes(a_state(reported()))

    assert judge.verify(trainer).reason == ""


@pytest.mark.parametrize(
    "content", [lambda: a_state(b"[" * 1_000_000), lambda: b'{"global_step":' + b"9" * 1_000_000 + b"}"], ids=range(2)
)
def test_a_hostile_state_is_refused_soon(judge: Judge, trainer: Path, content: Callable[[], bytes]) -> None:
    (trainer / "trainer_state.json").write_bytes(content())

    assert "not the whole state of a trainer" in judge.verify(trainer).reason


def test_a_configuration_of_wide_letters_is_not_held(judge: Judge, trainer: Path) -> None:
    (trainer / "config.json").write_bytes(wide())

    assert judge.verify(trainer).reason == ""


def names(count: int, entry: bytes) -> bytes:
    """A mapping of *count* names to the same."""
    return b"{" + b",".join(b'"%x":' % number + entry for number in range(count)) + b"}"


def test_arrays_without_end_are_refused(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "_METADATA").write_bytes(b'{"tree_metadata":{"a":' + lists() + b"}}")

    assert "too many values to verify" in judge.verify(tmp_path).reason


@pytest.mark.slow
def test_items_without_end_are_refused(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "_CHECKPOINT_METADATA").write_bytes(b'{"item_handlers":' + names(3_000_000, b'""') + b"}")

    assert "too many values to verify" in judge.verify(tmp_path).reason


@pytest.mark.slow
@pytest.mark.parametrize("entry", [b"0", b'{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'], ids=["0", "tensor"])
def test_a_header_without_end_is_refused(judge: Judge, tmp_path: Path, entry: bytes) -> None:
    header = names(24_000_000 // (len(entry) + 8), entry)
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)

    assert "too many values to verify" in judge.verify(tmp_path).reason


@pytest.mark.parametrize(
    ("length", "reported"),
    [((1 << 63) - 1, "9,223,372,036,854,775,807 bytes long"), (33 << 20, "bytes long"), (30 << 20, "its header alone")],
)
def test_a_header_that_is_not_there_is_not_waited_for(judge: Judge, tmp_path: Path, length: int, reported: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"x" * 100)

    assert reported in judge.verify(tmp_path).reason


@pytest.mark.slow
def test_an_index_without_end_is_refused(judge: Judge, tmp_path: Path) -> None:
    step = a_sharded_step(tmp_path, 1)
    (step / "model.safetensors.index.json").write_bytes(b'{"weight_map":' + names(3_000_000, b'"a"') + b"}")

    assert "too many values to verify" in judge.verify(step).reason


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (lambda: b'{"files":' + names(700_000, b'{"size":1}') + b"}", "too many values to verify"),
        (lambda: b'{"files":[' + b'{"size":1,"name":"a"},' * 700_000 + b'{"size":1}]}', "too many values to verify"),
        (lambda: b'{"files":{"a":{"size":1' + b"0" * 5000 + b"}}}", "not a whole manifest"),
        (lambda: b'{"files":' + b"[" * 1_000_000 + b"}", "not a whole manifest"),
        (lambda: b'{"files":{"../a":{"size":1}}}', "not inside the checkpoint"),
    ],
    ids=range(5),
)
def test_a_hostile_manifest_is_refused_soon(
    judge: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "manifest.json").write_bytes(content())

    assert reported in judge.verify(tmp_path).reason


def test_a_list_of_checksums_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "SUMS").write_bytes((b"0" * 64 + b"  a\n") * 400_000)

    assert "too many to verify" in refusal(tmp_path, format="{manifest: SUMS}")


TREES = (REAL / "lightgbm" / "model.txt.snapshot_iter_5").read_bytes()


def a_header(*, sizes: bytes) -> bytes:
    lines = TREES.partition(b"\n\n")[0].split(b"\n")
    return (
        b"\n".join([line for line in lines if not line.startswith(b"tree_sizes=")] + [b"tree_sizes=" + sizes]) + b"\n\n"
    )


def a_tree(leaves: int, values: bytes) -> bytes:
    tree = b"Tree=0\nnum_leaves=%d\nnum_cat=0\nleaf_value=%s\n" % (leaves, values)
    return a_header(sizes=b"%d" % len(tree)) + tree + b"end of trees\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (lambda: a_tree(4_000_000, b"12 " * 3_999_999 + b"12"), "claims 4,000,000 leaves"),
        (lambda: a_tree(100, b"12 " * 3_999_999 + b"12"), "has not its 100 numbers"),
        (lambda: a_tree(1, b"1\n" * 4_000_000), "lines"),
        (lambda: a_header(sizes=b"7 " * 7_000_000) + b"Tree=0", "does not agree with itself"),
        (lambda: a_header(sizes=b"7" * 4200) + b"Tree=0\n", "does not agree with itself"),
        (lambda: b"tree\n" + b"a=\n" * 5_000_000 + b"\n\n", "lines"),
        (
            lambda: TREES.replace(b"pandas_categorical:null", b"pandas_categorical:" + b"[" * 100_000),
            "ends within its last lines",
        ),
    ],
    ids=range(7),
)
def test_a_hostile_model_in_text_is_refused_soon(
    judge: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "model.txt.snapshot_iter_5").write_bytes(content())
    reason = judge.verify(tmp_path).reason

    assert reported in reason
    assert FAULT not in reason
