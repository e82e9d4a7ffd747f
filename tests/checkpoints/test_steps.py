"""Steps are told by names alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from healthd.checkpoints.nested import MOST_FOLDERS, nested
from healthd.checkpoints.step_names import parse_step
from healthd.checkpoints.steps import UNKNOWN_STEP, find, newest_step, steps


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-10", 10),
        ("step_00010", 10),
        ("checkpoint-500", 500),
        ("checkpoint-500-best", 500),
        ("global_step10", 10),
        ("iter_0000010", 10),
        ("0000500", 500),
        ("10", 10),
        ("epoch_3", 3),
        ("model-10.safetensors", 10),
        ("ckpt-10.pt", 10),
        ("weights_10.pt", 10),
        ("state_10.pt", 10),
        ("epoch=1-step=500.ckpt", 500),
        ("ep1-ba200-rank0.pt", 200),
    ],
)
def test_names_of_common_trainers_report_their_step(name: str, step: int) -> None:
    assert parse_step(name) == step


@pytest.mark.parametrize(
    "name",
    [
        "latest",
        "model-00001-of-00004.safetensors",
        "rng_state_0.pth",
        "version_0",
        "2024-05-01",
        "events.out.tfevents.12",
        "run2",
        "model_70b",
        "step-10\n",
        "step-١٠",
        "step-" + "9" * 19,
    ],
)
def test_other_names_report_none(name: str) -> None:
    assert parse_step(name) is None


def test_newest_is_by_number_not_by_time(tmp_path: Path) -> None:
    for age, name in enumerate(["step-9", "step-100", "step-20"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))

    assert [candidate.step for candidate in steps(tmp_path)] == [100, 20, 9]
    assert newest_step(tmp_path) == 100


@pytest.mark.parametrize(
    "name",
    [
        "step-30.tmp",
        "step-30.tmp-8341",
        ".step-30",
        "tmp-checkpoint-30",
        "step-30.partial",
        "30.orbax-checkpoint-tmp-17",
        "step-30-unfinished",
        "step-30~",
    ],
)
def test_temporary_names_are_no_candidates_but_are_reported(tmp_path: Path, name: str) -> None:
    (tmp_path / "step-20").mkdir()
    (tmp_path / name).mkdir()

    assert [candidate.step for candidate in steps(tmp_path)] == [20]
    assert [(c.step, c.unfinished) for c in find(tmp_path)] == [(30, "not finished: temporary name"), (20, "")]


def test_a_sibling_that_says_unfinished_is_believed(tmp_path: Path) -> None:
    (tmp_path / "step-30").mkdir()
    (tmp_path / "step-30-unfinished").touch()

    assert steps(tmp_path) == []


def test_a_file_counts_only_when_a_format_owns_it(tmp_path: Path) -> None:
    for name in ["ckpt-10.pt", "step-20.json", "step-30.log"]:
        (tmp_path / name).touch()

    assert [candidate.path.name for candidate in steps(tmp_path)] == ["ckpt-10.pt"]


def test_text_pointers_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "global_step10").mkdir()
    (tmp_path / "latest").write_text("global_step99")

    assert newest_step(tmp_path) == 10


def test_one_checkpoint_may_be_named_itself(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-500" / "global_step500").mkdir(parents=True)
    (tmp_path / "checkpoint-500" / "model_1.safetensors").touch()
    (tmp_path / "final").mkdir()
    (tmp_path / "final" / "model.safetensors").touch()

    assert [c.step for c in steps(tmp_path / "checkpoint-500")] == [500]
    assert [(c.path.name, c.step) for c in steps(tmp_path / "final")] == [("model.safetensors", UNKNOWN_STEP)]
    assert newest_step(tmp_path / "final") is None


def test_a_root_that_is_not_there_yet_has_no_steps(tmp_path: Path) -> None:
    assert steps(tmp_path / "later") == []
    assert newest_step(tmp_path / "later") is None


def test_a_root_with_logs_alone_has_no_steps(tmp_path: Path) -> None:
    (tmp_path / "train.log").touch()

    assert steps(tmp_path) == []


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


@pytest.mark.parametrize("name", ["ckpt.pt", "checkpoint_latest.pt", "model.safetensors", "last.ckpt"])
@pytest.mark.parametrize("beside", ["train.log", "ckpt.pt.tmp", ".ckpt.pt", "logs/events"])
def test_the_only_file_stands_for_the_directory(tmp_path: Path, name: str, beside: str) -> None:
    found = steps(fill(tmp_path, name, beside))

    assert [(candidate.path, candidate.step) for candidate in found] == [(tmp_path / name, UNKNOWN_STEP)]


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors", "optimizer.pt"],
        ["model.safetensors", "config.json"],
        ["model.safetensors.index.json"],
        ["model-00001-of-00002.safetensors"],
        ["__0_0.distcp"],
        [".metadata"],
        ["ckpt.pt/part"],
    ],
)
def test_what_does_not_load_as_one_file_stays_a_directory(tmp_path: Path, names: list[str]) -> None:
    assert [candidate.path for candidate in steps(fill(tmp_path, *names))] == [tmp_path]


def test_the_only_file_of_a_step_stays_that_step(tmp_path: Path) -> None:
    root = fill(tmp_path / "checkpoint-500", "model.safetensors")

    assert [(candidate.path, candidate.step) for candidate in steps(root)] == [(root, 500)]


def test_a_link_to_the_latest_beside_the_steps_is_only_a_hint(tmp_path: Path) -> None:
    fill(tmp_path, "step-10.pt", "step-20.pt")
    (tmp_path / "latest.pt").symlink_to("step-20.pt")

    assert [candidate.path.name for candidate in steps(tmp_path)] == ["step-20.pt", "step-10.pt"]


@pytest.mark.parametrize(
    ("file", "folder", "step"),
    [
        ("run1/checkpoint-100/model.safetensors", "run1", 100),
        ("run1/ckpt.pt", "run1", UNKNOWN_STEP),
        ("version_0/checkpoints/epoch=1-step=500.ckpt", "version_0/checkpoints", 500),
        ("lightning_logs/version_0/checkpoints/epoch=1-step=500.ckpt", "lightning_logs/version_0/checkpoints", 500),
    ],
)
def test_folders_that_hold_checkpoints_are_found_below(tmp_path: Path, file: str, folder: str, step: int) -> None:
    found = nested(fill(tmp_path, file))

    assert [(candidate.path, candidate.step) for candidate in found] == [(tmp_path / folder, step)]


@pytest.mark.parametrize(
    "file",
    ["images/0001/cat.png", "run1/train.log", ".cache/hub/ckpt.pt", "a/b/c/d/ckpt-10.pt", "run1/step-10.tmp/ckpt.pt"],
)
def test_folders_without_a_checkpoint_are_not_reported(tmp_path: Path, file: str) -> None:
    assert nested(fill(tmp_path, file)) == []


def test_the_search_below_has_a_bound(tmp_path: Path) -> None:
    for number in range(MOST_FOLDERS):
        (tmp_path / f"a{number}").mkdir()
    fill(tmp_path, "b/ckpt-10.pt")

    assert nested(tmp_path) == []


def test_the_search_below_follows_no_link(tmp_path: Path) -> None:
    fill(tmp_path, "elsewhere/ckpt-10.pt")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "run").symlink_to(tmp_path / "elsewhere")

    assert nested(tmp_path / "root") == []
