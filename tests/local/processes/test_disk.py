"""A rank that failed for want of room says so, and is not taken for one that a bad checkpoint brought down."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from healthd.core.recovery.faults import DISK_FULL
from healthd.local.processes.disk import blame_disk, may_be_for_want_of_room, read_disks, why_full
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
    ending = blame_disk(FAILED, f"Traceback\n{words}\nelastic: goodbye\n", [])

    assert ending.reason == DISK_FULL
    assert f'the disk is full: its last words were "{words}"' in ending.message
    assert "make room there" in ending.message


def test_a_full_file_system_says_where_whatever_the_rank_said() -> None:
    ending = blame_disk(FAILED, "unexpected pos 64 vs 0", ["no space is left in /out"])

    assert ending.message == (
        "the disk is full: no space is left in /out: make room there, or save elsewhere; no process of it is left"
    )


def test_any_other_failure_is_left_as_it_is() -> None:
    assert blame_disk(FAILED, "ValueError: no space for that many layers", []) == FAILED


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

    assert read_disks(log, len(before), [tmp_path]) == ("boom\n", [])


def test_a_full_file_system_is_seen(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=False, capture_output=True, text=True
    )
    if mounting.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounting.stderr.strip()}")
    try:
        before = why_full(disk / "out")
        (disk / "saved").write_bytes(b"1" * 1_500_000)
        after = why_full(disk / "out")
    finally:
        subprocess.run(["umount", disk], check=True)

    assert (before, after) == ("", f"no space is left in {disk}")
