"""Models of Keras: archives, and HDF5 with its structure."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path

import pytest

from healthd.checkpoints.encodings.hdf5 import lookup3
from healthd.checkpoints.latest import VerifyLevel, latest
from healthd.checkpoints.steps import find
from tests.checkpoints.builders import REAL
from tests.checkpoints.damage import held_when_cut, held_when_flipped, word

NAMES = ["epoch-20.keras", "epoch-20.weights.h5", "epoch-20-legacy.h5"]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL / "keras", tmp_path / "keras"))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(name: str, level: VerifyLevel) -> None:
    assert word(REAL / "keras" / name, level=level) == ""


def test_their_steps_are_identified_by_their_names(real: Path) -> None:
    assert [candidate.step for candidate in find(real)] == [20, 20, 20]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_cut_anywhere_is_refused_by_a_quick_check(real: Path, name: str) -> None:
    assert held_when_cut(real / name, real / name) == []


@pytest.mark.slow
def test_a_flipped_bit_in_the_weights_of_an_archive_is_refused(real: Path) -> None:
    file = real / "epoch-20.keras"
    begin = file.read_bytes().index(b"\x89HDF")

    assert [at for at in held_when_flipped(file, file, times=100) if begin <= at < begin + 18_000] == []


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (b"TREE", "no tree at byte"),
        (b"SNOD", "the members of a group should be"),
        (b"HEAP", "the names of a group should be"),
        (b"\x89HDF", "not a file of HDF5"),
    ],
)
def test_a_lost_part_of_the_structure_is_named(real: Path, signature: bytes, reason: str) -> None:
    file = real / "epoch-20.weights.h5"
    file.write_bytes(file.read_bytes().replace(signature, bytes(len(signature)), 1))

    assert reason in word(file)


def test_the_text_of_an_attribute_that_was_never_written_is_refused(real: Path) -> None:
    file = real / "epoch-20-legacy.h5"
    file.write_bytes(file.read_bytes().replace(b"GCOL", bytes(4), 1))

    assert "the text of an attribute" in word(file)


@pytest.mark.parametrize("missing", ["config.json", "model.weights.h5"])
def test_an_archive_without_a_part_is_refused(real: Path, missing: str) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(real / "epoch-20.keras") as whole, zipfile.ZipFile(content, "w") as archive:
        for name in whole.namelist():
            if name != missing:
                archive.writestr(name, whole.read(name))
    (real / "epoch-20.keras").write_bytes(content.getvalue())

    assert "without" in word(real / "epoch-20.keras")


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL / "keras-shards" / "step-20", tmp_path / "step-20"))


def test_sharded_weights_of_the_real_library_hold(shards: Path) -> None:
    assert word(shards) == ""


def test_a_shard_that_the_index_names_is_missed(shards: Path) -> None:
    (shards / "model_00001.weights.h5").unlink()

    assert word(shards) == "model_00001.weights.h5: missing"


def test_an_index_that_was_written_before_the_last_shards_is_not_finished(shards: Path) -> None:
    index = json.loads((shards / "model.weights.json").read_text())
    index["weight_map"] = {"/layers/dense/vars": "model_00000.weights.h5"}
    index["metadata"]["total_size"] = 1_000_000
    (shards / "model.weights.json").write_text(json.dumps(index))

    assert "counts 1,000,000 bytes, its 1 shards have" in word(shards)


def test_an_index_cut_anywhere_is_refused(shards: Path) -> None:
    assert held_when_cut(shards, shards / "model.weights.json") == []


def test_an_index_may_not_name_what_is_outside(shards: Path) -> None:
    index = (shards / "model.weights.json").read_text()
    (shards / "model.weights.json").write_text(index.replace("model_00001", "../model_00001"))

    assert "not inside the checkpoint" in word(shards)


def test_shards_of_several_steps_in_one_folder_are_found_by_their_indexes(shards: Path) -> None:
    for path in list(shards.iterdir()):
        path.rename(path.with_name(path.name.replace("model", "epoch_5")))
    (shards / "epoch_5.weights.json").write_text(
        (shards / "epoch_5.weights.json").read_text().replace("model", "epoch_5")
    )
    shards.rename(shards.with_name("run"))

    found = latest(shards.with_name("run"))

    assert found.rejected == ()
    assert found.found is not None
    assert (Path(found.found.path).name, found.found.step) == ("epoch_5.weights.json", 5)


def a_newer_file(*, flags: int = 0, end: int = 52) -> bytes:
    superblock = b"\x89HDF\r\n\x1a\n" + bytes([3, 8, 8, flags]) + struct.pack("<4Q", 0, 2**64 - 1, end, 48)
    return superblock + struct.pack("<I", lookup3(superblock)) + b"OHDR"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (a_newer_file(), ""),
        (a_newer_file(flags=1), "did not close it"),
        (a_newer_file(end=60), "52 of 60 bytes"),
        (a_newer_file()[:20] + b"\1" + a_newer_file()[21:], "checksum of its superblock"),
        (a_newer_file()[:48] + bytes(4), "no root group"),
        (bytes(200), "never written"),
        (b"\x89HDF\r\n\x1a\n" + bytes(200), "addresses of 0 bytes"),
    ],
)
def test_of_the_newer_layout_the_superblock_is_read(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "w.h5").write_bytes(content)

    answer = word(tmp_path / "w.h5")

    assert reason in answer
    assert bool(reason) == bool(answer)


def test_the_checksum_is_that_of_its_author() -> None:
    assert lookup3(b"Four score and seven years ago") == 0x17770551
