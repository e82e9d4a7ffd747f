"""Folders of Accelerate: no marker, so everything that a save consists of has to be there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, refusal, write_files


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """The second save of two ranks."""
    return Path(shutil.copytree(REAL / "accelerate" / "checkpoint_1", tmp_path / "checkpoint_1"))


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "accelerate", level=level).found

    assert found is not None
    assert (found.step, found.format) == (1, "accelerate")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("model.safetensors", "no model beside the random states (model.safetensors or pytorch_model.bin)"),
        ("optimizer.bin", "no optimizer beside the random states (optimizer.bin)"),
    ],
)
def test_a_missing_part_is_named(real: Path, name: str, why: str) -> None:
    (real / name).unlink()

    assert refusal(real, level=VerifyLevel.QUICK) == why


def test_a_rank_between_others_that_did_not_save_is_named(real: Path) -> None:
    (real / "random_states_1.pkl").rename(real / "random_states_2.pkl")

    assert refusal(real) == "random_states_1.pkl: missing; 2 such files are here (not all ranks saved)"


def test_on_disks_of_its_own_a_node_has_the_files_of_its_ranks(real: Path) -> None:
    (real / "random_states_0.pkl").rename(real / "random_states_8.pkl")
    (real / "random_states_1.pkl").rename(real / "random_states_9.pkl")

    assert refusal(real) == ""


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.bin", "scheduler.bin", "random_states_0.pkl", "random_states_1.pkl"]
)
def test_a_file_cut_anywhere_is_refused(real: Path, name: str) -> None:
    whole = (real / name).read_bytes()
    held = []
    for length in [*range(0, len(whole), len(whole) // 20), len(whole) - 1]:
        (real / name).write_bytes(whole[:length])
        if not refusal(real, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


def test_what_a_program_registered_is_checked_too(real: Path) -> None:
    write_files(real, "custom_checkpoint_0.pkl")
    assert refusal(real) == ""
    (real / "custom_checkpoint_0.pkl").write_bytes(b"")

    assert refusal(real) == "custom_checkpoint_0.pkl: empty file"


def test_without_random_states_the_save_was_not_finished(tmp_path: Path) -> None:
    write_files(tmp_path, "optimizer.bin", "custom_checkpoint_0.pkl")

    assert "random_states_0.pkl: missing" in refusal(tmp_path)


@pytest.mark.parametrize("written", [("model.safetensors",), ("model.safetensors", "optimizer.bin", "scheduler.bin")])
def test_a_save_that_ended_before_any_random_state_is_not_finished(real: Path, written: tuple[str, ...]) -> None:
    folder = real.parent / "checkpoint_2"
    folder.mkdir()
    for name in written:
        shutil.copy(real / name, folder)

    assert refusal(folder) == "random_states_0.pkl: missing; each rank writes its own last (save not finished)"


def test_a_first_save_that_ended_early_is_known_by_its_name(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "checkpoint_0", "pytorch_model.bin", "optimizer.bin")

    assert refusal(folder) == "random_states_0.pkl: missing; each rank writes its own last (save not finished)"


def test_a_model_without_steps_like_it_is_no_accelerate(real: Path) -> None:
    folder = real.parent / "export-2"
    folder.mkdir()
    shutil.copy(real / "model.safetensors", folder)

    assert refusal(folder) == ""


def test_the_folder_of_deepspeed_inside_stands_for_model_and_optimizer(tmp_path: Path) -> None:
    shutil.copytree(REAL / "deepspeed-zero3" / "global_step3", tmp_path / "pytorch_model")
    (tmp_path / "latest").write_text("pytorch_model")
    write_files(tmp_path, "random_states_0.pkl", "random_states_1.pkl")

    assert refusal(tmp_path) == ""


def test_a_file_that_the_step_before_has_is_missed_in_the_next_two(tmp_path: Path) -> None:
    source = REAL / "accelerate" / "checkpoint_1"
    steps = [Path(shutil.copytree(source, tmp_path / f"checkpoint_{number}")) for number in range(4)]
    write_files(steps[0], "sampler.bin")

    assert [refusal(step) for step in steps] == [
        "",
        "sampler.bin: missing; checkpoint_0 has it",
        "sampler.bin: missing; checkpoint_0 has it",
        "",
    ]


def test_an_optimizer_under_the_name_of_random_states_is_refused(real: Path) -> None:
    shutil.copy(real / "optimizer.bin", real / "random_states_0.pkl")

    assert refusal(real) == "random_states_0.pkl: not the random states of a rank (another file under this name?)"
