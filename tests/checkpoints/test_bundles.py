"""Files beside each other that are one checkpoint together."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checkpoints.bundles import bundles
from healthd.checkpoints.nested import nested
from healthd.checkpoints.steps import find
from tests.checkpoints.builders import torch_zip_bytes
from tests.checkpoints.damage import word


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["ckpt-5.index", "ckpt-5.data-00000-of-00001", "checkpoint"], ["ckpt-5"]),
        (["ckpt-5.data-00000-of-00001", "ckpt-6.index"], ["ckpt-5", "ckpt-6"]),
        (["model.ckpt-5.meta"], []),
        (["s10-rank1.pt", "s10-rank0.pt", "s20-rank0.pt"], ["s10-rank0.pt"]),
        (["s10_rank_3.pt", "s10_rank_2.pt"], ["s10_rank_2.pt"]),
        (["s10-rank0.pt", "s10-rank0.json"], []),
    ],
)
def test_names_report_what_belongs_together(names: list[str], expected: list[str]) -> None:
    assert sorted(bundles(names)) == expected


def test_a_torn_file_of_one_rank_is_not_hidden_by_another_rank(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"step10-rank{rank}.pt").write_bytes(torch_zip_bytes())

    assert word(tmp_path / "step10-rank0.pt") == ""
    (tmp_path / "step10-rank2.pt").write_bytes(b"PK")
    assert len(find(tmp_path)) == 1
    assert "step10-rank2.pt" in word(tmp_path)


def test_a_bundle_one_folder_below_is_reported(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for name in ("ckpt-5.index", "ckpt-5.data-00000-of-00001"):
        (tmp_path / "run" / name).touch()

    assert [(candidate.path.name, candidate.step) for candidate in nested(tmp_path)] == [("run", 5)]
