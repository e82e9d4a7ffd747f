"""Safetensors: whole ones hold, torn ones are refused with the file and the figures."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from tests.checkpoints.builders import REAL, a_sharded_step, refusal, safetensors_bytes, safetensors_raw, shard_name

INDEX = "model.safetensors.index.json"


def test_a_file_of_the_real_library_holds() -> None:
    assert refusal(REAL / "model-10.safetensors") == ""


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = (REAL / "model-10.safetensors").read_bytes()
    file = tmp_path / "model.safetensors"
    held = []
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        if not refusal(file):
            held.append(length)

    assert held == []


def test_a_torn_write_tells_the_figures(tmp_path: Path) -> None:
    folder = a_sharded_step(tmp_path, 10)
    shard = folder / shard_name(2, 4)
    whole = shard.stat().st_size
    os.truncate(shard, 200)

    assert refusal(folder) == f"model-00002-of-00004.safetensors: 200 of {whole} bytes (torn write)"


def test_shards_with_an_index_hold(tmp_path: Path) -> None:
    assert refusal(a_sharded_step(tmp_path, 10)) == ""


@pytest.mark.parametrize("dropped", range(4))
def test_a_dropped_shard_is_refused_by_the_index(tmp_path: Path, dropped: int) -> None:
    folder = a_sharded_step(tmp_path, 10)
    (folder / shard_name(dropped, 4)).unlink()

    assert refusal(folder) == f"{shard_name(dropped, 4)}: missing"


@pytest.mark.parametrize("dropped", range(4))
def test_without_an_index_the_names_say_how_many_there_are(tmp_path: Path, dropped: int) -> None:
    whole = a_sharded_step(tmp_path, 10, index=False)
    lacking = a_sharded_step(tmp_path, 20, index=False)
    (lacking / shard_name(dropped, 4)).unlink()

    assert refusal(whole) == ""
    assert "3 of 4 shards are here" in refusal(lacking)


def test_shards_may_be_counted_from_one(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").write_bytes(safetensors_bytes({"w": 1}))

    assert refusal(tmp_path) == ""


def test_an_absurd_count_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "rank-0-of-999999999.safetensors").write_bytes(safetensors_bytes({"w": 1}))

    assert refusal(tmp_path) == "rank-1-of-999999999.safetensors: missing; 1 of 999999999 shards are here"


def test_a_torn_index_is_refused(tmp_path: Path) -> None:
    folder = a_sharded_step(tmp_path, 10)
    (folder / INDEX).write_bytes((folder / INDEX).read_bytes()[:-1])

    assert refusal(folder) == f"{INDEX}: not a whole index (torn write)"


def test_a_shard_of_another_step_is_seen_by_its_tensor_names(tmp_path: Path) -> None:
    folder = a_sharded_step(tmp_path, 10)
    (folder / shard_name(1, 4)).write_bytes(safetensors_bytes({"other.1": 100}))

    assert "has no tensor 'layer.1'" in refusal(folder)


@pytest.mark.parametrize("path", ["../secret.safetensors", "/etc/passwd", "a/../../b", ""])
def test_an_index_that_leads_outside_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"w": path}}))

    assert "not inside the checkpoint" in refusal(tmp_path)


def test_a_zero_length_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()

    assert refusal(tmp_path) == "model.safetensors: empty file"


def test_a_zero_filled_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(4096))

    assert "its header says that it is 0 bytes long" in refusal(tmp_path)


def test_a_file_with_room_made_but_never_written_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    whole = safetensors_bytes({"w": 1_000_000})
    file.write_bytes(whole[:100_000])
    os.truncate(file, len(whole))

    assert "never written from byte" in refusal(file)


@pytest.mark.parametrize(
    ("offsets", "why"),
    [
        ([(0, 4), (4, 8)], ""),
        ([(0, 4), (8, 12)], "expected from 4 on"),
        ([(0, 4), (2, 6)], "expected from 4 on"),
        ([(4, 8), (8, 12)], "expected from 0 on"),
        ([(0, 4), (4, 12)], "not its type times shape"),
        ([(4, 0), (4, 8)], "expected from 0 on"),
        ([(0, 4), (-4, 0)], "expected from 0 on"),
    ],
)
def test_tensors_lie_end_to_end(tmp_path: Path, offsets: list[tuple[int, int]], why: str) -> None:
    header = {f"t{n}": {"dtype": "F32", "shape": [1], "data_offsets": at} for n, at in enumerate(offsets)}
    (tmp_path / "model.safetensors").write_bytes(safetensors_raw(header, b"\1" * max(end for _, end in offsets)))

    assert why in refusal(tmp_path)
    assert bool(why) == bool(refusal(tmp_path))


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b"{}x",
        b'{"w": 1}',
        b'{"w": {"dtype": "F32", "shape": [1]}}',
        b'{"w": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"w": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}',
        b'{"w": {"dtype": "F32", "shape": [99999999999999999999], "data_offsets": [0, 4]}}',
        b'{"w": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"__metadata__": {"a": "\xff"}, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}',
        b"\xff" * 16,
        bytes(16),
    ],
)
def test_garbage_in_the_header_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_raw(header, b"\1" * 4))

    assert refusal(tmp_path).startswith("model.safetensors: ")


@pytest.mark.parametrize("length", [0, 1, 100_000_001, 2**63, 2**64 - 1])
def test_an_absurd_header_length_is_refused_without_reading_it(tmp_path: Path, length: int) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", length) + b"\1" * 100)

    assert "its header says that it is" in refusal(tmp_path)


def test_a_file_longer_than_its_header_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}) + b"\1")

    assert "where its header describes" in refusal(tmp_path)


def test_a_torn_optimizer_beside_a_good_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}))
    (tmp_path / "optimizer.pt").write_bytes((REAL / "ckpt-10.pt").read_bytes()[:-1])

    assert refusal(tmp_path).startswith("optimizer.pt: ")
