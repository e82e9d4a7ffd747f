"""Folders of the Hugging Face Trainer: its state is written last, and of the step in the folder's name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, a_dcp_step, refusal, safetensors_bytes, write_files

STATE = "trainer_state.json"


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Step 4 that two ranks wrote."""
    return Path(shutil.copytree(REAL / "trainer" / "checkpoint-4", tmp_path / "checkpoint-4"))


def a_state(folder: Path, step: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STATE).write_text(json.dumps({"global_step": step, "log_history": []}))
    return folder


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "trainer", level=level).found

    assert found is not None
    assert (found.step, found.format) == (4, "trainer")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (STATE, "trainer_state.json: missing; it is written last (save not finished)"),
        ("model.safetensors", "no model beside trainer_state.json"),
        ("optimizer.pt", "optimizer.pt: missing; scheduler.pt is there"),
        ("scheduler.pt", "scheduler.pt: missing"),
    ],
)
def test_a_missing_file_is_named(real: Path, name: str, why: str) -> None:
    (real / name).unlink()

    assert refusal(real, level=VerifyLevel.QUICK) == why


def test_a_rank_between_others_that_did_not_save_is_named(real: Path) -> None:
    (real / "rng_state_1.pth").rename(real / "rng_state_2.pth")

    assert refusal(real) == "rng_state_1.pth: missing; 2 such files are here (not all ranks saved)"


@pytest.mark.parametrize(
    "name",
    [
        STATE,
        "model.safetensors",
        "optimizer.pt",
        "scheduler.pt",
        "rng_state_0.pth",
        "rng_state_1.pth",
        "training_args.bin",
        "config.json",
    ],
)
def test_a_file_cut_anywhere_is_refused(real: Path, name: str) -> None:
    whole = (real / name).read_bytes().rstrip()
    held = []
    for length in [*range(0, len(whole), len(whole) // 20), len(whole) - 1]:
        (real / name).write_bytes(whole[:length])
        if not refusal(real, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state_1.pth"])
def test_a_flipped_byte_is_refused_by_its_checksum(real: Path, name: str) -> None:
    content = bytearray((real / name).read_bytes())
    content[content.index(b"data/0", 300) + 200] ^= 1
    (real / name).write_bytes(content)

    assert "the checksum of" in refusal(real)


def test_the_state_of_another_step_is_refused(real: Path) -> None:
    a_state(real, 2)

    assert refusal(real) == "trainer_state.json: of step 2, in the folder of 4 (of another save?)"


def test_a_loss_that_is_no_number_is_no_damage(real: Path) -> None:
    (real / STATE).write_text('{"global_step": 4, "log_history": [{"loss": NaN, "grad_norm": Infinity}]}')

    assert refusal(real) == ""


@pytest.mark.parametrize("content", ["", "{}", '{"global_step": "4"}', "[4]", "[" * 100_000, "\x00" * 50])
def test_a_state_without_a_step_is_refused(real: Path, content: str) -> None:
    (real / STATE).write_text(content)

    assert refusal(real) == "trainer_state.json: not the whole state of a trainer (torn write)"


def test_a_key_that_is_one_letter_off_is_damage_since_the_trainer_would_not_load_it(real: Path) -> None:
    (real / STATE).write_text((real / STATE).read_text().replace('"eval_steps"', '"evad_steps"'))

    assert refusal(real) == "trainer_state.json: has the key 'evad_steps', where eval_steps should be (changed bytes)"


def test_a_key_that_a_newer_version_may_have_is_no_damage(real: Path) -> None:
    (real / STATE).write_text((real / STATE).read_text().replace("{", '{"eval_step": 1, "save_stepz": 2, ', 1))

    assert refusal(real) == ""


def test_the_writers_own_mark_says_that_it_is_not_finished(real: Path) -> None:
    (real / "checkpoint-is-incomplete.txt").touch()

    assert "(save not finished)" in refusal(real)


def test_random_states_without_an_optimizer_are_what_a_deletion_left(real: Path) -> None:
    (real / "optimizer.pt").unlink()
    (real / "scheduler.pt").unlink()

    assert refusal(real) == "optimizer.pt: missing; rng_state_0.pth is there"


@pytest.mark.parametrize(("beside", "why"), [(6, "optimizer.pt: missing; a newer step beside has it"), (2, "")])
def test_an_old_step_without_an_optimizer_is_being_deleted_where_a_newer_one_has_it(
    real: Path, beside: int, why: str
) -> None:
    shutil.copytree(real, real.parent / f"checkpoint-{beside}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth"):
        (real / name).unlink()

    assert refusal(real).partition(" (")[0] == why


@pytest.mark.parametrize("alone", ["rng_state_1.pth", "rng_state.pth", "scheduler.pt", "training_args.bin"])
def test_a_folder_in_which_one_rank_alone_has_written_is_not_finished(tmp_path: Path, alone: str) -> None:
    folder = write_files(tmp_path / "checkpoint-6", alone)

    assert refusal(folder) == "trainer_state.json: missing; it is written last (save not finished)"


def test_a_model_alone_is_not_finished_where_the_step_before_has_a_state(real: Path) -> None:
    folder = real.parent / "checkpoint-6"
    folder.mkdir()
    shutil.copy(real / "model.safetensors", folder)

    assert refusal(folder) == "trainer_state.json: missing; it is written last (save not finished)"


def test_a_run_that_saves_the_model_only_holds(tmp_path: Path) -> None:
    folder = a_state(tmp_path / "checkpoint-10", 10)
    (folder / "model.safetensors").write_bytes(safetensors_bytes({"w": 4}))

    assert refusal(folder) == ""


def test_the_folders_of_fsdp_count_as_model_and_optimizer(tmp_path: Path) -> None:
    folder = a_state(tmp_path / "checkpoint-10", 10)
    a_dcp_step(tmp_path, 1).rename(folder / "pytorch_model_fsdp_0")
    a_dcp_step(tmp_path, 2).rename(folder / "optimizer_0")
    write_files(folder, "scheduler.pt")
    assert refusal(folder) == ""
    (folder / "optimizer_0" / ".metadata").unlink()

    assert refusal(folder) == "optimizer_0/.metadata: missing; it is written last (save not finished)"


def test_the_folder_of_deepspeed_inside_is_checked_as_such(tmp_path: Path) -> None:
    folder = a_state(tmp_path / "checkpoint-3", 3)
    shutil.copytree(REAL / "deepspeed-zero3" / "global_step3", folder / "global_step3")
    (folder / "latest").write_text("global_step3")
    write_files(folder, "scheduler.pt", "rng_state_0.pth", "rng_state_1.pth")
    assert refusal(folder) == ""
    lost = "global_step3/zero_pp_rank_1_mp_rank_00_model_states.pt"
    (folder / lost).unlink()

    assert refusal(folder) == f"{lost}: missing; 1 of 2 such files are here"


def test_a_file_that_the_index_of_a_torch_model_names_has_to_be_there(tmp_path: Path) -> None:
    folder = write_files(a_state(tmp_path / "checkpoint-10", 10), "pytorch_model-00001-of-00002.bin")
    names = {f"layer.{number}": f"pytorch_model-0000{number}-of-00002.bin" for number in (1, 2)}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))

    assert refusal(folder) == "pytorch_model-00002-of-00002.bin: missing"


def test_the_index_of_a_torch_model_may_not_lead_outside(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"w": "../../secret.bin"}}))

    assert "not inside the checkpoint" in refusal(tmp_path)


def test_a_state_that_is_a_fifo_is_not_opened(real: Path) -> None:
    (real / STATE).unlink()
    os.mkfifo(real / STATE)

    assert refusal(real) == "trainer_state.json: a FIFO, not a regular file"


def test_a_model_folder_of_that_name_without_a_trainer_holds(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-10").mkdir()
    (tmp_path / "checkpoint-10" / "model.safetensors").write_bytes(safetensors_bytes({"w": 4}))

    assert refusal(tmp_path / "checkpoint-10") == ""


@pytest.mark.parametrize("other", ["optimizer.pt", "scheduler.pt"])
def test_another_file_under_the_name_of_random_states_is_refused(real: Path, other: str) -> None:
    shutil.copy(real / other, real / "rng_state_1.pth")

    assert refusal(real) == "rng_state_1.pth: not the random states of a rank (another file under this name?)"
