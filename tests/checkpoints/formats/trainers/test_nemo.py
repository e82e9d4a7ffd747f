"""NeMo's archives: a configuration, and weights that hold by their own formats."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, a_dcp_step, torch_zip_bytes
from tests.checkpoints.damage import held_when_cut, held_when_flipped, word

CONFIG = {"./model_config.yaml": b"name: small\n"}


def an_archive(folder: Path, files: Mapping[str, bytes], *, mode: Literal["w:", "w:gz"] = "w:") -> Path:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:
        for member, data in files.items():
            info = tarfile.TarInfo(member)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    (folder / "model-step=20.nemo").write_bytes(content.getvalue())
    return folder / "model-step=20.nemo"


@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(level: VerifyLevel) -> None:
    found = latest(REAL / "nemo", level=level).found

    assert found is not None
    assert (found.step, found.format) == (20, "nemo")


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return an_archive(tmp_path, {**CONFIG, "./model_weights.ckpt": torch_zip_bytes()})


@pytest.fixture
def distributed(tmp_path: Path) -> Path:
    a_dcp_step(tmp_path, 1).rename(tmp_path / "w")
    weights = {f"./model_weights/{file.name}": file.read_bytes() for file in (tmp_path / "w").iterdir()}
    return an_archive(tmp_path, {**CONFIG, **weights, "./" + "long" * 60 + ".txt": b"x"})


@pytest.mark.parametrize("kind", ["whole", "distributed"])
@pytest.mark.parametrize("level", VerifyLevel)
def test_an_archive_with_configuration_and_weights_holds(
    kind: str, level: VerifyLevel, request: pytest.FixtureRequest
) -> None:
    assert word(request.getfixturevalue(kind), level=level) == ""


def test_its_step_is_identified_by_its_name(whole: Path) -> None:
    found = latest(whole.parent).found

    assert found is not None
    assert found.step == 20


@pytest.mark.slow
def test_an_archive_cut_within_its_members_is_refused(whole: Path) -> None:
    end = whole.read_bytes().rindex(b"PK\5\6")

    assert [length for length in held_when_cut(whole, whole, times=100) if length < end] == []


@pytest.mark.slow
def test_a_flipped_bit_in_the_weights_is_refused(whole: Path) -> None:
    begin = whole.read_bytes().index(b"\1" * 64)
    held = held_when_flipped(whole, whole, times=2000)

    assert [at for at in held if begin <= at < begin + 64] == []


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"./model_weights.ckpt": torch_zip_bytes()}, "without model_config.yaml"),
        (CONFIG, "without weights"),
        ({**CONFIG, "../x.ckpt": torch_zip_bytes()}, "not inside the checkpoint"),
        ({**CONFIG, "w.ckpt": torch_zip_bytes()[:-1]}, "w.ckpt: "),
        ({**CONFIG, "w/__0_0.distcp": b"x"}, "written last"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, files: Mapping[str, bytes], reason: str) -> None:
    assert reason in word(an_archive(tmp_path, files))


def test_an_archive_that_is_compressed_as_a_whole_cannot_be_verified(tmp_path: Path) -> None:
    assert "cannot be verified" in word(an_archive(tmp_path, CONFIG, mode="w:gz"))


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    link = tarfile.TarInfo("w.ckpt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    (tmp_path / "m.nemo").write_bytes(link.tobuf() + bytes(1024))

    assert "a link or a device" in word(tmp_path / "m.nemo")


def test_a_header_that_was_lost_is_refused(whole: Path) -> None:
    whole.write_bytes(whole.read_bytes().replace(b"./model_weights", b"./modal_weights", 1))

    assert "no header of a member" in word(whole)
