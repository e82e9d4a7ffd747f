"""Ranks that did not save, missed only beside other steps: whatever the format."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checkpoints.latest import latest
from tests.checkpoints.builders import torch_zip_bytes

LAYOUTS = [
    pytest.param("step_{step}/model_rank{rank}.pt", "", id="files of ranks in folders"),
    pytest.param("step_{step}_rank{rank}.pt", "", id="files of ranks beside each other"),
    pytest.param("step_{step}/optim/{rank}.dat", '{files: ["optim/{rank}.dat"]}', id="a declared layout"),
    pytest.param("step_{step}/rank_{rank}/model.pt", "", id="folders of ranks"),
]


def saved(root: Path, layout: str, step: int, ranks: int) -> None:
    for rank in range(ranks):
        path = root / layout.format(step=step, rank=rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(torch_zip_bytes())


@pytest.mark.parametrize(("layout", "declared"), LAYOUTS)
@pytest.mark.parametrize("left", [1, 3])
def test_a_step_with_fewer_ranks_is_refused(tmp_path: Path, layout: str, declared: str, left: int) -> None:
    saved(tmp_path, layout, 100, 4)
    saved(tmp_path, layout, 200, 4)
    saved(tmp_path, layout, 300, left)

    answer = latest(tmp_path, format=declared)

    assert answer.found is not None
    assert answer.found.step == 200
    assert f"{left} of 4 ranks are here" in answer.rejected[0].reason


@pytest.mark.parametrize(("layout", "declared"), LAYOUTS)
def test_alone_it_is_believed(tmp_path: Path, layout: str, declared: str) -> None:
    saved(tmp_path, layout, 300, 1)

    found = latest(tmp_path, format=declared).found

    assert found is not None
    assert found.step == 300


def test_with_a_declared_number_of_ranks_others_do_not_count(tmp_path: Path) -> None:
    layout = "step_{step}/optim/{rank}.dat"
    saved(tmp_path, layout, 100, 4)
    saved(tmp_path, layout, 200, 2)

    found = latest(tmp_path, format='{files: ["optim/{rank}.dat"], ranks: 2}').found

    assert found is not None
    assert found.step == 200
