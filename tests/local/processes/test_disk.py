"""A rank that could not write says so, and is not taken for one that a bad checkpoint brought down."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from healthd.core.recovery.faults import DISK_FULL, NOT_WRITABLE
from healthd.local.processes.disk import (
    DiskReading,
    RankFiles,
    blame_disk,
    log_unwritable,
    may_be_for_want_of_room,
    read_disks,
)
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


def test_a_run_that_cannot_save_is_warned_of_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    with mounted(tmp_path / "out", "--bind", str(tmp_path / "disk")) as out, capture_logs() as logs:
        asyncio.run(log_unwritable(out / "not-made-yet"))
        subprocess.run(["mount", "-o", "remount,bind,ro", out], check=True)
        asyncio.run(log_unwritable(out / "not-made-yet"))

    [warned] = logs
    assert (warned["event"], warned["log_level"]) == ("checkpoints.not_writable", "warning")
    assert (warned["folder"], warned["why"]) == (str(out / "not-made-yet"), f"{out} is read-only")


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


AT_STEP_10 = RankFiles(folders=(Path("/run/out"),), loaded=Path("/run/out/step-10"), cwd=Path("/run"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("OSError: [Errno 30] Read-only file system: '/run/out/step-15/model.pt'", NOT_WRITABLE),
        ("OSError: [Errno 30] Read-only file system: 'out/step-15'", NOT_WRITABLE),
        ("cp: cannot create regular file '/run/out/x': Read-only file system", NOT_WRITABLE),
        ("OSError: [Errno 28] No space left on device: '/tmp/a/step.pt' -> '/run/out/step-15.pt'", DISK_FULL),
        ("OSError: [Errno 28] No space left on device", DISK_FULL),
        ('IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })', DISK_FULL),
    ],
)
def test_what_keeps_a_rank_from_saving_is_blamed(words: str, reason: str) -> None:
    ending = blame_disk(FAILED, DiskReading(words), AT_STEP_10)

    assert ending.reason == reason
    assert f'its last words were "{words}"' in ending.message


@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 30] Read-only file system: '/root/.cache/triton'",
        "OSError: [Errno 30] Read-only file system: 'outer/step-15'",
        "mkdir: cannot create directory ‘/root/.cache’: Read-only file system",
        "OSError: [Errno 28] No space left on device: '/run/out/../cache/x'",
    ],
)
def test_a_cache_that_cannot_be_written_says_nothing_of_a_save_where_the_program_went_on(words: str) -> None:
    """The loaded checkpoint may be what the rank failed of."""
    went_on = f"{words}\nRuntimeError: size mismatch for weight\n"

    assert blame_disk(FAILED, DiskReading(went_on), AT_STEP_10) == FAILED


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("OSError: [Errno 30] Read-only file system: '/root/.cache/triton'\n\n", NOT_WRITABLE),
        ("loaded step 10\nOSError: [Errno 28] No space left on device: '/tmp/shm/segment'", DISK_FULL),
    ],
)
def test_a_program_that_ends_because_of_a_disk_ends_for_no_checkpoint(words: str, reason: str) -> None:
    assert blame_disk(FAILED, DiskReading(words), AT_STEP_10).reason == reason


@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 5] Input/output error: '/run/out/step-15/model.pt'",
        "OSError: [Errno 5] Input/output error: '/run/out/step-15.tmp' -> '/run/out/step-15'",
        "OSError: [Errno 116] Stale file handle: 'out/step-15'",
    ],
)
def test_a_disk_that_fails_under_a_save_is_blamed(words: str) -> None:
    ending = blame_disk(FAILED, DiskReading(words), AT_STEP_10)

    assert ending.reason == NOT_WRITABLE
    assert "repair the disk or its file server" in ending.message


@pytest.mark.parametrize(
    "words",
    [
        "OSError: [Errno 5] Input/output error: '/run/out/step-10/model.pt'",
        "OSError: [Errno 5] Input/output error: '/run/out/step-10'",
        "OSError: [Errno 5] Input/output error: '/run/out/step10-rank1.pt'",
        "OSError: [Errno 5] Input/output error: '/run/out/latest.pt'",
        "OSError: [Errno 5] Input/output error: '/run/out'",
        f"OSError: [Errno 5] Input/output error: '/run/out/step-{'9' * 5000}'",
        "OSError: [Errno 5] Input/output error: '/data/step-15/tokens.bin'",
        'Os { code: 5, kind: Uncategorized, message: "Input/output error" }',
    ],
)
def test_a_disk_that_may_fail_under_the_loaded_checkpoint_leaves_it_doubted(words: str) -> None:
    """An older one may be on blocks that can be read."""
    assert blame_disk(FAILED, DiskReading(words), AT_STEP_10) == FAILED


def test_after_a_fresh_start_each_step_is_one_that_was_saved() -> None:
    files = AT_STEP_10._replace(loaded=None)
    words = "OSError: [Errno 5] Input/output error: '/run/out/step-10'"

    assert blame_disk(FAILED, DiskReading(words), files).reason == NOT_WRITABLE
