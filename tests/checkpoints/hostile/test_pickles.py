"""Pickles that would take memory, or hours, if they were read as they ask."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.checkpoints.builders import an_object, data, dcp_metadata, torch_zip_bytes
from tests.checkpoints.judge import FAULT, Judge

pytestmark = pytest.mark.slow

MB = 1 << 20
DCP = "torch.distributed.checkpoint"
PROTOCOL = b"\x80\x04"
FALLS_TOGETHER = (1 << 61) - 1
"""All its multiples have the same hash."""


def a_text(size: int, letter: str = "m") -> bytes:
    return b"X" + struct.pack("<I", size) + letter.encode() + b"m" * (size - len(letter.encode()))


def numbers_that_fall_together(count: int) -> bytes:
    return b"N".join(b"\x8a\x0b" + (FALLS_TOGETHER * n).to_bytes(11, "little") for n in range(1, count)) + b"N"


def laughing(levels: int) -> bytes:
    """Each tuple holds the one before it twice: 2 to the levels values, in a few bytes."""
    return b"N" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(levels))


HOSTILE: dict[str, Callable[[], bytes]] = {
    "sets": lambda: b"(" + b"\x8f" * 3_900_000 + b"t.",
    "dictionaries": lambda: b"(" + b"}" * 3_900_000 + b"t.",
    "lists": lambda: b"(" + b"]Na" * 1_300_000 + b"t.",
    "tuples": lambda: b"N" + b"\x85" * 3_900_000 + b".",
    "marks": lambda: b"(" * 3_900_000 + b".",
    "objects": lambda: b"ca\nb\nq\0(" + b"h\0)R" * 900_000 + b"t.",
    "objects in each other": lambda: b"ca\nb\nq\0(" + b"h\0" * 1000 + b"N" + b"\x85R" * 1000 + b"t.",
    "names": lambda: a_text(4 * MB) + b"q\0(" + b"h\0h\0\x93" * 1000 + b"t.",
    "keys that fall together": lambda: b"}(" + numbers_that_fall_together(300_000) + b"u.",
    "members that fall together": lambda: b"\x8f(" + numbers_that_fall_together(300_000).replace(b"N", b"") + b"\x90.",
    "a number of a thousand bytes": lambda: (
        b"}(" + a_text(12) + b"\x8b" + struct.pack("<I", 1000) + b"\x7f" * 1000 + b"u."
    ),
    "a number beyond all reals": lambda: b"}(" + data("global_steps") + b"\x8a\xff" + b"\x7f" * 255 + b"u.",
    "a frame without end": lambda: b"\x95" + b"\xff" * 8 + b".",
    "wide letters": lambda: b"(" + a_text(15 * MB, "\U0001f525") + b"t.",
    "laughing": lambda: laughing(60) + b".",
    "a laughing key": lambda: b"}(" + laughing(60) + b"Nu.",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_state_that_asks_for_too_much_is_unknown_and_no_fault(judge: Judge, tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "mp_rank_00_model_states.pt", "w") as archive:
        archive.writestr("archive/data.pkl", PROTOCOL + HOSTILE[name]())
        archive.writestr("archive/data/0", b"1" * 64)

    assert judge.verify(tmp_path).reason == ""


@pytest.mark.slow
def test_of_many_such_states_one_is_read_at_a_time(judge: Judge, tmp_path: Path) -> None:
    for rank in range(8):
        with zipfile.ZipFile(tmp_path / f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt", "w") as archive:
            archive.writestr("archive/data.pkl", PROTOCOL + HOSTILE["dictionaries"]())

    assert judge.verify(tmp_path).reason == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HOSTILE.keys() - {"a number beyond all reals"}))
def test_such_a_pickle_of_paddle_is_refused(judge: Judge, tmp_path: Path, name: str) -> None:
    (tmp_path / "epoch_1.pdparams").write_bytes(PROTOCOL + HOSTILE[name]())
    reason = judge.verify(tmp_path).reason

    assert reason.startswith("epoch_1.pdparams: ")


def a_paddle_array(shape: bytes) -> bytes:
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\0tC\1btR"
    kind = b"cnumpy\ndtype\n(X\2\0\0\0f4\x89\x88tR(K\3X\1\0\0\0<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
    return b"}(" + a_text(1) + array + b"(K\1" + shape + kind + b"\x89C\4abcdtbu."


@pytest.mark.parametrize("shape", [laughing(60), b"(" + b"\x8a\x09" + b"\x7f" * 9 + b"t", b"(" + b"K\1" * 100 + b"t"])
def test_a_shape_that_cannot_be_is_not_written_out(judge: Judge, tmp_path: Path, shape: bytes) -> None:
    (tmp_path / "epoch_1.pdparams").write_bytes(PROTOCOL + a_paddle_array(shape))

    assert "with a shape that cannot be" in judge.verify(tmp_path).reason


@pytest.fixture(scope="module")
def roomy() -> Iterator[Judge]:
    """The metadata of a large run takes some hundred megabytes when it is whole; a verifier pod has so much."""
    with Judge(memory=560 * MB) as process:
        yield process


def a_piece(name: bytes) -> bytes:
    """Metadata with one piece, which has this name."""
    info = an_object(f"{DCP}.filesystem", "_StorageInfo", {"relative_path": "__0_0.distcp", "offset": 0, "length": 5})
    index = an_object(f"{DCP}.metadata", "MetadataIndex", {}, more=[("fqn", name)])
    stored = [("storage_data", b"}(" + index + info + b"u")]
    return an_object(f"{DCP}.metadata", "Metadata", {"state_dict_metadata": {}}, more=stored) + b"."


def a_kind(key: bytes) -> bytes:
    kind = an_object(f"{DCP}.metadata", "BytesStorageMetadata", {})
    more = [("state_dict_metadata", b"}(" + key + kind + b"u"), ("storage_data", b"}(" + key + kind + b"u")]
    return an_object(f"{DCP}.metadata", "Metadata", {}, more=more) + b"."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (lambda: b"(" + b"\x8f" * 10_000_000 + b"t.", "more memory"),
        (lambda: b"(" + b"}" * 15_000_000 + b"t.", "more memory"),
        (lambda: b"N0" * 12_000_000 + b"N.", ".metadata: "),
        (lambda: a_piece(laughing(60)), "a piece without a name"),
        (lambda: a_piece(b"\x8b" + struct.pack("<I", 100_000) + b"\x7f" * 100_000), "a number of 100,000 bytes"),
        (lambda: a_kind(b"(" + a_text(MB) + b"q\1" + b"h\1" * 2000 + b"t"), ".metadata: "),
        (lambda: dcp_metadata({"a": ("__0_0.distcp", 10**900, 10)}), "a piece without"),
        (lambda: dcp_metadata({"a": ("__0_0.distcp", 0, 10**900)}), "a piece without"),
        (lambda: dcp_metadata({"a": ("__0_0.distcp", 0, 10**9000)}), "a number of"),
    ],
    ids=range(9),
)
def test_hostile_metadata_is_refused_soon(
    roomy: Judge, tmp_path: Path, content: Callable[[], bytes], reported: str
) -> None:
    raw = content()
    (tmp_path / ".metadata").write_bytes(raw if raw.startswith(b"\x80") else PROTOCOL + raw)
    (tmp_path / "__0_0.distcp").write_bytes(torch_zip_bytes())

    assert reported in roomy.verify(tmp_path).reason


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr':'<f4','fortran_order':False,'shape':(" + b"9" * 3000 + b"," + b"9" * 3000 + b",)}",
        b"{'descr':'<f4','fortran_order':False,'shape':(" + b"9" * 5000 + b",)}",
        b"{'descr':'<f4','fortran_order':False,'shape':(" + b"9" * 18 + b"," + b"9" * 18 + b",)}",
        b"{'descr':'<f4','fortran_order':False,'shape':(" + b"-" * 9000 + b"1,)}",
        b"{'descr':'<f4','fortran_order':False,'shape':(9**9**9,)}",
        b"{'descr':__import__('os').system('id'),'fortran_order':False,'shape':(1,)}",
        b"{'descr':" + b"[" * 90 + b"('a','<f4')" + b"]" * 90 + b",'fortran_order':False,'shape':(1,)}",
        b"(" * 9000,
    ],
    ids=range(8),
)
def test_a_hostile_header_of_numpy_is_refused_soon(judge: Judge, tmp_path: Path, header: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + b"1234")
    reason = judge.verify(tmp_path).reason

    assert reason.startswith("a.npy: ")
    assert FAULT not in reason
