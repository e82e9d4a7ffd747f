"""DeepSpeed's folders: the files of all ranks, of one save."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, refusal, torch_zip_bytes, write_files

MODEL = "mp_rank_00_model_states.pt"
SHARDS = [f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt" for rank in range(2)]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Steps 2 and 3 that two ranks wrote with ZeRO 2."""
    return Path(shutil.copytree(REAL / "deepspeed-zero2", tmp_path / "run"))


def a_model_state(**fields: object) -> dict[str, object]:
    return {"global_steps": 10, "dp_world_size": 1, "mp_world_size": 1, **fields}


@pytest.mark.parametrize("run", ["deepspeed-zero2", "deepspeed-zero3"])
@pytest.mark.parametrize("level", VerifyLevel)
def test_a_folder_of_the_real_library_holds(run: str, level: VerifyLevel) -> None:
    answer = latest(REAL / run, level=level)

    assert answer.found is not None
    assert (answer.found.step, answer.found.format) == (3, "deepspeed")


@pytest.mark.parametrize("level", VerifyLevel)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_missing_optimizer_shard_is_named(real: Path, rank: int, level: VerifyLevel) -> None:
    (real / "global_step3" / SHARDS[rank]).unlink()

    assert refusal(real / "global_step3", level=level) == f"{SHARDS[rank]}: missing; 1 of 2 such files are here"


@pytest.mark.parametrize("rank", [0, 1])
def test_a_missing_shard_of_the_model_is_named(tmp_path: Path, rank: int) -> None:
    folder = Path(shutil.copytree(REAL / "deepspeed-zero3" / "global_step3", tmp_path / "global_step3"))
    name = f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"
    (folder / name).unlink()

    assert refusal(folder, level=VerifyLevel.QUICK) == f"{name}: missing; 1 of 2 such files are here"


def test_without_any_optimizer_shard_the_stage_reports_that_they_are_missing(real: Path) -> None:
    for name in SHARDS:
        (real / "global_step3" / name).unlink()

    assert refusal(real / "global_step3") == ".: no optimizer shard, though ZeRO stage 2 saves them"


def test_without_the_model_not_all_ranks_saved(real: Path) -> None:
    (real / "global_step3" / MODEL).unlink()

    assert "no model state" in refusal(real / "global_step3")


@pytest.mark.parametrize("name", [MODEL, *SHARDS])
def test_a_file_cut_anywhere_is_refused(real: Path, name: str) -> None:
    file = real / "global_step3" / name
    whole = file.read_bytes()
    held = []
    for length in [*range(0, len(whole), 200), len(whole) - 1]:
        file.write_bytes(whole[:length])
        if not refusal(file.parent, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


@pytest.mark.parametrize("name", [MODEL, *SHARDS])
def test_a_flipped_byte_is_refused_by_a_full_check(real: Path, name: str) -> None:
    file = real / "global_step3" / name
    content = bytearray(file.read_bytes())
    content[content.index(b"ds_version")] ^= 1
    file.write_bytes(content)

    assert "the checksum of" in refusal(file.parent)


def test_a_shard_of_another_step_is_seen_by_its_optimizer(real: Path) -> None:
    shutil.copy(real / "global_step2" / SHARDS[1], real / "global_step3" / SHARDS[1])

    assert refusal(real / "global_step3", level=VerifyLevel.QUICK) == ""
    assert "of optimizer step " in refusal(real / "global_step3")
    assert "(a shard of another save?)" in refusal(real / "global_step3")


def test_a_model_file_of_another_step_is_seen(tmp_path: Path) -> None:
    write_files(tmp_path, MODEL, "mp_rank_02_model_states.pt", state=a_model_state())
    write_files(tmp_path, "mp_rank_01_model_states.pt", state=a_model_state(global_steps=9))

    assert refusal(tmp_path) == "mp_rank_01_model_states.pt: of step 9, the others of 10 (a shard of another save?)"


def test_the_last_rank_is_missed_by_the_world_size(tmp_path: Path) -> None:
    write_files(tmp_path, MODEL, state=a_model_state(mp_world_size=2))

    assert refusal(tmp_path) == "mp_rank_01_model_states.pt: missing; 1 of 2 such files are here"


def test_a_grid_of_tensor_and_data_ranks_holds(tmp_path: Path) -> None:
    models = [f"mp_rank_{mp:02}_model_states.pt" for mp in range(2)]
    shards = [f"zero_pp_rank_{dp}_mp_rank_{mp:02}_optim_states.pt" for mp in range(2) for dp in range(12)]
    experts = ["layer_0_expert_3_mp_rank_00_model_states.pt", "expp_rank_0_mp_rank_00_optim_states.pt"]
    state = a_model_state(mp_world_size=2, dp_world_size=12, ds_config={"zero_optimization": {"stage": 1}})
    write_files(tmp_path, *models, *shards, *experts, state=state)

    assert refusal(tmp_path) == ""


def test_with_mics_only_the_first_group_of_ranks_saves(tmp_path: Path) -> None:
    zero = {"stage": 3, "mics_shard_size": 2}
    names = [f"zero_pp_rank_{dp}_mp_rank_00_{what}_states.pt" for dp in range(2) for what in ("model", "optim")]
    write_files(tmp_path, *names, state=a_model_state(dp_world_size=8, ds_config={"zero_optimization": zero}))

    assert refusal(tmp_path) == ""


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("", "latest: empty"),
        ("global_step9", "latest: names 'global_step9', where nothing of DeepSpeed is"),
        ("../global_step10", "not inside the checkpoint"),
        ("global_step10\n", ""),
    ],
)
def test_a_pointer_inside_the_checkpoint_of_a_trainer_has_to_hold(tmp_path: Path, tag: str, why: str) -> None:
    folder = write_files(tmp_path / "save-10", f"global_step10/{MODEL}", state=a_model_state())
    (folder / "latest").write_text(tag)

    assert why in refusal(folder)
    assert bool(refusal(folder)) is bool(why)


def test_a_pointer_that_is_a_fifo_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(write_files(tmp_path / "save-10", f"global_step10/{MODEL}") / "latest")

    assert refusal(tmp_path / "save-10") == "latest: a FIFO, not a regular file"


def test_a_pointer_beside_the_steps_is_only_a_hint(real: Path) -> None:
    shutil.rmtree(real / "global_step3")

    found = latest(real).found

    assert (real / "latest").read_text() == "global_step3"
    assert found is not None
    assert found.step == 2


@pytest.mark.parametrize(
    "state", [{"dp_world_size": 2**3000}, {"dp_world_size": float("inf")}, {"dp_world_size": "2"}, [], None]
)
def test_absurd_world_sizes_say_nothing(tmp_path: Path, state: object) -> None:
    write_files(tmp_path, MODEL, state=state)

    assert refusal(tmp_path) == ""


def test_a_rank_of_a_million_ends_in_an_answer_at_once(tmp_path: Path) -> None:
    (tmp_path / "zero_pp_rank_999999_mp_rank_999999_optim_states.pt").write_bytes(torch_zip_bytes())
    (tmp_path / MODEL).write_bytes(torch_zip_bytes())

    assert "1 of 1,000,000,000,000 such files" in refusal(tmp_path)


@pytest.mark.parametrize("level", VerifyLevel)
def test_the_one_model_file_of_another_step_is_refused_by_the_folders_name(tmp_path: Path, level: VerifyLevel) -> None:
    folder = Path(shutil.copytree(REAL / "deepspeed-zero2" / "global_step3", tmp_path / "global_step3"))
    shutil.copy(REAL / "deepspeed-zero2" / "global_step2" / "mp_rank_00_model_states.pt", folder)

    reason = refusal(folder, level=level)
    assert reason == "mp_rank_00_model_states.pt: of step 2, in the folder of 3 (of another save?)"


def test_a_folder_of_another_name_may_hold_any_step(tmp_path: Path) -> None:
    folder = shutil.copytree(REAL / "deepspeed-zero2" / "global_step3", tmp_path / "best")

    assert refusal(Path(folder)) == ""


def a_universal_step(root: Path) -> Path:
    folder = root / "global_step10_universal"
    state = {"dp_world_size": 2, "mp_world_size": 1, "ds_config": {"zero_optimization": {"stage": 2}}}
    write_files(folder, "mp_rank_00_model_states.pt", state=state)
    for parameter in ("embed", "layers.0.w", "layers.1.w"):
        for part in ("fp32.pt", "exp_avg.pt", "exp_avg_sq.pt"):
            write_files(folder / "zero" / parameter, part)
    write_files(folder / "zero", "optimizer_state.pt")
    return folder


def test_a_universal_checkpoint_with_all_parts_of_each_parameter_holds(tmp_path: Path) -> None:
    assert refusal(a_universal_step(tmp_path)) == ""


@pytest.mark.parametrize("part", ["fp32.pt", "exp_avg_sq.pt"])
def test_a_missing_part_of_a_parameter_is_named(tmp_path: Path, part: str) -> None:
    folder = a_universal_step(tmp_path)
    (folder / "zero" / "layers.0.w" / part).unlink()

    reason = refusal(folder)

    assert reason.startswith(f"zero/layers.0.w/{part}: missing; ")


@pytest.fixture
def universal(tmp_path: Path) -> Path:
    """What the library's script made of step 3; `0.weight` is not trained, `scale` is a buffer."""
    name = "global_step3_universal"
    return Path(shutil.copytree(REAL / "deepspeed-universal" / name, tmp_path / name))


@pytest.mark.parametrize("level", VerifyLevel)
def test_a_universal_checkpoint_of_the_real_library_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "deepspeed-universal", level=level).found

    assert found is not None
    assert (found.step, found.format) == (3, "deepspeed")


def test_a_parameter_that_is_not_trained_has_no_moments(universal: Path) -> None:
    assert [path.name for path in (universal / "zero" / "0.weight").iterdir()] == ["fp32.pt"]

    assert refusal(universal) == ""


def test_a_trained_parameter_that_is_gone_as_a_whole_is_named(universal: Path) -> None:
    shutil.rmtree(universal / "zero" / "1.bias")

    why = "zero/1.bias: without state of the optimizer; 2 of 3 trained parameters have it"
    assert refusal(universal, level=VerifyLevel.QUICK) == why


def test_without_the_model_files_which_are_copied_last_it_is_not_finished(universal: Path) -> None:
    (universal / "mp_rank_00_model_states.pt").unlink()

    assert refusal(universal) == ".: no model state beside the parameters; it is copied last (save not finished)"


def test_the_first_file_of_a_conversion_is_none(universal: Path) -> None:
    for path in universal.iterdir():
        path.unlink() if path.is_file() else shutil.rmtree(path)
    write_files(universal, "zero/layers.0/step.pt")

    assert "it is copied last (save not finished)" in refusal(universal)


def test_without_what_the_optimizer_has_for_all_parameters_it_is_refused(universal: Path) -> None:
    (universal / "zero" / "optimizer_state.pt").unlink()

    assert refusal(universal) == "zero/optimizer_state.pt: missing"


def test_a_parameter_of_another_step_is_named_by_its_own(universal: Path) -> None:
    older = REAL / "deepspeed-universal" / "global_step2_universal" / "zero" / "1.bias"
    shutil.copytree(older, universal / "zero" / "1.bias", dirs_exist_ok=True)

    reason = refusal(universal)
    assert reason == "zero/1.bias/step.pt: of optimizer step 2, the others of 3 (a shard of another save?)"


def test_a_trained_parameter_without_any_moment_is_named(universal: Path) -> None:
    for moment in ("exp_avg.pt", "exp_avg_sq.pt", "step.pt"):
        (universal / "zero" / "1.bias" / moment).unlink()

    assert "zero/1.bias: without state of the optimizer" in refusal(universal)


def test_a_buffer_without_its_numbers_is_named(universal: Path) -> None:
    (universal / "zero" / "1.weight" / "fp32.pt").unlink()

    assert refusal(universal) == "zero/1.weight/fp32.pt: missing; the other files of this parameter are here"
