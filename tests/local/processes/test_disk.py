"""A rank that could not write says so, and is not taken for one that a bad checkpoint brought down."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthd.core.recovery.faults import DISK_FULL, NOT_WRITABLE
from healthd.local.processes.disk import DiskReading, blame_disk, may_be_for_want_of_room, read_disks
from healthd.local.processes.pods import RankExit

FAILED = RankExit(exit_code=1, reason="Error", message="exit code 1; no process of it is left")


@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 28] No space left on device: 'out/step-5.pt'",
        "RuntimeError: unable to write to file </torch_1>: No space left on device (28)",
        "OSError: [Errno 122] Disk quota exceeded",
    ],
)
def test_the_last_output_of_a_rank_may_say_that_the_disk_is_full(words: str) -> None:
    ending = blame_disk(FAILED, DiskReading(f"Traceback\n{words}\nelastic: goodbye\n"))

    assert ending.reason == DISK_FULL
    assert f'the disk is full: its last words were "{words}"' in ending.message
    assert "make room there" in ending.message


def test_a_full_file_system_says_where_whatever_the_rank_said() -> None:
    ending = blame_disk(FAILED, DiskReading("unexpected pos 64 vs 0", full=("no space is left in /out",)))

    assert ending.message == (
        "the disk is full: no space is left in /out: make room there, or save elsewhere; no process of it is left"
    )


def test_any_other_failure_is_left_as_it_is() -> None:
    assert blame_disk(FAILED, DiskReading("ValueError: no space for that many layers")) == FAILED


@pytest.mark.parametrize(
    "ending",
    [
        RankExit(exit_code=0, reason="Completed"),
        RankExit(exit_code=137, signal=9, reason="Error"),
        RankExit(exit_code=127, reason="StartError"),
    ],
)
def test_what_did_not_fail_by_itself_did_not_want_room(ending: RankExit) -> None:
    assert not may_be_for_want_of_room(ending)


def test_only_the_output_of_this_rank_counts(tmp_path: Path) -> None:
    """A log is appended to: what an earlier life of the rank said is not its own."""
    log = tmp_path / "rank-0.log"
    before = "OSError: [Errno 28] No space left on device\n"
    log.write_text(f"{before}boom\n")

    assert read_disks(log, len(before), [tmp_path]) == DiskReading("boom\n")


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A file system of its own, where that is allowed."""
    folder.mkdir()
    mounting = subprocess.run(["mount", *options, folder], check=False, capture_output=True, text=True)
    if mounting.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounting.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_file_system_is_seen(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=2m", "none") as disk:
        before = read_disks(None, 0, [disk / "out"])
        (disk / "saved").write_bytes(b"1" * 1_500_000)
        after = read_disks(None, 0, [disk / "out"])

    assert (before, after) == (DiskReading(), DiskReading(full=(f"no space is left in {disk}",)))


@pytest.mark.parametrize("name", ["", "not-made-yet"])
def test_a_folder_that_became_read_only_is_seen(tmp_path: Path, name: str) -> None:
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "out", "--bind", str(tmp_path / "disk")) as out:
        before = read_disks(None, 0, [out / name])
        subprocess.run(["mount", "-o", "remount,bind,ro", out], check=True)
        after = read_disks(None, 0, [out / name])

    assert (before, after) == (DiskReading(), DiskReading(shut=(f"{out} is read-only",)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_seen(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    assert read_disks(None, 0, [tmp_path]) == DiskReading(shut=(f"this user may not write to {tmp_path}",))


EROFS = "OSError: [Errno 30] Read-only file system: '/out/step-5'"


@pytest.mark.parametrize(
    ("shut", "why"), [(("/out is read-only",), "/out is read-only"), ((), f'its last words were "{EROFS}"')]
)
def test_a_rank_that_could_not_write_says_where_or_what_it_said(shut: tuple[str, ...], why: str) -> None:
    ending = blame_disk(FAILED, DiskReading(EROFS, shut=shut))

    assert ending.reason == NOT_WRITABLE
    assert ending.message == f"it cannot write: {why}: make it writable, or save elsewhere; no process of it is left"


@pytest.mark.parametrize("words", ["OSError: [Errno 5] Input/output error", "PermissionError: [Errno 13] 'out/step-5'"])
def test_an_error_that_also_comes_of_reading_a_checkpoint_says_nothing_of_writing(words: str) -> None:
    assert blame_disk(FAILED, DiskReading(words)) == FAILED
