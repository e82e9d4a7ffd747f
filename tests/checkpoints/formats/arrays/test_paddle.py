"""PaddlePaddle: pickles of arrays, which are never loaded."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from healthd.checkpoints.latest import latest
from healthd.checkpoints.steps import find
from tests.checkpoints.builders import REAL, data
from tests.checkpoints.damage import held_when_cut, word

BIG = 200_000


def an_array(shape: tuple[int, ...], kind: str, content: bytes) -> bytes:
    """Pickle instructions for an array as NumPy writes it, which need not be here."""
    dtype = b"cnumpy\ndtype\n" + data((kind, False, True)) + b"R" + data((3, "<", None, None, None, -1, -1, 0)) + b"b"
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + data((0,)) + b"B\1\0\0\0btR"
    return made + b"(" + data(1) + data(shape) + dtype + b"\x89B" + len(content).to_bytes(4, "little") + content + b"tb"


def a_state(**arrays: bytes) -> bytes:
    return b"\x80\x03}(" + b"".join(data(key) + array for key, array in arrays.items()) + b"u."


def a_save(folder: Path, epoch: int, *, w: bytes = b"") -> Path:
    folder.mkdir(exist_ok=True)
    w = w or an_array((BIG // 4,), "f4", bytes(range(256)) * (BIG // 256) + bytes(BIG % 256))
    (folder / f"epoch_{epoch}.pdparams").write_bytes(a_state(w=w, b=an_array((2, 2), "u2", b"12345678")))
    (folder / f"epoch_{epoch}.pdopt").write_bytes(a_state(m=an_array((1,), "f8", b"12345678"), lr=data({"step": 5})))
    return folder / f"epoch_{epoch}"


def test_what_the_real_library_wrote_holds() -> None:
    found = latest(REAL / "paddle").found

    assert found is not None
    assert (found.step, found.format) == (5, "paddle")


def test_model_and_optimizer_are_one_checkpoint(tmp_path: Path) -> None:
    a_save(tmp_path, 4)
    a_save(tmp_path, 5)

    found = latest(tmp_path).found

    assert [candidate.step for candidate in find(tmp_path)] == [5, 4]
    assert found is not None
    assert (Path(found.path).name, found.format) == ("epoch_5", "paddle")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".pdparams", ".pdopt"])
def test_a_file_cut_anywhere_is_refused_by_a_quick_check(tmp_path: Path, suffix: str) -> None:
    save = a_save(tmp_path, 5)

    assert held_when_cut(save, tmp_path / f"epoch_5{suffix}", times=60) == []


def test_an_optimizer_without_its_model_is_refused(tmp_path: Path) -> None:
    save = a_save(tmp_path, 5)
    (tmp_path / "epoch_5.pdparams").unlink()

    assert word(save) == "epoch_5.pdparams: missing"


def test_a_model_whose_optimizer_is_not_written_yet_is_not_finished(tmp_path: Path) -> None:
    for epoch in (4, 5):
        a_save(tmp_path, epoch)
    (tmp_path / "epoch_5.pdopt").unlink()

    answer = latest(tmp_path)

    assert answer.found is not None
    assert answer.found.step == 4
    assert [refused.reason for refused in answer.rejected] == ["not finished: no epoch_5.pdopt, which other steps have"]


def test_models_may_be_saved_without_any_optimizer(tmp_path: Path) -> None:
    for epoch in (4, 5):
        a_save(tmp_path, epoch)
        (tmp_path / f"epoch_{epoch}.pdopt").unlink()
    (tmp_path / "best.pdparams").write_bytes((tmp_path / "epoch_5.pdparams").read_bytes())

    found = latest(tmp_path).found

    assert found is not None
    assert found.step == 5


def test_in_a_folder_model_and_optimizer_may_have_names_of_their_own(tmp_path: Path) -> None:
    a_save(tmp_path / "checkpoint-5", 5)
    (tmp_path / "checkpoint-5" / "epoch_5.pdopt").rename(tmp_path / "checkpoint-5" / "optimizer.pdopt")

    assert word(tmp_path / "checkpoint-5") == ""
    (tmp_path / "checkpoint-5" / "epoch_5.pdparams").unlink()
    assert word(tmp_path / "checkpoint-5") == "optimizer.pdparams: missing"


@pytest.mark.parametrize(
    ("shape", "kind", "size"), [(3, "f4", 11), (3, "nonsense", 12), (-3, "f4", 12), (BIG, "f4", BIG)]
)
def test_an_array_that_is_not_its_type_times_shape_is_refused(tmp_path: Path, shape: int, kind: str, size: int) -> None:
    assert "'w': an array of" in word(a_save(tmp_path, 5, w=an_array((shape,), kind, bytes(size))))


def test_a_name_that_is_not_numpys_is_refused_and_reported(tmp_path: Path) -> None:
    (tmp_path / "epoch_5.pdparams").write_bytes(b"\x80\x03cos\nsystem\n" + data(("true",)) + b"R.")

    assert "asks for 'os.system'" in word(tmp_path / "epoch_5")


@pytest.mark.parametrize("content", [b"", bytes(100), pickle.dumps([1]), b"\x80\x04\x8e" + b"\xff" * 8, b"cno line"])
def test_what_is_no_state_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "epoch_5.pdparams").write_bytes(content)

    reason = word(tmp_path / "epoch_5")

    assert reason.startswith("epoch_5.pdparams: ")
    assert "fault of healthd" not in reason
