"""What the processes of pods do: real processes, in control groups that are made up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from healthd.core.hang.suspects.evidence import TaskState
from healthd.probes.hang.pods import ranks_of_pods
from tests.sibling_processes import a_family

LAUNCHER = """
import os, subprocess, sys
ranks = [subprocess.Popen(["cat"], env={**os.environ, "RANK": str(n)}, stdin=subprocess.PIPE) for n in range(3)]
print(*(rank.pid for rank in ranks), flush=True)
sys.stdin.read()
for rank in ranks:
    rank.kill()
"""


@pytest.fixture
def launched() -> Iterator[tuple[int, list[int]]]:
    """A launcher and its three ranks."""
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    ranks = [int(word) for word in process.stdout.readline().split()]
    yield process.pid, ranks
    process.communicate()


def a_pod(root: Path, *pids: int) -> str:
    """Its processes are in the group of its container, and in one that the container made. Returns its own group."""
    (root / "main" / "inner").mkdir(parents=True)
    (root / "main" / "cgroup.procs").write_text(f"0\n{pids[0]}\n")
    (root / "main" / "inner" / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids[1:]))
    return str(root)


def states(pod: str) -> list[TaskState | None]:
    found = ranks_of_pods({"uid": pod}, until=0.0)["uid"]  # no time for stacks
    return [each.process.state if each.process else None for each in found]


def test_each_rank_that_a_launcher_started_is_asked_and_the_launcher_is_not(
    tmp_path: Path, launched: tuple[int, Sequence[int]]
) -> None:
    launcher, ranks = launched
    pod = a_pod(tmp_path, launcher, *ranks)
    os.kill(ranks[1], signal.SIGSTOP)
    expected = [TaskState.SLEEPING, TaskState.STOPPED, TaskState.SLEEPING]

    assert _until(lambda: states(pod), lambda found: found == expected) == expected


def asked(pod: str, seconds: float) -> list[int]:
    """The processes that are asked as ranks, with so much time."""
    found = ranks_of_pods({"uid": pod}, until=time.monotonic() + seconds)["uid"]
    return [each.process.pid for each in found if each.process]


def test_ranks_without_numbers_are_asked_where_they_are_connected_with_each_other(tmp_path: Path) -> None:
    with a_family("ranks") as family:
        pod = a_pod(tmp_path, family.parent, *family.children)

        assert asked(pod, 60.0) == family.children[:3]


def test_without_time_to_read_connections_such_a_pod_is_one_rank(tmp_path: Path) -> None:
    with a_family("ranks") as family:
        pod = a_pod(tmp_path, family.parent, *family.children)

        assert len(asked(pod, -1.0)) == 1


def test_a_program_with_loaders_is_one_rank(tmp_path: Path) -> None:
    with a_family("trainer") as family:
        assert len(asked(a_pod(tmp_path, family.parent, *family.children), 60.0)) == 1


def test_a_pod_whose_processes_are_gone_has_no_ranks(tmp_path: Path) -> None:
    assert states(a_pod(tmp_path, 2**22 + 1, 2**22 + 2)) == []


def test_a_group_that_is_gone_has_no_ranks(tmp_path: Path) -> None:
    assert ranks_of_pods({"uid": str(tmp_path / "gone")}, until=0.0) == {"uid": []}


def test_numbers_that_are_none_are_left_out(tmp_path: Path) -> None:
    pod = a_pod(tmp_path, os.getpid())
    (tmp_path / "main" / "cgroup.procs").write_bytes(b"\xff -1 1e3 x\n" + b"9" * 30)

    assert states(pod) == []


def _until(read: Callable[[], list[TaskState | None]], good: Callable[[list[TaskState | None]], bool]) -> object:
    until = time.monotonic() + 10
    while not good(found := read()) and time.monotonic() < until:
        pass
    return found
