"""What a verifier pod runs: its answer is where a kubelet picks it up."""

from __future__ import annotations

import zipfile
from pathlib import Path

import msgspec
import pytest

from healthd.cli.main import main
from healthd.core.checkpoint.verification import VerificationReport
from tests.checkpoints.builders import safetensors_bytes


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with a whole checkpoint of step 7, and a torn one of step 8."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "step_7.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    (folder / "step_8.safetensors").write_bytes(b"torn")
    return folder


def report_of(folder: Path, *options: str) -> VerificationReport:
    words = folder.parent / "last-words"
    assert main(["checkpoints", "report", str(folder), f"--to={words}", *options]) == 0
    return msgspec.json.decode(words.read_bytes(), type=VerificationReport)


def test_the_newest_that_holds_is_reported_with_its_size_and_those_that_do_not(saved: Path) -> None:
    report = report_of(saved)

    assert report.found is not None
    assert (report.found.step, report.found.format) == (7, "safetensors")
    assert [refused.step for refused in report.rejected] == [8]
    assert report.size == (saved / "step_7.safetensors").stat().st_size
    assert report.free > 0


def test_older_ones_than_asked_for_are_not_read(saved: Path) -> None:
    report = report_of(saved, "--newer-than=7")

    assert report.found is None
    assert [refused.step for refused in report.rejected] == [8]


def test_a_folder_that_is_not_there_yet_is_empty(tmp_path: Path) -> None:
    assert report_of(tmp_path / "later") == VerificationReport()


def test_a_format_that_no_one_knows_is_a_reason_in_the_answer(saved: Path) -> None:
    (refused,) = report_of(saved, "--format=nonsense").rejected

    assert "unknown checkpoint format 'nonsense'" in refused.reason


@pytest.mark.slow
def test_a_quick_check_does_not_read_what_has_a_checksum(tmp_path: Path) -> None:
    """It is for a gang that runs: its file server should not read a terabyte every few minutes."""
    with zipfile.ZipFile(tmp_path / "step_3.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02}.")
        archive.writestr("a/version", b"3\n")
        archive.writestr("a/data/0", b"x" * 64)
    broken = (tmp_path / "step_3.pt").read_bytes().replace(b"x" * 64, b"y" * 64)
    (tmp_path / "step_3.pt").write_bytes(broken)

    assert report_of(tmp_path, "--quick").found is not None
    assert report_of(tmp_path).found is None
