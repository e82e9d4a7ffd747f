"""Megatron-LM's folders: the legacy layout, made by hand, and torch_dist, by megatron-core."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, a_dcp_step, refusal, torch_zip_bytes, write_files


def a_rank_state(iteration: int = 10, **sizes: int) -> dict[str, object]:
    args = argparse.Namespace(**{f"{kind}_model_parallel_size": size for kind, size in sizes.items()})
    return {"iteration": iteration, "args": args}


def a_legacy_save(root: Path, *ranks: str, **sizes: int) -> Path:
    """An iteration 10 with these folders of ranks."""
    names = [f"{rank}/model_optim_rng.pt" for rank in ranks]
    names += [f"{rank}/distrib_optim.pt" for rank in ranks]
    return write_files(root / "iter_0000010", *names, state=a_rank_state(**sizes))


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """Iterations 10 and 20 that two ranks wrote."""
    return Path(shutil.copytree(REAL / "megatron-dist", tmp_path / "run"))


@pytest.mark.parametrize(
    ("ranks", "sizes"),
    [
        (["mp_rank_00"], {"tensor": 1, "pipeline": 1}),
        (["mp_rank_00", "mp_rank_01"], {"tensor": 2, "pipeline": 1}),
        ([f"mp_rank_0{tp}_00{pp}" for tp in range(2) for pp in range(3)], {"tensor": 2, "pipeline": 3}),
        (["mp_rank_00_000", "mp_rank_00_001"], {"tensor": 1, "pipeline": 1, "expert": 2}),
        (["mp_rank_00", "mp_rank_01"], {}),
    ],
)
@pytest.mark.parametrize("level", VerifyLevel)
def test_with_every_rank_the_legacy_layout_holds(
    tmp_path: Path, ranks: list[str], sizes: dict[str, int], level: VerifyLevel
) -> None:
    a_legacy_save(tmp_path, *ranks, **sizes)

    found = latest(tmp_path, level=level).found

    assert found is not None
    assert (found.step, found.format) == (10, "megatron")


@pytest.mark.parametrize("lost", ["mp_rank_00_000", "mp_rank_01_001", "mp_rank_01_002"])
@pytest.mark.parametrize("level", VerifyLevel)
def test_a_missing_rank_is_named(tmp_path: Path, lost: str, level: VerifyLevel) -> None:
    ranks = [f"mp_rank_0{tp}_00{pp}" for tp in range(2) for pp in range(3)]
    folder = a_legacy_save(tmp_path, *ranks, tensor=2, pipeline=3)
    shutil.rmtree(folder / lost)

    assert refusal(folder, level=level) == f"{lost}: missing; 5 of 6 ranks are here (not all ranks saved)"


def test_a_rank_that_wrote_only_its_optimizer_is_named(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, "mp_rank_00", "mp_rank_01", tensor=2)
    (folder / "mp_rank_01" / "model_optim_rng.pt").unlink()

    assert refusal(folder) == "mp_rank_01/model_optim_rng.pt: missing (not all ranks saved)"


def test_an_optimizer_that_only_some_ranks_saved_is_named(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, "mp_rank_00", "mp_rank_01", tensor=2)
    (folder / "mp_rank_01" / "distrib_optim.pt").unlink()

    assert refusal(folder) == "mp_rank_01/distrib_optim.pt: missing"


def test_a_run_without_the_distributed_optimizer_holds(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, "mp_rank_00", tensor=1)
    (folder / "mp_rank_00" / "distrib_optim.pt").unlink()

    assert refusal(folder) == ""


def test_a_rank_of_another_iteration_is_named_by_a_full_check(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, *(f"mp_rank_0{rank}" for rank in range(3)), tensor=3)
    write_files(folder, "mp_rank_01/model_optim_rng.pt", state=a_rank_state(9, tensor=3))

    why = "mp_rank_01/model_optim_rng.pt: of iteration 9, the others of 10 (a shard of another save?)"
    assert refusal(folder) == why
    assert refusal(folder, level=VerifyLevel.QUICK) == ""


def test_a_save_of_another_iteration_under_this_name_is_refused(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, "mp_rank_00", tensor=1).rename(tmp_path / "iter_0000020")

    why = "mp_rank_00/model_optim_rng.pt: of iteration 10, in the folder of 20 (of another save?)"
    assert refusal(folder, level=VerifyLevel.QUICK) == why


def test_a_torn_archive_of_one_rank_is_refused(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, "mp_rank_00", "mp_rank_01", tensor=2)
    os.truncate(folder / "mp_rank_01" / "distrib_optim.pt", 100)

    assert refusal(folder, level=VerifyLevel.QUICK).startswith("mp_rank_01/distrib_optim.pt: no end of archive")


def test_the_root_may_be_one_iteration(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, "mp_rank_00", tensor=1)

    found = latest(folder).found

    assert found is not None
    assert (found.path, found.step) == (str(folder), 10)


def test_absurd_sizes_end_in_an_answer_at_once(tmp_path: Path) -> None:
    folder = a_legacy_save(tmp_path, "mp_rank_00_000", tensor=2**31, pipeline=2**31)

    assert "1 of 4,611,686,018,427,387,904 ranks" in refusal(folder)


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_megatron_core_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "megatron-dist", level=level).found

    assert found is not None
    assert (found.step, found.format) == (20, "megatron")


@pytest.mark.parametrize("name", [".metadata", "common.pt", "metadata.json", "__1_0.distcp"])
def test_a_dropped_file_of_torch_dist_is_named(real: Path, name: str) -> None:
    (real / "iter_0000020" / name).unlink()

    assert refusal(real / "iter_0000020", level=VerifyLevel.QUICK).startswith(f"{name}: missing")


def test_a_save_that_was_killed_at_the_start_is_not_finished(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "iter_0000020", "common.pt")

    assert refusal(folder) == "metadata.json: missing; it is written last (save not finished)"


def test_the_common_file_of_another_iteration_is_refused(real: Path) -> None:
    shutil.copy(real / "iter_0000010" / "common.pt", real / "iter_0000020" / "common.pt")

    assert refusal(real / "iter_0000020") == "common.pt: of iteration 10, in the folder of 20 (of another save?)"


@pytest.mark.parametrize("name", [".metadata", "common.pt", "metadata.json", "__0_0.distcp", "__1_0.distcp"])
def test_a_file_cut_anywhere_is_refused(real: Path, name: str) -> None:
    file = real / "iter_0000020" / name
    whole = file.read_bytes()
    held = []
    for length in [*range(0, len(whole), len(whole) // 20), len(whole) - 1]:
        file.write_bytes(whole[:length])
        if not refusal(file.parent, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


def test_a_backend_that_cannot_be_verified_is_said(real: Path) -> None:
    (real / "iter_0000020" / "metadata.json").write_text(json.dumps({"sharded_backend": "zarr"}))

    assert refusal(real / "iter_0000020") == "metadata.json: written by the backend 'zarr', which healthd cannot verify"


def test_the_weights_of_nemo_are_found_a_folder_deeper(real: Path) -> None:
    nemo = real.parent / "model--step=20"
    shutil.copytree(real / "iter_0000020", nemo / "weights")
    assert refusal(nemo) == ""
    (nemo / "weights" / "metadata.json").unlink()

    assert refusal(nemo) == "weights/metadata.json: missing; it is written last (save not finished)"


@pytest.mark.parametrize("content", [b"{}", b"not json", b"[" * 2_000_000, b""])
def test_the_metadata_of_other_tools_says_nothing(tmp_path: Path, content: bytes) -> None:
    folder = a_dcp_step(tmp_path, 10)
    (folder / "metadata.json").write_bytes(content)

    assert refusal(folder) == ""


def test_a_metadata_that_is_a_fifo_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "ckpt.pt").write_bytes(torch_zip_bytes())
    os.mkfifo(tmp_path / "metadata.json")

    assert refusal(tmp_path) == ""


def an_iteration(root: Path, number: int, *ranks: str, **sizes: int) -> Path:
    names = [f"{rank}/{name}" for rank in ranks for name in ("model_optim_rng.pt", "distrib_optim.pt")]
    return write_files(root / f"iter_{number:07}", *names, state=a_rank_state(number, **sizes))


BOTH = ("mp_rank_00", "mp_rank_01")


def test_a_step_with_fewer_ranks_than_those_before_it_is_refused(tmp_path: Path) -> None:
    an_iteration(tmp_path, 100, *BOTH)
    an_iteration(tmp_path, 200, *BOTH)
    an_iteration(tmp_path, 300, "mp_rank_00")

    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 200
    assert "1 of 2 ranks are here, by the files of iter_0000200" in answer.rejected[0].reason


def test_of_a_gang_that_was_made_smaller_the_third_step_is_believed(tmp_path: Path) -> None:
    an_iteration(tmp_path, 100, *BOTH)
    found = []
    for number in (200, 300, 400):
        an_iteration(tmp_path, number, "mp_rank_00")
        found.append(latest(tmp_path).found)

    assert [each and each.step for each in found] == [100, 100, 400]


def test_a_step_that_says_how_many_ranks_there_are_is_believed_at_once(tmp_path: Path) -> None:
    an_iteration(tmp_path, 100, *BOTH, tensor=2)
    an_iteration(tmp_path, 200, "mp_rank_00", tensor=1)

    found = latest(tmp_path).found

    assert found is not None
    assert found.step == 200


def test_more_ranks_than_before_are_no_reason(tmp_path: Path) -> None:
    an_iteration(tmp_path, 100, "mp_rank_00")
    an_iteration(tmp_path, 200, *BOTH)

    found = latest(tmp_path).found

    assert found is not None
    assert found.step == 200
