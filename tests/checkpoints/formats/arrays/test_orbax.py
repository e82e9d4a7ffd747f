"""Folders of Orbax: committed, and with the stores of their arrays."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.encodings.ocdbt import read_values
from healthd.checkpoints.encodings.sstables import crc32c
from healthd.checkpoints.latest import VerifyLevel, latest
from healthd.checkpoints.tree import Damaged, survey
from tests.checkpoints.builders import REAL, refusal
from tests.checkpoints.damage import held_when_flipped


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Step 20 with two items, of which `state` has its arrays in OCDBT."""
    return Path(shutil.copytree(REAL / "orbax" / "20", tmp_path / "20"))


@pytest.fixture
def zarr(tmp_path: Path) -> Path:
    """Step 10, whose arrays have a folder each."""
    return Path(shutil.copytree(REAL / "orbax-zarr" / "10", tmp_path / "10"))


@pytest.mark.parametrize(
    ("run", "step"), [("orbax", 20), ("orbax-zarr", 10), ("orbax-pieces", 10), ("orbax-pieces-zarr3", 10)]
)
@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(run: str, step: int, level: VerifyLevel) -> None:
    found = latest(REAL / run, level=level).found

    assert found is not None
    assert (found.step, found.format) == (step, "orbax")


def test_a_temporary_name_is_not_finished(real: Path) -> None:
    real.rename(real.with_name("20.orbax-checkpoint-tmp-17"))

    answer = latest(real.parent)

    assert [(rejected.step, rejected.reason) for rejected in answer.rejected] == [(20, "not finished: temporary name")]


def test_an_item_under_a_temporary_name_is_not_finished(real: Path) -> None:
    (real / "state").rename(real / "state.orbax-checkpoint-tmp-17")

    assert "temporary name (save not finished)" in refusal(real)


def test_without_the_time_of_a_commit_and_its_marker_the_save_is_not_finished(real: Path) -> None:
    (real / "_CHECKPOINT_METADATA").write_text(json.dumps({"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": None}))
    assert refusal(real) == ""
    (real / "commit_success.txt").unlink()

    assert refusal(real) == "_CHECKPOINT_METADATA: without the time of a commit (save not finished)"


def test_a_missing_manifest_is_named(real: Path) -> None:
    (real / "state" / "manifest.ocdbt").unlink()

    assert refusal(real, level=VerifyLevel.QUICK) == "state/manifest.ocdbt: missing"


def test_a_store_without_any_data_is_refused(real: Path) -> None:
    for folder in (real / "state").rglob("d"):
        shutil.rmtree(folder)

    assert refusal(real) == "state/d: missing, with all the data"


def test_an_empty_file_of_data_is_refused(real: Path) -> None:
    file = next((real / "state" / "d").iterdir())
    file.write_bytes(b"")

    assert refusal(real) == f"state/d/{file.name}: 0 of at least 318 bytes (torn write)"


def test_a_data_file_that_the_index_names_has_to_be_there(real: Path) -> None:
    file = next((real / "state" / "d").iterdir())
    file.rename(file.with_name("0" * 32))

    assert refusal(real, level=VerifyLevel.QUICK) == f"state/d/{file.name}: missing"


@pytest.mark.slow
def test_a_flipped_byte_anywhere_in_the_index_is_refused(real: Path) -> None:
    file = next((real / "state" / "d").iterdir())

    assert held_when_flipped(real, file, times=318) == []


def test_an_array_that_the_store_does_not_have_is_named(real: Path) -> None:
    file = real / "state" / "_METADATA"
    file.write_text(file.read_text().replace('"w"', '"v"'))

    assert refusal(real) == "state/v: missing, or without its metadata"


@pytest.mark.parametrize("field", ["key_metadata", "value_metadata", "key_type"])
def test_a_changed_name_in_the_metadata_of_one_leaf_is_refused(zarr: Path, field: str) -> None:
    text = (zarr / "_METADATA").read_text()
    (zarr / "_METADATA").write_text(text.replace(f'"{field}"', f'"{field[:-1]}_"', 1))

    assert "is listed without its key or its value" in refusal(zarr)


@pytest.mark.parametrize(("kind", "reason"), [("np.ndArray", "one letter off"), ("my.Array", "")])
def test_a_changed_letter_in_a_type_is_refused_but_not_a_type_of_somebody_else(
    zarr: Path, kind: str, reason: str
) -> None:
    text = (zarr / "_METADATA").read_text()
    (zarr / "_METADATA").write_text(text.replace('"np.ndarray"', f'"{kind}"', 1))

    assert reason in refusal(zarr)
    assert bool(reason) == bool(refusal(zarr))


def test_a_tree_of_many_nodes_is_read_to_its_leaves() -> None:
    values = read_values(survey(REAL / "ocdbt"), "manifest.ocdbt")

    assert {value.key for value in values} == {f"layer{number}.kernel/0.0" for number in range(30)}


def test_a_file_of_values_that_was_cut_is_refused(tmp_path: Path) -> None:
    store = Path(shutil.copytree(REAL / "ocdbt", tmp_path / "store"))
    for file in (store / "d").iterdir():
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(Damaged, match=r"torn write|checksum"):
            list(read_values(survey(store), "manifest.ocdbt"))
        file.write_bytes(whole)


@pytest.mark.parametrize(
    "name", ["state/manifest.ocdbt", "state/ocdbt.process_0/manifest.ocdbt", "state/_METADATA", "extra/metadata"]
)
def test_a_file_cut_anywhere_is_refused(real: Path, name: str) -> None:
    whole = (real / name).read_bytes()
    held = []
    for length in [*range(0, len(whole), 9), len(whole) - 1]:
        (real / name).write_bytes(whole[:length])
        if not refusal(real, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


@pytest.mark.slow
def test_a_flipped_byte_anywhere_in_a_manifest_is_refused(real: Path) -> None:
    file = real / "state" / "manifest.ocdbt"
    whole = file.read_bytes()
    held = []
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        if not refusal(real):
            held.append(at)

    assert held == []


@pytest.mark.parametrize("name", ["state/_METADATA", "extra/metadata"])
def test_an_item_that_the_step_names_has_to_be_there(real: Path, name: str) -> None:
    (real / name).unlink()

    assert refusal(real, level=VerifyLevel.QUICK) == f"{name}: missing"


def test_plain_values_that_are_no_text_are_refused(real: Path) -> None:
    (real / "extra" / "metadata").write_bytes(b'{"epo\xefh": 1}')

    assert refusal(real) == "extra/metadata: not the whole metadata of Orbax (torn write)"


def test_an_item_may_not_lead_outside(real: Path) -> None:
    (real / "_CHECKPOINT_METADATA").write_text(json.dumps({"item_handlers": {"../19": "JsonCheckpointHandler"}}))

    assert "not inside the checkpoint" in refusal(real)


@pytest.mark.parametrize("array", ["w", "b", "step"])
def test_a_missing_array_is_named(zarr: Path, array: str) -> None:
    shutil.rmtree(zarr / array)

    assert refusal(zarr) == f"{array}: missing, or without its metadata"


@pytest.fixture(params=["orbax-pieces", "orbax-pieces-zarr3"])
def pieces(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Step 10, whose array `w` lies in files of OCDBT, in two pieces."""
    return Path(shutil.copytree(REAL / str(request.param) / "10", tmp_path / "10"))


@pytest.mark.parametrize("zeros", [0, 1000, 3000, 4500])
def test_a_piece_whose_end_was_never_written_is_refused_by_a_full_check(pieces: Path, zeros: int) -> None:
    file = max((pieces / "ocdbt.process_0" / "d").iterdir(), key=lambda path: path.stat().st_size)
    whole = file.read_bytes()
    file.write_bytes(whole[:zeros] + bytes(len(whole) - zeros))

    assert refusal(pieces).startswith("w/")
    assert refusal(pieces, level=VerifyLevel.QUICK) == ""


def test_a_piece_in_a_file_of_its_own_is_refused_when_it_was_cut(zarr: Path) -> None:
    whole = (zarr / "w" / "0.0").read_bytes()
    held = []
    for length in range(1, len(whole)):
        (zarr / "w" / "0.0").write_bytes(whole[:length])
        if not refusal(zarr):
            held.append(length)

    assert held == []


@pytest.mark.parametrize("level", VerifyLevel)
@pytest.mark.parametrize("piece", ["w/0.0", "b/0", "step/0"])
def test_a_lost_piece_is_missed_where_orbax_stores_all(zarr: Path, piece: str, level: VerifyLevel) -> None:
    (zarr / piece).unlink()

    assert refusal(zarr, level=level) == f"{piece[: piece.index('/')]}: 0 of 1 pieces"


def test_a_lost_piece_may_have_been_zeros_where_orbax_does_not_report_that_it_stores_them(zarr: Path) -> None:
    (zarr / "_METADATA").write_text((zarr / "_METADATA").read_text().replace("store_array_data", "forget_array_data"))
    (zarr / "w" / "0.0").unlink()

    assert refusal(zarr) == ""


def test_cut_metadata_of_an_array_is_refused(zarr: Path) -> None:
    whole = (zarr / "w" / ".zarray").read_bytes()
    (zarr / "w" / ".zarray").write_bytes(whole[:100])

    assert "not the whole metadata of an array" in refusal(zarr, level=VerifyLevel.QUICK)


def test_the_root_may_be_one_step(real: Path) -> None:
    found = latest(real).found

    assert found is not None
    assert (found.path, found.step) == (str(real), 20)


def test_the_checksum_is_that_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
