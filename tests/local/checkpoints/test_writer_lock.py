"""Two runs never write to one folder of checkpoints, and the lock never outlives who writes."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog

from healthd.local.checkpoints.writer_lock import (
    TwoWriters,
    passed_on,
    record_of,
    refuse_among_checkpoints,
    sole_writer,
)
from healthd.local.processes.supervise import Rank, RankCommand

NOW = datetime(2026, 11, 22, 18, 40, tzinfo=UTC)
HOLD = """
import subprocess, sys
from datetime import UTC, datetime
from pathlib import Path
from healthd.local.checkpoints.writer_lock import passed_on, sole_writer
with sole_writer(Path(sys.argv[1]), "llama", now=datetime(2026, 11, 22, 18, 40, tzinfo=UTC)):
    if len(sys.argv) > 2:
        rank = subprocess.Popen(["cat"], stdin=0, pass_fds=passed_on())
        print(rank.pid, flush=True)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_run(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process that holds the lock until its input ends, and what it said."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        said: list[str] = []
        while "held" not in said:
            said.append(holder.stdout.readline().strip())
            assert said[-1]
        yield holder, said
    finally:
        holder.stdin.close()
        holder.stdout.close()
        holder.wait()


def refusal(folder: Path, *, patience: float = 0.0) -> str:
    """Why this process may not write there; empty when it may."""
    try:
        with sole_writer(folder, "mistral", now=NOW, patience=patience):
            return ""
    except TwoWriters as error:
        return str(error)


def test_a_second_writer_is_refused_with_who_holds_it_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with another_run(tmp_path / "out") as (holder, _):
        why = refusal(tmp_path / "out")

    assert f"a run saves in {tmp_path / 'out'} already" in why
    assert f"run 'llama', process {holder.pid}, since 2026-11-22 18:40 UTC" in why
    assert f"stop it with `kill {holder.pid}`" in why
    assert "under any --name" in why
    assert refusal(tmp_path / "out") == ""


def test_another_spelling_of_the_path_is_the_same_folder(tmp_path: Path) -> None:
    (tmp_path / "disk" / "out").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    (tmp_path / "short").symlink_to("disk/out")

    with another_run(tmp_path / "disk" / "out"):
        whys = [refusal(tmp_path / name) for name in ("link/out", "short", "disk/../link/out/.")]

    assert all("'llama'" in why for why in whys)


def test_a_folder_within_that_of_another_run_is_refused_and_the_one_around_it_too(tmp_path: Path) -> None:
    (tmp_path / "runs" / "llama" / "out").mkdir(parents=True)

    with another_run(tmp_path / "runs" / "llama") as (holder, _):
        assert f"a run saves in {tmp_path / 'runs' / 'llama'}, which is around it (run 'llama'" in refusal(
            tmp_path / "runs" / "llama" / "out"
        )
        why = refusal(tmp_path / "runs")

    assert "or in a folder within it" in why
    assert str(holder.pid) in why


@pytest.mark.parametrize("state", ["out", "out/state", "link/state"])
def test_a_state_among_the_checkpoints_of_another_run_is_refused(tmp_path: Path, state: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to("out")

    with (
        another_run(tmp_path / "out") as (holder, _),
        pytest.raises(
            TwoWriters, match=f"lies in {tmp_path}/out, where a run saves .run 'llama', process {holder.pid}"
        ),
    ):
        refuse_among_checkpoints(tmp_path / state)
    refuse_among_checkpoints(tmp_path / state)


def test_a_state_around_the_checkpoints_of_another_run_is_not_among_them(tmp_path: Path) -> None:
    with another_run(tmp_path / "out"):
        refuse_among_checkpoints(tmp_path)
        refuse_among_checkpoints(tmp_path / "state")


def test_folders_beside_each_other_have_a_writer_each(tmp_path: Path) -> None:
    with another_run(tmp_path / "runs" / "llama"):
        assert refusal(tmp_path / "runs" / "mistral") == ""


def test_a_folder_that_is_not_there_yet_is_held_and_not_made(tmp_path: Path) -> None:
    with another_run(tmp_path / "runs" / "out"):
        assert not (tmp_path / "runs" / "out").exists()
        assert "'llama'" in refusal(tmp_path / "runs" / "out")
        (tmp_path / "runs" / "out" / "sub").mkdir(parents=True)
        assert "which is around it (run 'llama'" in refusal(tmp_path / "runs" / "out" / "sub")


def test_a_folder_that_is_deleted_and_made_again_is_still_held(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with another_run(tmp_path / "out"):
        shutil.rmtree(tmp_path / "out")
        (tmp_path / "out").mkdir()
        assert "'llama'" in refusal(tmp_path / "out")


def test_a_record_that_is_deleted_does_not_let_go_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with another_run(tmp_path / "out") as (holder, _):
        record_of(tmp_path / "out").unlink()
        assert f"process {holder.pid}" in refusal(tmp_path / "out")


def test_nothing_is_put_into_the_folder_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with sole_writer(tmp_path / "out", "llama", now=NOW):
        assert list((tmp_path / "out").iterdir()) == []
        assert record_of(tmp_path / "out").exists()

    assert list(tmp_path.iterdir()) == [tmp_path / "out"]
    assert passed_on() == ()


def test_a_run_that_was_killed_leaves_no_lock_behind(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with another_run(tmp_path / "out") as (holder, _):
        holder.kill()
        holder.wait()
        assert record_of(tmp_path / "out").exists()
        assert refusal(tmp_path / "out") == ""


def test_a_rank_that_outlives_its_supervisor_still_holds_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()

    with another_run(tmp_path / "out", "with a rank") as (holder, said):
        holder.kill()
        holder.wait()
        why = refusal(tmp_path / "out")
        os.kill(int(said[0]), signal.SIGKILL)

        assert f"ranks of the run 'llama' have outlived its healthd (process {holder.pid})" in why
        assert f"`kill -9 {said[0]}`" in why
        assert refusal(tmp_path / "out", patience=60) == ""


async def test_a_rank_and_its_shim_inherit_the_locks(tmp_path: Path) -> None:
    running = asyncio.Event()
    rank = Rank("uid-1", running.set)
    output = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    with sole_writer(tmp_path / "out", "llama", now=NOW):
        rank.start(
            RankCommand(argv=["sleep", "1000"], env={"PATH": os.environ["PATH"]}, cwd=str(tmp_path), output=output),
            linger=timedelta(0),
        )
        await running.wait()
        opened = [opened_by(pid) for pid in (rank.pid, rank.shim_pid)]
        rank.stop(timedelta(0))
        await rank.wait()
    os.close(output)

    assert all(str(record_of(tmp_path / "out")) in paths for paths in opened)


def opened_by(pid: int) -> set[str]:
    """The files that a process has open. It may just be starting: what it closes meanwhile is left out."""
    paths = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            paths.add(str(entry.readlink()))
    return paths


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_warning(tmp_path: Path, number: int) -> None:
    def flock(_: int, __: int) -> None:
        raise OSError(number, os.strerror(number))

    with structlog.testing.capture_logs() as logs, sole_writer(tmp_path, "llama", now=NOW, flock=flock):
        pass

    assert os.strerror(number) in logs[0]["why"]
    assert "start no other job that saves there" in logs[0]["note"]


def test_a_record_that_cannot_be_made_leaves_the_lock_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    record_of(tmp_path / "out").mkdir()

    with structlog.testing.capture_logs() as logs, sole_writer(tmp_path / "out", "llama", now=NOW):
        why = refusal_of_another_process(tmp_path / "out")

    assert "a second run on this machine is kept out" in logs[0]["note"]
    assert f"(process {os.getpid()})" in why


def refusal_of_another_process(folder: Path) -> str:
    """What a second run says."""
    done = subprocess.run(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    return done.stderr


RECORD = b'{"run": "\\u001b[2J", "pid": %d, "started": 1, "host": "", "since": "", "folder": ""}'


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_no_record_makes_a_person_end_more_than_one_process(tmp_path: Path, pid: int) -> None:
    with another_run(tmp_path / "out") as (holder, _):
        record_of(tmp_path / "out").write_bytes(RECORD % pid)
        why = refusal(tmp_path / "out")

    assert f"(process {holder.pid})" in why
    assert "kill" not in why


def test_what_a_record_says_does_not_steer_a_terminal(tmp_path: Path) -> None:
    with another_run(tmp_path / "out"):
        record_of(tmp_path / "out").write_bytes(RECORD % os.getppid())
        why = refusal(tmp_path / "out")

    assert r"\u001b[2J" in why or r"\x1b[2J" in why
    assert why.isprintable()


def test_a_pipe_in_the_place_of_a_record_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "out" / "sub").mkdir(parents=True)
    os.mkfifo(record_of(tmp_path / "out"))

    assert refusal(tmp_path / "out") == ""
    assert refusal(tmp_path / "out" / "sub") == ""


@pytest.mark.parametrize("content", [b"", b"{", b"\xff" * 9000, b'{"run": 5}'])
def test_a_record_that_is_none_does_not_stop_a_run(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "out").mkdir()
    record_of(tmp_path / "out").write_bytes(content)

    assert refusal(tmp_path / "out") == ""


def test_a_link_in_the_place_of_the_record_is_not_followed(tmp_path: Path) -> None:
    record_of(tmp_path / "out").symlink_to(tmp_path / "victim")

    assert refusal(tmp_path / "out") == ""
    assert not (tmp_path / "victim").exists()
