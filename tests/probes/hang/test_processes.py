"""The states of ranks from /proc: real processes, and a /proc that changes while it is read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.core.hang.suspects.evidence import ProcessEvidence, TaskState
from healthd.probes.hang.processes import MOST_PROCESSES, read_processes
from tests.procfs import a_stat_line


def _no_sleep(seconds: float) -> None:
    pass


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads from a pipe to which nothing is written."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    yield process
    process.kill()
    process.communicate()


class TestRealProcesses:
    def test_a_process_that_waits_sleeps_in_its_system_call(self, sleeper: subprocess.Popen[bytes]) -> None:
        seen = read_processes([sleeper.pid])[sleeper.pid]
        assert (seen.state, seen.name, seen.processes) == (TaskState.SLEEPING, "cat", 1)
        assert seen.syscall in {"read", ""}

    def test_a_stopped_process_is_stopped(self, sleeper: subprocess.Popen[bytes]) -> None:
        os.kill(sleeper.pid, signal.SIGSTOP)
        os.waitpid(sleeper.pid, os.WUNTRACED)
        assert read_processes([sleeper.pid])[sleeper.pid].state is TaskState.STOPPED

    def test_a_stopped_worker_makes_its_rank_stopped_and_is_the_one_that_is_shown(self) -> None:
        script = "import os, subprocess; p = subprocess.Popen(['cat']); print(p.pid, flush=True); p.wait()"
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
            assert parent.stdout is not None
            worker = int(parent.stdout.readline())
            os.kill(worker, signal.SIGSTOP)
            seen = _read_until(parent.pid, TaskState.STOPPED)
            os.kill(worker, signal.SIGKILL)
        assert (seen.state, seen.pid, seen.processes) == (TaskState.STOPPED, worker, 2)

    def test_a_process_that_ended_and_was_not_reaped_is_a_zombie(self) -> None:
        process = subprocess.Popen(["true"])
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert read_processes([process.pid])[process.pid].state is TaskState.ZOMBIE
        process.wait()

    def test_a_process_that_was_never_there_is_unknown(self) -> None:
        assert read_processes([2**22 + 1], looks=1)[2**22 + 1].state is TaskState.UNKNOWN


class TestChangingProc:
    def test_a_process_that_ends_between_two_looks_is_gone(self, tmp_path: Path) -> None:
        _task(tmp_path, 100)
        seen = read_processes([100], proc=str(tmp_path), sleep=_once(lambda: _remove(tmp_path, 100)))[100]
        assert seen.state is TaskState.GONE

    def test_another_process_with_the_same_number_proves_nothing(self, tmp_path: Path) -> None:
        _task(tmp_path, 100, state="T")
        again = _once(lambda: _task(tmp_path, 100, state="T", started=777))
        assert read_processes([100], proc=str(tmp_path), sleep=again)[100].state is TaskState.UNKNOWN

    def test_a_process_that_is_uninterruptible_for_a_moment_is_asleep(self, tmp_path: Path) -> None:
        _task(tmp_path, 100, state="D")
        calm = _once(lambda: _task(tmp_path, 100, state="S"))
        assert read_processes([100], proc=str(tmp_path), sleep=calm)[100].state is TaskState.SLEEPING

    def test_one_thread_that_stays_uninterruptible_is_enough(self, tmp_path: Path) -> None:
        _task(tmp_path, 100)
        _write(tmp_path / "100" / "task" / "101" / "stat", a_stat_line(101, state="D"))
        (tmp_path / "100" / "wchan").write_text("nvidia_ioctl")
        seen = read_processes([100], proc=str(tmp_path), sleep=_no_sleep)[100]
        assert (seen.state, seen.wchan) == (TaskState.UNINTERRUPTIBLE, "nvidia_ioctl")

    @pytest.mark.parametrize("text", ["", "100", "100 (x", "100 (x) S", "x" * 100_000, "100 (x) S \udcff 1"])
    def test_what_is_no_state_is_left_out(self, text: str, tmp_path: Path) -> None:
        _task(tmp_path, 100)
        _task(tmp_path, 101, parent=100)
        (tmp_path / "101" / "stat").write_bytes(text.encode(errors="surrogateescape"))
        assert read_processes([100], proc=str(tmp_path), sleep=_no_sleep)[100].processes == 1

    def test_a_name_with_parentheses_and_escapes_changes_no_other_field(self, tmp_path: Path) -> None:
        _task(tmp_path, 100, name="x) T 1 (\x1b[2J\n")
        seen = read_processes([100], proc=str(tmp_path), sleep=_no_sleep)[100]
        assert seen.state is TaskState.SLEEPING
        assert seen.name.isprintable()
        assert seen.name.startswith("x) T 1 (")

    @pytest.mark.parametrize(("ticks", "state"), [(1, TaskState.SLEEPING), (60, TaskState.STOPPED)])
    def test_a_stopped_process_counts_where_it_has_done_a_part_of_the_work(
        self, ticks: int, state: TaskState, tmp_path: Path
    ) -> None:
        _task(tmp_path, 100, ticks=50_000)
        _task(tmp_path, 101, parent=100, state="T", ticks=ticks)
        assert read_processes([100], proc=str(tmp_path), sleep=_no_sleep)[100].state is state

    def test_a_rank_that_another_one_has_started_is_no_part_of_that_one(self, tmp_path: Path) -> None:
        _task(tmp_path, 100, ticks=50_000)
        _task(tmp_path, 101, parent=100, ticks=40_000)
        _task(tmp_path, 102, parent=100, state="T", ticks=50_000)
        _task(tmp_path, 103, parent=102, ticks=40_000)
        seen = read_processes([100, 102], proc=str(tmp_path), sleep=_no_sleep)
        assert [(each.state, each.processes) for each in seen.values()] == [
            (TaskState.SLEEPING, 2),
            (TaskState.STOPPED, 2),
        ]

    def test_processes_that_are_each_others_parents_end_the_search(self, tmp_path: Path) -> None:
        _task(tmp_path, 100, parent=101)
        _task(tmp_path, 101, parent=100)
        assert read_processes([100], proc=str(tmp_path), sleep=_no_sleep)[100].processes == 2

    @pytest.mark.slow
    def test_a_rank_with_very_many_processes_is_read_in_part(self, tmp_path: Path) -> None:
        _task(tmp_path, 100)
        for pid in range(101, 101 + MOST_PROCESSES + 50):
            _write(tmp_path / str(pid) / "stat", a_stat_line(pid, parent=100))
        assert read_processes([100], proc=str(tmp_path), looks=1)[100].processes <= MOST_PROCESSES + 60


def _read_until(pid: int, state: TaskState) -> ProcessEvidence:
    """A signal takes effect when the process runs next."""
    for _ in range(1000):
        if (seen := read_processes([pid], looks=1)[pid]).state is state:
            break
    return seen


def _task(
    proc: Path,
    pid: int,
    *,
    state: str = "S",
    name: str = "python3",
    parent: int = 1,
    ticks: int = 0,
    started: int = 5,
) -> None:
    line = a_stat_line(pid, name, state=state, parent=parent, ticks=ticks, started=started)
    _write(proc / str(pid) / "stat", line)
    _write(proc / str(pid) / "task" / str(pid) / "stat", line)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _remove(proc: Path, pid: int) -> None:
    for path in [*(proc / str(pid)).rglob("*")][::-1]:
        path.unlink() if path.is_file() else path.rmdir()
    (proc / str(pid)).rmdir()


def _once(change: Callable[[], None]) -> Callable[[float], None]:
    done: list[float] = []

    def sleep(seconds: float) -> None:
        if not done:
            change()
        done.append(seconds)

    return sleep
