"""Checkpoints of TensorFlow: an index and shards for each step, beside each other."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from healthd.checkpoints.steps import find
from tests.checkpoints.builders import REAL, torch_zip_bytes
from tests.checkpoints.damage import held_when_cut, held_when_flipped, word

DATA = "ckpt-20.data-00000-of-00001"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL / "tensorflow", tmp_path / "run"))


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "tensorflow", level=level).found

    assert found is not None
    assert (Path(found.path).name, found.step, found.format) == ("ckpt-20", 20, "tensorflow")


def test_the_steps_of_one_folder_are_distinguished(real: Path) -> None:
    assert [candidate.step for candidate in find(real)] == [20, 10]


@pytest.mark.parametrize("name", ["ckpt-20", "ckpt-20.index", DATA])
def test_a_checkpoint_can_be_named_by_its_beginning_or_by_a_file_of_it(real: Path, name: str) -> None:
    assert [candidate.path for candidate in find(real / name)] == [real / "ckpt-20"]


def test_without_its_index_a_save_is_not_finished(real: Path) -> None:
    (real / "ckpt-20.index").unlink()

    answer = latest(real)

    assert answer.found is not None
    assert answer.found.step == 10
    assert "not finished" in answer.rejected[0].reason


def test_a_missing_shard_is_named(real: Path) -> None:
    (real / DATA).unlink()

    assert word(real / "ckpt-20", level=VerifyLevel.QUICK) == f"{DATA}: missing"


@pytest.mark.slow
def test_an_index_cut_anywhere_is_refused(real: Path) -> None:
    assert held_when_cut(real / "ckpt-20", real / "ckpt-20.index", times=500) == []


def test_a_shard_cut_anywhere_is_refused_by_a_quick_check(real: Path) -> None:
    assert held_when_cut(real / "ckpt-20", real / DATA) == []


@pytest.mark.slow
def test_a_flipped_bit_anywhere_in_the_data_is_refused(real: Path) -> None:
    assert held_when_flipped(real / "ckpt-20", real / DATA, times=700) == []


def test_the_shard_of_another_step_is_refused(real: Path) -> None:
    shutil.copy(real / "ckpt-10.data-00000-of-00001", real / DATA)

    assert word(real / "ckpt-20", level=VerifyLevel.QUICK) == ""
    assert "checksum" in word(real / "ckpt-20")


def test_the_index_of_another_step_is_refused(real: Path) -> None:
    shutil.copy(real / "ckpt-10.index", real / "ckpt-20.index")

    assert "checksum" in word(real / "ckpt-20")


def test_in_a_folder_of_its_own_it_is_verified_as_well(real: Path) -> None:
    step = real / "step-20" / "variables"
    step.mkdir(parents=True)
    for name in ("ckpt-20.index", DATA):
        (real / name).rename(step / name.replace("ckpt-20", "variables"))

    assert word(real / "step-20") == ""
    (step / "variables.index").unlink()
    assert "written last" in word(real / "step-20")


def test_a_beginning_that_looks_like_a_file_of_lightning_is_none(real: Path) -> None:
    for name in ("ckpt-20.index", DATA):
        (real / name).rename(real / name.replace("ckpt-20", "cp-0020.ckpt"))

    assert word(real / "cp-0020.ckpt") == ""


def test_an_index_of_another_tool_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "vectors.index").write_bytes(b"IxFI" * 100)
    (tmp_path / "model.pt").write_bytes(torch_zip_bytes())

    assert word(tmp_path) == ""
