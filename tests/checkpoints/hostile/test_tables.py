"""Tables of TensorFlow that name the same over and over, or grow when their keys are written out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoints.hostile.numbers import varint
from tests.checkpoints.hostile.tables import a_block, a_table, an_entry
from tests.checkpoints.judge import Judge

pytestmark = pytest.mark.slow


def a_block_that_is_named_over_and_over() -> bytes:
    block = a_block(an_entry(0, b"", b"x" * 100_000))
    place = varint(0) + varint(len(block))
    return a_table(block, index=a_block(b"".join(an_entry(0, b"k%d" % number, place) for number in range(5000))))


def keys_that_grow_out_of_each_other() -> bytes:
    return a_table(a_block(an_entry(0, b"k" * 100_000, b"") + an_entry(100_000, b"", b"") * 10_000))


def keys_that_grow_a_little_in_each_block() -> bytes:
    return a_table(*[a_block(an_entry(0, b"k" * 100_000, b"") + an_entry(100_000, b"", b"") * 600)] * 100)


def millions_of_entries_of_nothing() -> bytes:
    return a_table(a_block(an_entry(0, b"", b"") * 10_000_000))


def an_index_of_millions_of_blocks() -> bytes:
    block = a_block(b"")
    place = varint(0) + varint(0)
    return a_table(block, index=a_block(an_entry(0, b"", place) * 5_000_000))


def a_number_without_end() -> bytes:
    return a_table(a_block(b"\xff" * 1_000_000))


def shards_counted_by_a_text() -> bytes:
    return a_table(a_block(an_entry(0, b"", b"\x0a\x01x")))


def as_many_shards_as_can_be_declared() -> bytes:
    return a_table(a_block(an_entry(0, b"", b"\x08" + varint((1 << 64) - 1))))


@pytest.mark.parametrize(
    ("made", "reported"),
    [
        (a_block_that_is_named_over_and_over, "its index is garbled"),
        (keys_that_grow_out_of_each_other, "too many keys, or too long ones"),
        (keys_that_grow_a_little_in_each_block, "too many keys, or too long ones"),
        (millions_of_entries_of_nothing, "too many keys, or too long ones"),
        (an_index_of_millions_of_blocks, "does not match its 0 bytes"),
        (a_number_without_end, "its index is garbled"),
        (shards_counted_by_a_text, "its index is garbled"),
        (as_many_shards_as_can_be_declared, "missing"),
    ],
)
def test_a_hostile_table_is_refused_soon(
    judge: Judge, tmp_path: Path, made: Callable[[], bytes], reported: str
) -> None:
    (tmp_path / "ckpt-1.index").write_bytes(made())
    (tmp_path / "ckpt-1.data-00000-of-00001").write_bytes(b"x")

    assert reported in judge.verify(tmp_path).reason
