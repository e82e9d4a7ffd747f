"""States of Flax in MessagePack."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, refusal, torch_zip_bytes
from tests.checkpoints.damage import held_when_cut

encode = msgspec.msgpack.encode


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copy(REAL / "flax" / "checkpoint_20", tmp_path))


def an_array(shape: object, dtype: object, data: object, *, code: int = 1) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, encode((shape, dtype, data)))


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "flax", level=level).found

    assert found is not None
    assert (found.step, found.format) == (20, "flax")


@pytest.mark.slow
def test_a_file_cut_anywhere_is_refused_by_a_quick_check(real: Path) -> None:
    assert held_when_cut(real, real, times=len(real.read_bytes())) == []


def test_a_file_that_goes_on_is_refused(real: Path) -> None:
    real.write_bytes(real.read_bytes() + b"\0")

    assert "where its one value ends" in refusal(real)


@pytest.mark.parametrize(
    "array",
    [
        an_array([2, 3], "float32", bytes(23)),
        an_array([2, -3], "float32", bytes(24)),
        an_array([2, 3], "float31", bytes(24)),
        an_array([2, 3], b"float32", bytes(24)),
        an_array("23", "float32", bytes(24)),
        an_array([2, 3], "float32", "x" * 24),
        msgspec.msgpack.Ext(1, b"\xc0"),
    ],
)
def test_an_array_that_is_not_its_type_times_shape_is_refused(tmp_path: Path, array: object) -> None:
    (tmp_path / "state.msgpack").write_bytes(encode({"w": array}))

    assert "array" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty file"),
        (b"\xdd\xff\xff\xff\xff", "more than there can be"),
        (b"\xc1", "no MessagePack"),
        (b"\x91" * 100_000, "more than there can be"),
        (b"\x81\x01\x02", "a key that is no text"),
        (b"\x81\xa1\xff\x02", "a text that is none"),
        (b"\x01", "it has no names"),
        (bytes(64), "where its one value ends"),
        (b"\x81\xa1w\xc6\xff\xff\xff\xff", "torn write"),
    ],
)
def test_what_is_no_state_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "state.msgpack").write_bytes(content)

    assert reason in refusal(tmp_path)


def test_a_checkpoint_without_suffix_of_another_kind_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_5").write_bytes(torch_zip_bytes())

    assert "no known checkpoint format" in refusal(tmp_path / "checkpoint_5")


def test_what_orbax_wrote_into_one_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(encode({"step": 5, "w": b"weights"})[:-1])

    assert refusal(tmp_path).startswith("checkpoint: ")
