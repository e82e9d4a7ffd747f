"""Checkpoints of PyTorch Lightning: a file, or a folder with the same suffix."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest, newest_step
from tests.checkpoints.builders import REAL, refusal, write_files

FILE = REAL / "lightning" / "epoch=0-step=6.ckpt"
STATE = {"pytorch-lightning_version": "2.6", "state_dict": {}, "optimizer_states": [], "global_step": 10}


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A folder that two ranks wrote."""
    return Path(shutil.copytree(REAL / "lightning-sharded", tmp_path / "run")) / "epoch=0-step=3.ckpt"


@pytest.mark.parametrize(("run", "step"), [("lightning", 6), ("lightning-sharded", 3)])
@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(run: str, step: int, level: VerifyLevel) -> None:
    found = latest(REAL / run, level=level).found

    assert found is not None
    assert (found.step, found.format) == (step, "lightning")


def test_a_file_with_the_model_only_is_refused_for_lightning_does_not_resume_from_it() -> None:
    file = REAL / "lightning-weights" / "epoch=0-step=6.ckpt"

    assert refusal(file) == f"{file.name}: the model only (save_weights_only), from which Lightning does not resume"


def test_a_file_without_a_model_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, "step=10.ckpt", state={key: STATE[key] for key in STATE if key != "state_dict"})

    assert refusal(tmp_path / "step=10.ckpt") == "step=10.ckpt: a checkpoint of Lightning without a model"


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    whole = FILE.read_bytes()
    file = tmp_path / FILE.name
    held = []
    for length in [*range(0, len(whole), len(whole) // 20), len(whole) - 1]:
        file.write_bytes(whole[:length])
        if not refusal(file, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


def test_a_flipped_byte_in_the_pickle_is_refused_by_a_quick_check(tmp_path: Path) -> None:
    content = bytearray(FILE.read_bytes())
    content[content.index(b"optimizer_states")] ^= 1
    file = tmp_path / FILE.name
    file.write_bytes(content)

    assert "the checksum of" in refusal(file, level=VerifyLevel.QUICK)


def test_a_file_of_another_program_with_this_suffix_holds(tmp_path: Path) -> None:
    write_files(tmp_path, "step=10.ckpt", state={"model": {}})

    found = latest(tmp_path).found

    assert found is not None
    assert found.format == "torch_zip"


@pytest.mark.parametrize("name", ["meta.pt", ".metadata", "__0_0.distcp", "__1_0.distcp"])
def test_a_dropped_file_of_a_folder_is_named(sharded: Path, name: str) -> None:
    (sharded / name).unlink()

    assert refusal(sharded, level=VerifyLevel.QUICK).startswith(f"{name}: missing")


@pytest.mark.parametrize("name", ["meta.pt", ".metadata", "__0_0.distcp", "__1_0.distcp"])
def test_a_file_of_a_folder_that_lacks_a_byte_is_refused(sharded: Path, name: str) -> None:
    (sharded / name).write_bytes((sharded / name).read_bytes()[:-1])

    assert refusal(sharded, level=VerifyLevel.QUICK).startswith(f"{name}: ")


def test_a_folder_of_deepspeed_is_checked_as_such(tmp_path: Path) -> None:
    folder = tmp_path / "epoch=0-step=3.ckpt"
    shutil.copytree(REAL / "deepspeed-zero3" / "global_step3", folder / "checkpoint")
    (folder / "latest").write_text("checkpoint")
    assert refusal(folder) == ""
    lost = "checkpoint/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    (folder / lost).unlink()

    assert refusal(folder) == f"{lost}: missing; 1 of 2 such files are here"


def a_run(root: Path, *named: int, last: int) -> Path:
    for step in named:
        write_files(root, f"epoch=0-step={step}.ckpt", state=STATE | {"global_step": step})
    return write_files(root, "last.ckpt", state=STATE | {"global_step": last})


def newest(root: Path) -> tuple[str, int] | None:
    found = latest(root).found
    return (Path(found.path).name, found.step) if found else None


def test_a_step_that_was_saved_again_is_newer_than_it_was_before(tmp_path: Path) -> None:
    a_run(tmp_path, 300, 400, last=100)
    for number in (2, 10):
        shutil.copy(tmp_path / "epoch=0-step=400.ckpt", tmp_path / f"epoch=0-step=400-v{number}.ckpt")

    assert newest(tmp_path) == ("epoch=0-step=400-v10.ckpt", 400)


def test_the_last_file_counts_by_the_step_that_it_holds(tmp_path: Path) -> None:
    assert newest(a_run(tmp_path, 400, 300, last=1000)) == ("last.ckpt", 1000)
    assert newest_step(tmp_path) == 1000


def test_of_two_of_one_step_the_one_that_stays_is_taken(tmp_path: Path) -> None:
    assert newest(a_run(tmp_path, 400, last=400)) == ("epoch=0-step=400.ckpt", 400)
    (tmp_path / "epoch=0-step=400.ckpt").write_bytes(b"PK\3\4")

    assert newest(tmp_path) == ("last.ckpt", 400)


def test_a_last_file_alone_has_the_step_that_it_holds(tmp_path: Path) -> None:
    assert newest(a_run(tmp_path, last=7)) == ("last.ckpt", 7)


def test_a_last_folder_has_the_step_of_its_meta_file(tmp_path: Path) -> None:
    shutil.copytree(REAL / "lightning-sharded" / "epoch=0-step=3.ckpt", tmp_path / "last.ckpt")

    assert newest(tmp_path) == ("last.ckpt", 3)


def test_a_torn_or_linked_last_file_does_not_count(tmp_path: Path) -> None:
    a_run(tmp_path, 400, last=1000)
    (tmp_path / "last.ckpt").write_bytes(FILE.read_bytes()[:100])
    (tmp_path / "last-v1.ckpt").symlink_to("epoch=0-step=400.ckpt")

    assert newest(tmp_path) == ("epoch=0-step=400.ckpt", 400)


def test_a_last_file_that_is_a_fifo_is_not_opened(tmp_path: Path) -> None:
    a_run(tmp_path, 400, last=1000)
    (tmp_path / "last.ckpt").unlink()
    os.mkfifo(tmp_path / "last.ckpt")

    assert newest(tmp_path) == ("epoch=0-step=400.ckpt", 400)
