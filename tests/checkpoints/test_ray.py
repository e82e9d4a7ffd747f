"""Folders of Ray Train: what Ray adds proves nothing, what the workers wrote does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from healthd.checkpoints.latest import Level, latest
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


@pytest.mark.parametrize("level", Level)
def test_what_the_real_library_copied_holds(level: Level) -> None:
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
