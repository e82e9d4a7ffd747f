"""What was ever in the folder of a run's checkpoints is remembered, from the second on in which it appeared."""

from __future__ import annotations

import json
import struct
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from healthd.checkpoints.steps import Candidate
from healthd.core.api import ChosenCheckpoint
from healthd.core.recovery.gang import Root
from healthd.gangs.job import read_job
from healthd.local.checkpoints import folder as checkpoint_folder
from healthd.local.checkpoints.folder import CheckpointFolder, FolderStamp, PollResult, WatchedCheckpoints
from healthd.local.checkpoints.memory import NOTHING_SEEN, Seen
from healthd.local.gang import RunSpec, job_of
from healthd.local.reports.lines import sentence


def root_of(folder: Path) -> Root:
    spec = RunSpec(
        name="llama", command=["true"], nproc=1, checkpoint=folder, state=folder.parent / "s", working_dir=folder.parent
    )
    return read_job(job_of(spec, ChosenCheckpoint()))


def save(folder: Path, step: int) -> Path:
    """A safetensors file that will load."""
    header = json.dumps({"w": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}).encode()
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{step}.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<d", step))
    return path


async def watched(folder: Path, seen: Seen = NOTHING_SEEN) -> CheckpointFolder:
    watch = CheckpointFolder(folder)
    await watch.begin(seen)
    return watch


async def why_none(watch: CheckpointFolder, folder: Path) -> str:
    """Why the folder holds nothing to load; empty: nothing was ever there, and the run may begin at step 0."""
    answer = await WatchedCheckpoints(watch).latest(root_of(folder))

    assert answer.found is None
    return "; ".join(f"{refused.path} ({refused.step}): {refused.reason}" for refused in answer.rejected)


async def test_a_save_that_no_format_knows_is_reported_once_while_the_run_goes_on(tmp_path: Path) -> None:
    """Not only at the first fault: by then its owner has trained for days."""
    save(tmp_path / "out", 5)
    watch = await watched(tmp_path / "out")
    with capture_logs() as logs:
        for step in (10, 20):
            (tmp_path / "out" / f"step-{step}.weights").write_text("x")
            await watch.poll()

    [warning] = [each for each in logs if each["event"] == "checkpoint.undeclared"]
    assert warning["path"] == str(tmp_path / "out" / "step-10.weights")
    assert "declare a layout" in warning["why"]
    assert sentence(warning).startswith(f"a restart could not resume from {warning['path']}: no known")


async def test_files_that_may_be_checkpoints_are_reported_and_do_not_keep_a_run_from_step_0(tmp_path: Path) -> None:
    """Data may lie there as well, so the run is not refused."""
    watch = await watched(tmp_path / "out")
    (tmp_path / "out").mkdir()
    with capture_logs() as logs:
        for step in (10, 20, 30):
            (tmp_path / "out" / f"snap-{step}.dat").write_text("x")
            await watch.poll()

    [warning] = [each for each in logs if each["event"] == "checkpoint.undeclared"]
    assert warning["path"] == str(tmp_path / "out" / "snap-20.dat")
    assert "snap-20.dat and 1 more numbered files may be checkpoints" in sentence(warning)
    assert await why_none(watch, tmp_path / "out") == ""


async def test_a_warning_of_data_does_not_hide_that_of_a_save(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("tokens-10.dat", "tokens-20.dat"):
        (tmp_path / "out" / name).write_text("x")
    with capture_logs() as logs:
        watch = await watched(tmp_path / "out")
        (tmp_path / "out" / "step-10.weights").write_text("x")
        await watch.poll()

    warned = [Path(each["path"]).name for each in logs if each["event"] == "checkpoint.undeclared"]
    assert warned == ["tokens-20.dat", "step-10.weights"]


async def test_what_is_older_than_a_checkpoint_that_loads_is_not_warned_of(tmp_path: Path) -> None:
    save(tmp_path / "out", 5)
    (tmp_path / "out" / "model-4.weights").write_text("x")
    with capture_logs() as logs:
        await watched(tmp_path / "out")

    assert [each for each in logs if each["event"] == "checkpoint.undeclared"] == []


async def test_a_save_that_was_moved_away_was_there(tmp_path: Path) -> None:
    watch = await watched(tmp_path / "out")
    path = save(tmp_path / "out", 5)
    await watch.poll()
    (tmp_path / "out").rename(tmp_path / "elsewhere")

    assert (await why_none(watch, tmp_path / "out")).startswith(f"{path} (5): it was there, and is not any more")


async def test_a_save_that_was_deleted_in_its_folder_was_there(tmp_path: Path) -> None:
    watch = await watched(tmp_path / "out")
    path = save(tmp_path / "out", 5)
    await watch.poll()
    path.unlink()

    assert "it was there, and is not any more" in await why_none(watch, tmp_path / "out")


async def test_what_was_there_before_the_run_began_was_there(tmp_path: Path) -> None:
    watch = await watched(tmp_path / "out", Seen(step=9, path="/out/step-9"))

    assert (await why_none(watch, tmp_path / "out")).startswith("/out/step-9 (9): it was there")


async def test_a_folder_that_was_there_and_is_gone_is_not_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    watch = await watched(tmp_path / "out")
    (tmp_path / "out").rmdir()

    assert "the folder was there, and is not any more" in await why_none(watch, tmp_path / "out")


async def test_another_file_system_in_its_place_is_not_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    watch = await watched(tmp_path / "out")
    monkeypatch.setattr(checkpoint_folder, "stamp_of", lambda _: FolderStamp(-1, 2, 3))

    assert "another file system is mounted there" in await why_none(watch, tmp_path / "out")


@pytest.mark.slow
async def test_a_folder_that_never_was_or_never_held_anything_is_a_first_start(tmp_path: Path) -> None:
    never = await watched(tmp_path / "out")
    (tmp_path / "empty").mkdir()
    empty = await watched(tmp_path / "empty")
    (tmp_path / "empty" / "saving.tmp").write_text("half")
    (tmp_path / "empty" / "loss.log").write_text("0.3")
    await empty.poll()

    assert await why_none(never, tmp_path / "out") == ""
    assert await why_none(empty, tmp_path / "empty") == ""


async def test_a_folder_that_is_made_anew_by_the_script_before_it_saves_is_a_first_start(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    watch = await watched(tmp_path / "out")
    (tmp_path / "out").rmdir()
    (tmp_path / "out").mkdir()

    assert await why_none(watch, tmp_path / "out") == ""


async def test_what_is_there_is_found_whatever_was_there_before(tmp_path: Path) -> None:
    watch = await watched(tmp_path / "out", Seen(step=9, path="/out/step-9"))
    path = save(tmp_path / "out", 5)
    answer = await WatchedCheckpoints(watch).latest(root_of(tmp_path / "out"))

    assert answer.found is not None
    assert answer.found.path == str(path)


async def test_a_folder_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look a second must cost no more than a stat."""
    save(tmp_path / "out", 5)
    watch = await watched(tmp_path / "out")
    monkeypatch.setattr(checkpoint_folder, "find", lambda *_: pytest.fail("the names were read"))
    await watch.poll()

    assert watch.seen.step == 5


async def test_a_folder_that_cannot_be_listed_is_not_tried_every_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one with millions of names."""
    tried = []

    def refuse(*_: object) -> None:
        tried.append(1)
        raise OSError("too many names")

    monkeypatch.setattr(checkpoint_folder, "find", refuse)
    watch = await watched(tmp_path)
    await watch.poll()

    assert len(tried) == 1


async def test_a_file_server_that_hangs_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answers = [], threading.Event()

    def hang(*_: object) -> PollResult:
        asked.append(1)
        answers.wait()
        return PollResult(None, Candidate(path=tmp_path / "step-5", step=5))

    monkeypatch.setattr(checkpoint_folder, "LONGEST_POLL", 0.0)
    monkeypatch.setattr(checkpoint_folder, "poll", hang)
    watch = await watched(tmp_path)
    await watch.poll()
    monkeypatch.setattr(checkpoint_folder, "LONGEST_POLL", 10.0)
    answers.set()
    await watch.poll()

    assert len(asked) == 1
    assert watch.seen.step == 5
