"""Files that may be checkpoints are named to a person, and never taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checkpoints.latest import latest
from healthd.checkpoints.lookalikes import MOST_NAMES, lookalike
from healthd.checkpoints.steps import find


def fill(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).touch()
    return root


@pytest.mark.parametrize("pattern", ["snap-{}.dat", "run1_{}_w.weights", "snap-{}.dat.zst", "llama 7b {}"])
def test_a_row_of_numbered_files_is_named_and_never_taken(tmp_path: Path, pattern: str) -> None:
    fill(tmp_path, "train.log", *(pattern.format(step) for step in (900, 1000, 1100)))

    seen = lookalike(tmp_path)

    assert seen is not None
    assert seen.path == tmp_path / pattern.format(1100)
    assert "and 2 more numbered files" in seen.unfinished
    assert find(tmp_path) == []
    assert latest(tmp_path).rejected == ()


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["snap-10.dat"],
        ["snap-10.dat", "other-20.dat"],
        ["tokens-0.dat", "tokens-1.dat", "tokens-2.dat"],
        ["tokens_part_3.dat", "tokens_part_7.dat"],
        ["sample-10.png", "sample-20.png"],
        ["loss-10.csv", "loss-20.csv"],
        ["shard-10.tfrecord", "shard-20.tfrecord"],
        ["snap-10.dat.tmp", "snap-20.dat.tmp"],
        ["ada102.dat", "ada205.dat"],
        [f"tokens-{number}.dat" for number in range(0, 10 * MOST_NAMES + 10, 10)],
    ],
)
def test_data_logs_and_pictures_are_not_named(tmp_path: Path, names: list[str]) -> None:
    assert lookalike(fill(tmp_path, *names)) is None


def test_numbered_folders_are_not_named(tmp_path: Path) -> None:
    for step in (10, 20):
        (tmp_path / f"images-{step}").mkdir()

    assert lookalike(tmp_path) is None
