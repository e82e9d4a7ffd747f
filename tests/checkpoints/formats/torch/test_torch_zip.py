"""Files of torch.save: the archive's own directory and checksums say whether they are whole."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from healthd.checkpoints.latest import VerifyLevel
from tests.checkpoints.builders import REAL, refusal, torch_zip_bytes

WHOLE = (REAL / "ckpt-10.pt").read_bytes()


def an_archive(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_file_of_the_real_library_holds() -> None:
    assert refusal(REAL / "ckpt-10.pt") == ""


@pytest.mark.slow
def test_a_file_cut_anywhere_is_refused_by_its_structure(tmp_path: Path) -> None:
    file = tmp_path / "ckpt-10.pt"
    held = []
    for length in [*range(0, len(WHOLE), 5), *range(len(WHOLE) - 100, len(WHOLE))]:
        file.write_bytes(WHOLE[:length])
        if not refusal(file, level=VerifyLevel.QUICK):
            held.append(length)

    assert held == []


def test_a_flipped_byte_in_any_member_is_refused_by_its_checksum(tmp_path: Path) -> None:
    file = tmp_path / "ckpt-10.pt"
    held = []
    with zipfile.ZipFile(REAL / "ckpt-10.pt") as archive:
        members = archive.infolist()
    for member in members:
        at = WHOLE.index(b"PK\3\4", member.header_offset) + 30
        at += int.from_bytes(WHOLE[at - 4 : at - 2], "little") + int.from_bytes(WHOLE[at - 2 : at], "little")
        file.write_bytes(WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :])
        if "the checksum of" not in refusal(file):
            held.append(member.filename)

    assert held == []
    assert len(members) > 5


def test_a_quick_check_does_not_read_the_data(tmp_path: Path) -> None:
    damaged = WHOLE.replace(WHOLE[100:108], bytes(b ^ 1 for b in WHOLE[100:108]))
    (tmp_path / "ckpt-10.pt").write_bytes(damaged)

    assert refusal(tmp_path / "ckpt-10.pt", level=VerifyLevel.QUICK) == ""
    assert refusal(tmp_path / "ckpt-10.pt", level=VerifyLevel.FULL)


def test_checksums_that_were_not_written_are_not_compared() -> None:
    assert refusal(REAL / "nocrc-10.pt") == ""


def test_a_pickle_without_checksum_has_to_be_one(tmp_path: Path) -> None:
    whole = (REAL / "nocrc-10.pt").read_bytes()
    begin = whole.index(b"\x80\x02}")
    end = whole.index(b"PK", begin)
    held = []
    for at in range(begin, end - 64, 32):
        (tmp_path / "nocrc-10.pt").write_bytes(whole[:at] + bytes(64) + whole[at + 64 :])
        if not refusal(tmp_path / "nocrc-10.pt"):
            held.append(at)

    assert held == []


def test_the_old_format_is_refused_by_name() -> None:
    assert "torch's format from before 1.6" in refusal(REAL / "legacy-10.pt")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty file"),
        (bytes(1000), "begins with zeros"),
        (b"not a checkpoint", "not a zip archive of torch.save"),
        (b"PK\3\4", "too short for an archive"),
        (b"PK\3\4" + b"\1" * 500, "no end of archive"),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "ckpt-10.pt").write_bytes(content)

    assert why in refusal(tmp_path)


def test_an_archive_without_a_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ckpt-10.pt").write_bytes(an_archive(("archive/readme", b"hello")))

    assert "without data.pkl" in refusal(tmp_path)


def test_a_zip_bomb_is_refused_without_inflating_it(tmp_path: Path) -> None:
    bomb = an_archive(("archive/data.pkl", bytes(10_000_000)), method=zipfile.ZIP_DEFLATED)
    (tmp_path / "ckpt-10.pt").write_bytes(bomb)

    assert "is compressed, encrypted or elsewhere" in refusal(tmp_path)


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    whole = bytearray(torch_zip_bytes())
    first = whole.index(b"PK\1\2")
    second = whole.index(b"PK\1\2", first + 1)
    whole[second + 42 : second + 46] = whole[first + 42 : first + 46]
    (tmp_path / "ckpt-10.pt").write_bytes(whole)

    assert refusal(tmp_path).startswith("ckpt-10.pt: archive/data")


def test_a_directory_that_claims_gigabytes_is_refused(tmp_path: Path) -> None:
    whole = bytearray(torch_zip_bytes())
    whole[-10:-6] = (0xFFFFFFF0).to_bytes(4, "little")
    (tmp_path / "ckpt-10.pt").write_bytes(whole)

    assert "not where its end record says" in refusal(tmp_path)


@pytest.mark.parametrize("offset", [-6, -16, -38, -42, -80])
def test_a_flipped_bit_in_the_end_records_is_refused(tmp_path: Path, offset: int) -> None:
    content = bytearray(WHOLE)
    content[offset] ^= 1
    (tmp_path / "ckpt-10.pt").write_bytes(content)

    assert "not where its end record says" in refusal(tmp_path, level=VerifyLevel.QUICK)


def test_a_bin_file_counts_only_under_a_name_of_torch(tmp_path: Path) -> None:
    (tmp_path / "optimizer.bin").write_bytes(torch_zip_bytes())
    (tmp_path / "tokens.bin").write_bytes(b"\1\2\3")

    assert refusal(tmp_path) == ""


def test_files_in_folders_count_too(tmp_path: Path) -> None:
    for rank in ("mp_rank_00", "mp_rank_01"):
        (tmp_path / rank).mkdir()
        (tmp_path / rank / "model_optim_rng.pt").write_bytes(torch_zip_bytes())
    (tmp_path / "mp_rank_01" / "model_optim_rng.pt").write_bytes(torch_zip_bytes()[:-9])

    assert refusal(tmp_path).startswith("mp_rank_01/model_optim_rng.pt: ")


@pytest.mark.parametrize("field", [28, 30, 32])
def test_a_last_entry_that_claims_to_reach_beyond_the_directory_is_refused(tmp_path: Path, field: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[WHOLE.rindex(b"PK\1\2") + field] ^= 4
    (tmp_path / "ckpt-10.pt").write_bytes(damaged)

    assert refusal(tmp_path / "ckpt-10.pt") == "ckpt-10.pt: its archive directory is garbled"


def test_a_member_that_claims_to_be_a_folder_is_refused_since_torch_reads_nothing_of_it(tmp_path: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[WHOLE.index(b"PK\1\2") + 38] ^= 16
    (tmp_path / "ckpt-10.pt").write_bytes(damaged)

    assert refusal(tmp_path / "ckpt-10.pt") == "ckpt-10.pt: its archive directory is garbled"


def test_an_end_record_that_claims_to_be_shorter_than_it_is_is_refused_as_torch_does(tmp_path: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[WHOLE.rindex(b"PK\6\6") + 4] ^= 4
    (tmp_path / "ckpt-10.pt").write_bytes(damaged)

    assert "not where its end record says" in refusal(tmp_path / "ckpt-10.pt")
