"""Which process of a rank is asked for its stack and its state."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from healthd.local.processes.main_process import main_process
from tests.procfs import a_stat_line

WAIT4 = 61 if os.uname().machine == "x86_64" else 260
READ = 0 if os.uname().machine == "x86_64" else 63


def a_process(
    proc: Path, pid: int, parent: int, name: str, *children: int, ticks: int = 0, syscall: int | None = None
) -> None:
    """As the kernel shows it."""
    folder = proc / str(pid) / "task" / str(pid)
    folder.mkdir(parents=True)
    (proc / str(pid) / "stat").write_text(a_stat_line(pid, name, parent=parent, ticks=ticks))
    (proc / str(pid) / "comm").write_text(f"{name}\n")
    (folder / "children").write_text(" ".join(map(str, children)))
    (proc / str(pid) / "syscall").write_text("running\n" if syscall is None else f"{syscall} 0xffff 0x0 0x7ffd\n")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A shell, which started a collector in the background, a trainer in a pipeline, and the pipeline's end."""
    a_process(tmp_path, 20, 10, "bash", 21, 22, 23)
    a_process(tmp_path, 21, 20, "collector", ticks=70)
    a_process(tmp_path, 22, 20, "python) S 1", 24, ticks=50)
    a_process(tmp_path, 23, 20, "tee", ticks=1)
    a_process(tmp_path, 24, 22, "loader", ticks=40)
    return tmp_path


def test_it_is_what_worked_most_of_all_that_the_shell_started(proc: Path) -> None:
    assert main_process(20, 10, proc=str(proc)) == 22


def test_shells_in_shells_are_followed(proc: Path) -> None:
    a_process(proc, 50, 10, "sh", 20)
    assert main_process(50, 10, proc=str(proc)) == 22


def test_a_program_that_is_no_shell_is_itself_whatever_works_below_it(proc: Path) -> None:
    a_process(proc, 60, 10, "python", 61, ticks=1)
    a_process(proc, 61, 60, "loader", ticks=900)
    assert main_process(60, 10, proc=str(proc)) == 60


def test_a_launcher_that_waits_for_its_child_is_followed(proc: Path) -> None:
    a_process(proc, 60, 10, "python", 61, 62, ticks=10, syscall=WAIT4)
    a_process(proc, 61, 60, "python", ticks=20)
    a_process(proc, 62, 60, "python", ticks=900, syscall=READ)
    assert main_process(60, 10, proc=str(proc)) == 62


def test_a_trainer_that_waits_for_a_copy_which_it_started_is_itself(proc: Path) -> None:
    a_process(proc, 60, 10, "python", 61, ticks=900, syscall=WAIT4)
    a_process(proc, 61, 60, "rsync", ticks=100)
    assert main_process(60, 10, proc=str(proc)) == 60


def test_a_trainer_that_has_done_less_than_its_loader_and_waits_for_something_else_is_itself(proc: Path) -> None:
    a_process(proc, 60, 10, "python", 61, ticks=10, syscall=READ)
    a_process(proc, 61, 60, "python", ticks=900)
    assert main_process(60, 10, proc=str(proc)) == 60


def test_a_shell_without_a_child_is_itself(proc: Path) -> None:
    a_process(proc, 30, 10, "sh")
    assert main_process(30, 10, proc=str(proc)) == 30


@pytest.mark.parametrize(("pid", "shim"), [(0, 10), (20, 11), (99, 10)])
def test_a_process_that_is_no_child_of_the_shim_is_none(proc: Path, pid: int, shim: int) -> None:
    assert main_process(pid, shim, proc=str(proc)) == 0


def test_a_circle_is_followed_to_a_limit(proc: Path) -> None:
    a_process(proc, 40, 10, "sh", 40)
    assert main_process(40, 10, proc=str(proc)) == 40
