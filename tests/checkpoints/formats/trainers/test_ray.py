"""Folders of Ray Train: what Ray adds proves nothing, what the workers wrote does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from healthd.checkpoints.latest import Cache, VerifyLevel, latest
from tests.checkpoints.builders import REAL, refusal, torch_zip_bytes


@pytest.fixture
def step(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "checkpoint_000004"
    folder.mkdir(parents=True)
    (folder / ".metadata.json").write_text(json.dumps({"framework": "torch"}))
    (folder / "model.pt").write_bytes(torch_zip_bytes())
    return folder


def test_a_folder_with_what_a_worker_wrote_holds(step: Path) -> None:
    found = latest(step.parent).found

    assert found is not None
    assert (found.step, found.format) == (4, "torch_zip")


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_copied_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "ray", level=level).found

    assert found is not None
    assert found.step == 4


def test_what_a_worker_wrote_has_to_hold(step: Path) -> None:
    (step / "model.pt").write_bytes(torch_zip_bytes()[:-1])

    assert "model.pt" in refusal(step)


def test_metadata_alone_is_no_checkpoint(step: Path) -> None:
    (step / "model.pt").rename(step / "data.own")

    assert refusal(step) == "a checkpoint of Ray with nothing of a known format in it (data.own)"


def test_torn_metadata_is_refused(step: Path) -> None:
    (step / ".metadata.json").write_text('{"framework": "to')

    assert refusal(step) == ".metadata.json: not whole JSON (torn write)"


def test_of_names_with_a_time_the_latest_is_the_newest(tmp_path: Path) -> None:
    for name in ("checkpoint_2026-05-15_11-00-00.123456", "checkpoint_2026-05-15_11-09-00.123456"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.pt").write_bytes(torch_zip_bytes())

    found = latest(tmp_path).found

    assert found is not None
    assert found.path.endswith("11-09-00.123456")


def a_list(folder: Path, *names: str) -> None:
    results = [{"version": 0, "checkpoint_dir_name": name, "metrics": {}} for name in names]
    (folder / "checkpoint_manager_snapshot.json").write_text(json.dumps({"checkpoint_results": results}))


def test_a_folder_that_ray_has_not_noted_yet_is_not_finished(step: Path) -> None:
    (step / ".metadata.json").unlink()
    a_list(step.parent, "checkpoint_000002")

    assert refusal(step).startswith("not in checkpoint_manager_snapshot.json beside it")
    assert not latest(step.parent).rejected[0].unread, "it was read: no recovery waits for it"


def test_a_folder_that_ray_notes_later_holds_from_then_on(step: Path) -> None:
    cache = Cache()
    a_list(step.parent, "checkpoint_000002")
    before = latest(step.parent, cache=cache).found
    a_list(step.parent, "checkpoint_000002", "checkpoint_000004")

    found = latest(step.parent, cache=cache).found

    assert before is None
    assert found is not None


@pytest.mark.parametrize("content", ["", "{}", '{"checkpoint_results": 3}', "[" * 100_000])
def test_a_list_that_cannot_be_read_says_nothing(step: Path, content: str) -> None:
    (step.parent / "checkpoint_manager_snapshot.json").write_text(content)

    assert refusal(step) == ""
