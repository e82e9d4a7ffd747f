"""Ranks that did not save, missed only beside other steps: whatever the format."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checkpoints.latest import latest
from tests.checkpoints.builders import a_sharded_step, torch_zip_bytes

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


def written(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(torch_zip_bytes())
    return root


FILES = [
    pytest.param("epoch_{step}/model.pt", "epoch_{step}/optim.pt", id="in folders"),
    pytest.param("model_{step}.pt", "optim_{step}.pt", id="beside each other"),
    pytest.param("model_step_{step}.pt", "optimizer_step_{step}.pt", id="both with the word of a step"),
    pytest.param("checkpoint_{step}.pt", "checkpoint_{step}_optim.pt", id="a word after the step"),
]


@pytest.mark.parametrize(("model", "optimizer"), FILES)
def test_a_model_is_refused_without_the_optimizer_that_both_steps_before_have(
    tmp_path: Path, model: str, optimizer: str
) -> None:
    for step in (9, 10):
        written(tmp_path, model.format(step=step), optimizer.format(step=step))
    written(tmp_path, model.format(step=11))

    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 10
    assert "which both steps before have" in answer.rejected[0].reason


def test_shards_are_refused_without_the_index_that_both_steps_before_have(tmp_path: Path) -> None:
    for step in (9, 10):
        a_sharded_step(tmp_path, step)
    a_sharded_step(tmp_path, 11, index=False)

    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 10
    assert "model.safetensors.index.json" in answer.rejected[0].reason


@pytest.mark.parametrize(("model", "optimizer"), FILES)
def test_an_optimizer_without_its_model_is_never_the_checkpoint(tmp_path: Path, model: str, optimizer: str) -> None:
    for step in (9, 10):
        written(tmp_path, model.format(step=step), optimizer.format(step=step))
    written(tmp_path, optimizer.format(step=11))

    found = latest(tmp_path).found

    assert found is not None
    assert found.step == 10
    assert "optim" not in Path(found.path).name


@pytest.mark.parametrize(("model", "optimizer"), FILES)
@pytest.mark.parametrize("with_optimizer", [[1], [2], [2, 4, 6], [1, 2, 3, 4]], ids=str)
def test_an_optimizer_that_is_not_always_saved_is_not_missed(
    tmp_path: Path, model: str, optimizer: str, with_optimizer: list[int]
) -> None:
    """Only at the first step, only once, every second time, and not any more."""
    newest = max(with_optimizer) + (2 if len(with_optimizer) == 4 else 1)
    for step in range(1, newest + 1):
        written(tmp_path, model.format(step=step))
        if step in with_optimizer:
            written(tmp_path, optimizer.format(step=step))

    found = latest(tmp_path).found

    assert found is not None
    assert found.step == newest


def test_a_best_model_that_both_steps_before_have_is_not_missed(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        written(tmp_path, f"epoch_{step}/model.pt", f"epoch_{step}/optim.pt")
    written(tmp_path, "epoch_1/best.pt", "epoch_2/best.pt", "epoch_1/best_model.pt", "epoch_2/best_model.pt")

    found = latest(tmp_path).found

    assert found is not None
    assert found.step == 3


def test_a_torn_optimizer_beside_its_model_is_seen(tmp_path: Path) -> None:
    written(tmp_path, "model_1.pt", "optim_1.pt", "model_2.pt", "optim_2.pt")
    (tmp_path / "optim_2.pt").write_bytes(b"PK")

    found = latest(tmp_path).found

    assert found is not None
    assert Path(found.path).name == "model_1.pt"
