"""Safetensors: whole ones hold, torn ones are refused with the file and the figures."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from healthd.checkpoints.doubts import doubts
from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import (
    REAL,
    a_sharded_step,
    refusal,
    safetensors_bytes,
    safetensors_raw,
    shard_name,
    torch_zip_bytes,
)

INDEX = "model.safetensors.index.json"


def test_a_file_of_the_real_library_holds() -> None:
    assert refusal(REAL / "model-10.safetensors") == ""


@pytest.mark.slow
def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = (REAL / "model-10.safetensors").read_bytes()
    file = tmp_path / "model.safetensors"
    held = []
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        if not refusal(file):
            held.append(length)

    assert held == []


def test_a_torn_write_reports_the_figures(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin", "model.pt"])
@pytest.mark.parametrize("content", [b"", b'{"model_type": "lla', bytes(64)])
@pytest.mark.parametrize("name", ["config.json", "adapter_config.json", "tokenizer.json"])
def test_a_torn_configuration_beside_weights_is_refused(
    tmp_path: Path, name: str, content: bytes, weights: str
) -> None:
    is_safetensors = weights.endswith(".safetensors")
    (tmp_path / weights).write_bytes(safetensors_bytes({"w": 1}) if is_safetensors else torch_zip_bytes())
    (tmp_path / name).write_text('{"loss": NaN}')
    assert refusal(tmp_path) == ""

    (tmp_path / name).write_bytes(content)

    assert refusal(tmp_path) == f"{name}: {'not whole JSON (torn write)' if content else 'empty file'}"


def test_shards_may_be_counted_from_one(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / f"weights-0000{number}-of-00002.safetensors").write_bytes(safetensors_bytes({"w": 1}))

    assert refusal(tmp_path) == ""


@pytest.mark.parametrize("stem", ["model", "pytorch_model", "adapter_model", "diffusion_pytorch_model"])
@pytest.mark.parametrize("suffix", [".safetensors", ".bin"])
def test_shards_of_the_hugging_face_libraries_need_their_index(tmp_path: Path, stem: str, suffix: str) -> None:
    content = safetensors_bytes({"w": 1}) if suffix == ".safetensors" else torch_zip_bytes()
    for number in (1, 2):
        (tmp_path / f"{stem}-0000{number}-of-00002{suffix}").write_bytes(content)

    assert refusal(tmp_path).startswith(f"{stem}{suffix}.index.json: missing; loaders find shards such as {stem}-00001")


@pytest.mark.parametrize("index", ["model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json"])
def test_shards_of_a_variant_may_have_their_index_under_either_name(tmp_path: Path, index: str) -> None:
    names = [f"model.fp16-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for name in names:
        (tmp_path / name).write_bytes(safetensors_bytes({name: 1}))
    assert "missing; loaders find shards" in refusal(tmp_path)

    (tmp_path / index).write_text(json.dumps({"weight_map": {name: name for name in names}}))

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


def test_a_lost_configuration_of_the_model_is_seen_by_what_is_written_after_it(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}))
    assert refusal(tmp_path) == ""

    (tmp_path / "generation_config.json").write_text("{}")

    assert refusal(tmp_path).startswith("config.json: missing; generation_config.json is there")


def test_a_configuration_of_something_else_is_no_model_s(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}))
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "generation_config.json").write_text("{}")
    assert refusal(tmp_path) == ""

    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')

    assert refusal(tmp_path).startswith("config.json: names no model_type")


@pytest.mark.parametrize(
    ("name", "is_seen"), [("step-{}", True), ("{}", True), ("run_step{}_final", True), ("exp{}", False)]
)
def test_a_lost_configuration_of_the_model_is_seen_beside_another_step(
    tmp_path: Path, name: str, is_seen: bool
) -> None:
    for step in (10, 20):
        (tmp_path / name.format(step)).mkdir()
        (tmp_path / name.format(step) / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}))
    assert refusal(tmp_path / name.format(20)) == ""

    (tmp_path / name.format(10) / "config.json").write_text("{}")

    assert refusal(tmp_path / name.format(20)).startswith("config.json: missing; a step beside has it") is is_seen


TENSORS = {"a": 5000, "b": 5000, "c": 5000, "d": 5000}
WHOLE = safetensors_bytes(TENSORS)
BORDER = 12_288
"""Of a block, within `a`."""


def zeroed_from(begin: int) -> bytes:
    return WHOLE[:begin] + bytes(len(WHOLE) - begin)


def start_of(tensor: str) -> int:
    return len(WHOLE) - 20_000 * (4 - list(TENSORS).index(tensor))


def test_zeros_from_the_border_of_a_block_over_whole_tensors_to_the_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(zeroed_from(BORDER))

    assert "zeros from byte 12,288 to its end" in refusal(tmp_path)
    assert "3 whole tensors ('b' to 'd'), from within 'a' (torn write)" in refusal(tmp_path)
    assert refusal(tmp_path, level=VerifyLevel.QUICK) == ""


def test_the_last_zeros_before_a_torn_block_may_be_of_a_number(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(zeroed_from(BORDER - 3))

    assert "torn write" in refusal(tmp_path)


@pytest.mark.parametrize("begin", [start_of("b"), start_of("d"), BORDER - 100, BORDER + 4])
def test_zeros_that_may_have_been_saved_are_no_damage(tmp_path: Path, begin: int) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "model.safetensors").write_bytes(zeroed_from(begin))

    assert refusal(tmp_path / "run") == ""


def test_tensors_of_zeros_that_an_older_step_has_values_for_are_refused(tmp_path: Path) -> None:
    contents = {10: zeroed_from(start_of("b")), 20: WHOLE, 30: zeroed_from(start_of("b"))}
    for step, content in contents.items():
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "model.safetensors").write_bytes(content)

    assert [refusal(tmp_path / f"step-{step}") for step in (10, 20)] == ["", ""]
    assert refusal(tmp_path / "step-30").endswith("in step-20 'b' has others (torn write)")


def test_a_torn_older_step_says_nothing_of_zeros(tmp_path: Path) -> None:
    for step, content in {10: WHOLE[:200], 20: b"", 30: zeroed_from(start_of("b"))}.items():
        (tmp_path / f"step-{step}").mkdir()
        (tmp_path / f"step-{step}" / "model.safetensors").write_bytes(content)

    assert refusal(tmp_path / "step-30") == ""


def test_zeros_that_may_be_damage_are_a_doubt(tmp_path: Path) -> None:
    (tmp_path / "good.safetensors").write_bytes(WHOLE)
    (tmp_path / "model.safetensors").write_bytes(zeroed_from(start_of("c")))

    (doubt,) = doubts(tmp_path)
    assert doubt.startswith(f"model.safetensors: zeros from byte {start_of('c'):,} to its end at {len(WHOLE):,}, ")
    assert doubt.endswith("2 whole tensors ('c' to 'd'): as after a power cut, unless they were saved so")
    assert doubts(tmp_path / "nowhere") == []


def test_a_file_longer_than_its_header_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}) + b"\1")

    assert "where its header describes" in refusal(tmp_path)


def test_a_torn_optimizer_beside_a_good_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({"w": 1}))
    (tmp_path / "optimizer.pt").write_bytes((REAL / "ckpt-10.pt").read_bytes()[:-1])

    assert refusal(tmp_path).startswith("optimizer.pt: ")


def a_part(folder: Path, rank: int, file: int, files: int, tensors: dict[str, tuple[int, int]]) -> None:
    """What one rank writes of one file of the model: for each tensor where its part begins, and how long it is."""
    header: dict[str, object] = {}
    end = 0
    for tensor, (_, length) in tensors.items():
        header[tensor] = {"dtype": "F32", "shape": [length], "data_offsets": [end, end + 4 * length]}
        end += 4 * length
    places = {tensor: {"saved_offsets": [begin]} for tensor, (begin, _) in tensors.items()}
    header["__metadata__"] = {"DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(places)}
    folder.mkdir(parents=True, exist_ok=True)
    name = f"shard-{rank:05}-model-{file:05}-of-{files:05}.safetensors"
    (folder / name).write_bytes(safetensors_raw(header, b"\1" * end))


def parts_of_ranks(folder: Path, ranks: int = 3) -> Path:
    """As torch's HuggingFaceStorageWriter saves: what is small has one rank, and so no other rank its file."""
    for rank in range(ranks):
        a_part(folder, rank + 1, 1, 2, {"weight": (8 * rank, 8)})
    a_part(folder, 2, 2, 2, {"frequencies": (0, 4)})
    return folder


def test_a_rank_without_a_part_of_a_file_writes_none_of_that_name(tmp_path: Path) -> None:
    assert refusal(parts_of_ranks(tmp_path / "step-10")) == ""


@pytest.mark.parametrize(
    ("lost", "why"),
    [
        (1, "16 of 24 elements of 'weight' are here; the file of a rank is missing"),
        (2, "model-00002-of-00002.safetensors: missing"),
    ],
)
def test_the_lost_files_of_a_rank_leave_a_gap(tmp_path: Path, lost: int, why: str) -> None:
    folder = parts_of_ranks(tmp_path / "step-10")
    if lost == 1:
        (folder / "shard-00001-model-00001-of-00002.safetensors").unlink()
    else:
        (folder / "shard-00002-model-00002-of-00002.safetensors").unlink()

    assert why in refusal(folder)


def test_the_lost_file_of_the_last_rank_is_seen_beside_another_step(tmp_path: Path) -> None:
    parts_of_ranks(tmp_path / "step-10")
    newest = parts_of_ranks(tmp_path / "step-20")
    (newest / "shard-00003-model-00001-of-00002.safetensors").unlink()

    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 10
    assert "2 of 3 ranks are here" in answer.rejected[0].reason


def test_parts_that_do_not_say_where_they_belong_are_refused(tmp_path: Path) -> None:
    folder = parts_of_ranks(tmp_path / "step-10")
    header = {"__metadata__": {"DCP_SHARDING_INFO": '{"weight": '}}
    (folder / "shard-00001-model-00001-of-00002.safetensors").write_bytes(safetensors_raw(header, b""))

    assert "does not say where its parts of tensors belong" in refusal(folder)
