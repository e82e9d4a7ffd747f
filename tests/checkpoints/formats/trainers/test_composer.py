"""Checkpoints of MosaicML Composer under their default names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, torch_zip_bytes
from tests.checkpoints.damage import word


def a_state(*, batch: int = 10, world: int = 1, without: str = "") -> dict[str, object]:
    state = {"model": {"w": 1}, "optimizers": {"Adam": {}}, "timestamp": {"Timestamp": {"batch": batch}}}
    return {"state": {key: value for key, value in state.items() if key != without}, "rng": [{}] * world}


def a_save(folder: Path, *, ranks: int = 1, **options: object) -> Path:
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        state = a_state(**{"world": ranks, **options})  # type: ignore[arg-type] # the options of a_state
        (folder / f"ep0-ba10-rank{rank}.pt").write_bytes(torch_zip_bytes(state=state))
    return folder


def test_a_file_of_rank_0_holds(tmp_path: Path) -> None:
    found = latest(a_save(tmp_path)).found

    assert found is not None
    assert (found.step, found.format) == (10, "composer")


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "composer", level=level).found

    assert found is not None
    assert (found.step, found.format) == (4, "composer")


def test_a_real_file_under_the_name_of_another_batch_is_refused(tmp_path: Path) -> None:
    shutil.copy(REAL / "composer" / "ep0-ba2-rank0.pt", tmp_path / "ep0-ba4-rank0.pt")

    assert "of batch 2, under the name of 4" in word(tmp_path / "ep0-ba4-rank0.pt")


def test_the_random_states_of_other_ranks_do_not_ask_for_their_files(tmp_path: Path) -> None:
    assert word(a_save(tmp_path, world=8)) == ""


@pytest.mark.parametrize("folder", ["run", "ep0-ba10"])
def test_the_files_of_all_ranks_are_one_checkpoint(tmp_path: Path, folder: str) -> None:
    save = a_save(tmp_path / folder, ranks=4)

    assert word(save) == ""
    (save / "ep0-ba10-rank3.pt").unlink()
    assert "the file of rank 3 is missing; 3 of 4 are here" in word(save)


def test_without_the_file_of_rank_0_none_can_resume(tmp_path: Path) -> None:
    save = a_save(tmp_path / "ep0-ba10", ranks=3)
    (save / "ep0-ba10-rank0.pt").unlink()

    assert "rank 0 is missing" in word(save)


@pytest.mark.parametrize("part", ["model", "optimizers", "timestamp"])
def test_a_file_without_what_composer_resumes_from_is_refused(tmp_path: Path, part: str) -> None:
    assert f"without {part}" in word(a_save(tmp_path, without=part))


def test_a_file_of_another_batch_than_its_name_reports_is_refused(tmp_path: Path) -> None:
    assert "of batch 20, under the name of 10" in word(a_save(tmp_path, batch=20))


def test_a_torn_file_of_any_rank_is_refused(tmp_path: Path) -> None:
    save = a_save(tmp_path, ranks=3)
    (save / "ep0-ba10-rank2.pt").write_bytes((save / "ep0-ba10-rank2.pt").read_bytes()[:-9])

    assert "ep0-ba10-rank2.pt" in word(save)
