"""Archives and arrays of NumPy."""

from __future__ import annotations

import io
import shutil
import struct
import zipfile
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel, latest
from tests.checkpoints.builders import REAL, refusal
from tests.checkpoints.damage import held_when_cut, held_when_flipped


@pytest.fixture
def real(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL / "numpy", tmp_path / "numpy"))


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    return Path(shutil.copytree(REAL / "numpy-arrays" / "step-20", tmp_path / "step-20"))


def npy(header: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + data


@pytest.mark.parametrize("run", ["numpy", "numpy-arrays"])
@pytest.mark.parametrize("level", VerifyLevel)
def test_what_the_real_library_wrote_holds(run: str, level: VerifyLevel) -> None:
    found = latest(REAL / run, level=level).found

    assert found is not None
    assert (found.step, found.format) == (20, "numpy")


@pytest.mark.parametrize("name", ["step-10.npz", "step-20.npz"])
def test_an_archive_cut_anywhere_is_refused_by_a_quick_check(real: Path, name: str) -> None:
    assert held_when_cut(real / name, real / name) == []


@pytest.mark.parametrize("name", ["dense.kernel.npy", "name.npy", "step.npy"])
def test_an_array_cut_anywhere_is_refused_by_a_quick_check(arrays: Path, name: str) -> None:
    assert held_when_cut(arrays, arrays / name) == []


def test_a_flipped_bit_in_a_deflated_array_is_refused(real: Path) -> None:
    whole = (real / "step-20.npz").read_bytes()
    at = whole.index(b"kernel.npy") + 60
    (real / "step-20.npz").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

    assert "dense/kernel.npy" in refusal(real / "step-20.npz")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["step-10.npz", "step-20.npz"])
def test_a_flipped_bit_anywhere_in_an_array_is_refused(real: Path, name: str) -> None:
    held = held_when_flipped(real / name, real / name, times=400)
    with zipfile.ZipFile(real / name) as archive:
        inside = [
            (info.header_offset + 80, info.header_offset + 80 + info.compress_size - 30) for info in archive.filelist
        ]

    assert [at for at in held if any(begin <= at < end for begin, end in inside)] == []


def test_a_bomb_is_refused_by_what_it_claims(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}", bytes(16)))
    raw = content.getvalue()
    at = raw.index(b"PK\1\2") + 24
    (tmp_path / "step-1.npz").write_bytes(raw[:at] + struct.pack("<I", 0xF0000000) + raw[at + 4 :])

    assert "many times its" in refusal(tmp_path / "step-1.npz")


def test_a_member_that_inflates_to_more_than_it_says_is_refused(tmp_path: Path) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w.npy", bytes(8 << 20))
    raw = content.getvalue()
    at = raw.index(b"PK\1\2") + 24
    (tmp_path / "step-1.npz").write_bytes(raw[:at] + struct.pack("<I", 100) + raw[at + 4 :])

    assert "does not match its 100 bytes" in refusal(tmp_path / "step-1.npz")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4, -1)}",
        "{'descr': 'nonsense', 'fortran_order': False, 'shape': (4,)}",
        "{'descr': '<f4', 'shape': (4,)}",
        "(" * 5000,
        "__import__('os')",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999,)}",
    ],
)
def test_an_absurd_header_is_refused(tmp_path: Path, header: str) -> None:
    (tmp_path / "w.npy").write_bytes(npy(header, bytes(16)))

    assert refusal(tmp_path).startswith("w.npy: ")


def test_objects_cannot_be_verified_in_an_array_alone(tmp_path: Path) -> None:
    (tmp_path / "w.npy").write_bytes(npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}", b"\x80\x04N."))

    assert "never loaded" in refusal(tmp_path)


def test_the_fields_of_a_record_are_counted(tmp_path: Path) -> None:
    header = "{'descr': [('a', '<f4'), ('b', '<i8', (2,))], 'fortran_order': False, 'shape': (3,)}"
    (tmp_path / "w.npy").write_bytes(npy(header, bytes(60)))

    assert refusal(tmp_path) == ""
    (tmp_path / "w.npy").write_bytes(npy(header, bytes(59)))
    assert "torn write" in refusal(tmp_path)


def test_two_arrays_may_be_saved_into_one_file(tmp_path: Path) -> None:
    one = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", bytes(4))
    (tmp_path / "w.npy").write_bytes(one + one)

    assert refusal(tmp_path) == ""


def test_an_array_that_was_never_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "w.npy").write_bytes(bytes(100))

    assert refusal(tmp_path) == "w.npy: zeros, never written at byte 0 (torn write)"
