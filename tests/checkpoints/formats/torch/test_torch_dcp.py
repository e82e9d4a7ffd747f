"""Directories of torch.distributed.checkpoint: metadata read as data, every piece where it says."""

from __future__ import annotations

import io
import os
import pickle
import random
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from healthd.checkpoints.formats.torch.compressed_pieces import MOST_HELD, verify_compressed
from healthd.checkpoints.latest import VerifyLevel
from healthd.checkpoints.tree import Damaged, survey
from healthd.pickles.folding import SKIMMED
from tests.checkpoints.builders import REAL, a_dcp_step, an_object, data, dcp_metadata, refusal, torch_zip_bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

RANKS = [f"__{rank}_0.distcp" for rank in range(4)]


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of what four ranks of torch wrote."""
    return Path(shutil.copytree(REAL / "step-10-four-ranks", tmp_path / "step-10"))


@pytest.mark.parametrize("name", ["step-10-single", "step-10-four-ranks"])
@pytest.mark.parametrize("level", VerifyLevel)
def test_a_directory_of_the_real_library_holds(name: str, level: VerifyLevel) -> None:
    assert refusal(REAL / name, level=level) == ""


@pytest.mark.parametrize("name", RANKS)
def test_a_dropped_file_is_refused(real: Path, name: str) -> None:
    (real / name).unlink()

    assert refusal(real) == f"{name}: missing"


@pytest.mark.parametrize("name", RANKS)
def test_a_file_that_lacks_one_byte_is_refused_by_a_quick_check(real: Path, name: str) -> None:
    size = (real / name).stat().st_size
    os.truncate(real / name, size - 1)

    assert refusal(real, level=VerifyLevel.QUICK) == f"{name}: {size - 1:,} of {size:,} bytes (torn write)"


def test_without_metadata_the_save_was_not_finished(real: Path) -> None:
    (real / ".metadata").rename(real / ".metadata.tmp")

    assert refusal(real) == ".metadata: missing; it is written last (save not finished)"


@pytest.mark.slow
def test_of_very_many_pieces_each_is_looked_for(tmp_path: Path) -> None:
    step, piece, count = tmp_path / "step-10", torch_zip_bytes(), 6000
    step.mkdir()
    (step / "__0_0.distcp").write_bytes(piece * count)
    infos = {f"layer.{number}": ("__0_0.distcp", number * len(piece), len(piece)) for number in range(count)}
    (step / ".metadata").write_bytes(dcp_metadata(infos))
    assert (step / ".metadata").stat().st_size > SKIMMED
    assert refusal(step, level=VerifyLevel.QUICK) == ""

    os.truncate(step / "__0_0.distcp", len(piece) * count - 1)

    assert "torn write" in refusal(step, level=VerifyLevel.QUICK)


@pytest.mark.slow
def test_metadata_cut_anywhere_is_refused(real: Path) -> None:
    whole = (real / ".metadata").read_bytes()
    held = []
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        (real / ".metadata").write_bytes(whole[:length])
        if not refusal(real, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


def test_a_flipped_byte_in_a_tensor_is_refused(real: Path) -> None:
    file = real / "__2_0.distcp"
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(io.BytesIO(content[1577:])) as piece:
        tensor = next(piece.read(name) for name in piece.namelist() if name.endswith("/data/0"))
    content[content.index(tensor, 1577)] ^= 1
    file.write_bytes(content)

    assert refusal(real, level=VerifyLevel.QUICK) == ""
    assert refusal(real) == f"__2_0.distcp: the checksum of archive/data/0 does not match its {len(tensor)} bytes"


def test_a_zeroed_piece_is_refused(real: Path) -> None:
    file = real / "__1_0.distcp"
    file.write_bytes(bytes(file.stat().st_size))

    assert refusal(real) == "__1_0.distcp: zeros at byte 0, where a tensor should begin (torn write)"


def test_a_piece_without_its_beginning_is_refused(real: Path) -> None:
    file = real / "__1_0.distcp"
    content = file.read_bytes()
    file.write_bytes(content[:1577] + bytes(8) + content[1585:])

    assert refusal(real) == "__1_0.distcp: other bytes at byte 1,577, where a tensor should begin (torn write)"


def an_object_piece(folder: Path, content: bytes) -> Path:
    """A step with one object, as a learning rate is one, and a tensor behind it."""
    piece = torch_zip_bytes()
    (folder / "__0_0.distcp").write_bytes(content + piece)
    kinds = {"lr": "BytesStorageMetadata"}
    places = {"lr": ("__0_0.distcp", 0, len(content)), "w": ("__0_0.distcp", len(content), len(piece))}
    (folder / ".metadata").write_bytes(dcp_metadata(places, kinds))
    return folder


OBJECT = torch_zip_bytes(state={"lr": 0.1})


@pytest.mark.parametrize(
    "content", [OBJECT, pickle.dumps({"lr": 0.1}), b'{"lr": 0.1}', b""], ids=["archive", "pickle", "text", "nothing"]
)
def test_an_object_as_planners_write_it_holds(tmp_path: Path, content: bytes) -> None:
    assert refusal(an_object_piece(tmp_path, content)) == ""


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (bytes(len(OBJECT)), "zeros"),
        (bytes(64) + OBJECT[64:], "zeros"),
        (b"\xb7" * len(OBJECT), "other bytes"),
        (b"\x80\x02" + b"\xb7" * 100 + b".", "other bytes"),
        (pickle.dumps({"lr": 0.1})[:-4] + bytes(4), "other bytes"),
        (b'{"lr": ' + bytes(4), "other bytes"),
    ],
)
def test_a_damaged_object_is_refused(tmp_path: Path, content: bytes, what: str) -> None:
    folder = an_object_piece(tmp_path, content)

    assert refusal(folder) == f"__0_0.distcp: {what} at byte 0, where an object should begin (torn write)"
    assert refusal(folder, level=VerifyLevel.QUICK) == ""


@pytest.mark.parametrize("fill", [b"\0", b"\xb7"])
def test_every_block_of_the_real_library_s_objects_counts(tmp_path: Path, fill: bytes) -> None:
    """Among them is a learning rate."""
    real = Path(shutil.copytree(REAL / "step-10-single", tmp_path / "step-10"))
    whole = (real / "__0_0.distcp").read_bytes()
    held = []
    for at in range(0, len(whole), 512):
        (real / "__0_0.distcp").write_bytes((whole[:at] + fill * 512 + whole[at + 512 :])[: len(whole)])
        if not refusal(real):
            held.append(at)

    assert held == []


def a_compressed_piece(folder: Path, content: bytes, transform: str = "stream.zstd/1") -> Path:
    (folder / "__0_0.distcp").write_bytes(content)
    (folder / ".metadata").write_bytes(dcp_metadata({"w": ("__0_0.distcp", 0, len(content))}, transforms=[transform]))
    return folder


LARGE = torch_zip_bytes(random.Random(1).randbytes(MOST_HELD))
COMPRESSED = zstd.compress(OBJECT)
OPTIONS: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}


@pytest.mark.parametrize("content", [COMPRESSED, zstd.compress(LARGE), zstd.compress(OBJECT, options=OPTIONS)])
def test_a_compressed_piece_holds(tmp_path: Path, content: bytes) -> None:
    assert refusal(a_compressed_piece(tmp_path, content)) == ""


@pytest.mark.parametrize(
    "content",
    [
        COMPRESSED[:-1],
        COMPRESSED + b"\1",
        bytes(len(COMPRESSED)),
        b"\xb7" * 200,
        COMPRESSED[:20] + bytes(20) + COMPRESSED[40:],
        zstd.compress(OBJECT.replace(b"lr", b"Lr", 1)),
        zstd.compress(LARGE)[:-1],
        zstd.compress(b"no archive"),
    ],
)
def test_a_damaged_compressed_piece_is_refused(tmp_path: Path, content: bytes) -> None:
    assert refusal(a_compressed_piece(tmp_path, content)).startswith("__0_0.distcp: ")


def test_a_bomb_of_a_piece_is_refused_before_it_is_whole(tmp_path: Path) -> None:
    content = zstd.compress(torch_zip_bytes(bytes(8 << 20)))
    tree = survey(a_compressed_piece(tmp_path, content))

    with tree.open("__0_0.distcp") as file, pytest.raises(Damaged, match="when decompressed"):
        verify_compressed(file, "__0_0.distcp", 0, len(content), always=1 << 20)


def test_a_piece_that_was_transformed_in_an_unknown_way_is_taken_but_for_zeros(tmp_path: Path) -> None:
    assert refusal(a_compressed_piece(tmp_path, b"\xb7" * 200, "stream.rot13/1")) == ""
    assert "zeros at byte 0" in refusal(a_compressed_piece(tmp_path, bytes(200), "stream.rot13/1"))


def test_an_object_that_runs_code_is_read_as_data(tmp_path: Path) -> None:
    assert refusal(an_object_piece(tmp_path, pickle.dumps(Exploit()))) == ""
    assert not Path("/tmp/should-never-be-there").exists()


def test_metadata_that_names_a_tensor_has_to_place_it(real: Path) -> None:
    whole = (real / ".metadata").read_bytes()
    (real / ".metadata").write_bytes(whole.replace(b"optimizer.lr", b"optimizer.Lr", 1))

    assert refusal(real) == ".metadata: does not say where 'optimizer.Lr' is stored"


@pytest.mark.parametrize("place", range(3))
def test_a_key_that_does_not_stand_for_its_path_is_refused(real: Path, place: int) -> None:
    """The name of the optimizer's parts stands in keys of tensors, in paths and in places."""
    whole = (real / ".metadata").read_bytes()
    at = -1
    for _ in range(place + 1):
        at = whole.index(b"betas", at + 1)

    (real / ".metadata").write_bytes(whole[:at] + bytes(5) + whole[at + 5 :])

    assert refusal(real).startswith(".metadata: ")


def test_a_shard_of_another_save_is_seen_by_its_size(real: Path) -> None:
    shutil.copy(real / "__0_0.distcp", real / "__3_0.distcp")

    assert "__3_0.distcp: 1,577 of 5,676 bytes (torn write)" in refusal(real)


def test_a_handmade_directory_holds(tmp_path: Path) -> None:
    assert refusal(a_dcp_step(tmp_path, 10)) == ""


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", ""])
def test_metadata_that_leads_outside_is_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / ".metadata").write_bytes(dcp_metadata({"w": (path, 0, 8)}))

    assert "not inside the checkpoint" in refusal(tmp_path)


@pytest.mark.parametrize("place", [(-1, 8), (0, -8), (0, 2**70)])
def test_absurd_places_are_refused(tmp_path: Path, place: tuple[int, int]) -> None:
    folder = a_dcp_step(tmp_path, 10)
    (folder / ".metadata").write_bytes(dcp_metadata({"w": ("__0_0.distcp", *place)}))

    assert refusal(folder)


def test_pieces_that_share_bytes_are_refused(tmp_path: Path) -> None:
    folder = a_dcp_step(tmp_path, 10)
    (folder / ".metadata").write_bytes(dcp_metadata({f"w{n}": ("__0_0.distcp", n, 100) for n in range(3)}))

    assert refusal(folder) == "__0_0.distcp: two pieces share byte 1"


class Exploit:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("touch /tmp/should-never-be-there",)


def test_a_pickle_that_runs_code_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Exploit()))

    assert refusal(tmp_path) == f".metadata: asks for '{os.system.__module__}.system', which is not let through"


@pytest.mark.parametrize(
    "content", [data({}), data([1, 2]), an_object("torch", "Size", {}), data({"storage_data": {}})]
)
def test_other_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".metadata").write_bytes(b"\x80\x02" + content + b".")

    assert refusal(tmp_path).startswith(".metadata: ")


@pytest.fixture
def each_rank(tmp_path: Path) -> Path:
    """Two ranks saved without telling each other, so that each has metadata of its own."""
    return Path(shutil.copytree(REAL / "step-10-each-rank", tmp_path / "step-10"))


@pytest.mark.parametrize("level", VerifyLevel)
def test_metadata_of_each_rank_holds(each_rank: Path, level: VerifyLevel) -> None:
    assert refusal(each_rank, level=level) == ""


def test_a_rank_that_has_not_written_its_metadata_is_named(each_rank: Path) -> None:
    (each_rank / "__1.metadata").unlink()

    assert refusal(each_rank) == "__1.metadata: missing; it is written last (save not finished)"


def test_a_torn_file_of_a_rank_is_seen_by_its_own_metadata(each_rank: Path) -> None:
    os.truncate(each_rank / "__1_0.distcp", 2000)

    assert "__1_0.distcp: 2,000 of" in refusal(each_rank)
