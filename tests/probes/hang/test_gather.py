"""All that one machine knows of the ranks that run on it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from healthd.core.hang.suspects.evidence import RankEvidence, TaskState
from healthd.core.hang.suspects.vote import vote
from healthd.probes.hang.gather import LocalRank, gather
from tests.probes.hang.dumps import a_dump, an_entry, pickled


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three processes that wait."""
    started = [subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) for _ in range(3)]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_the_stopped_rank_that_left_no_dump_is_named(processes: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    ranks = [LocalRank(n, p.pid, f"pod-{n}", "node-a", dump=str(tmp_path / f"{n}")) for n, p in enumerate(processes)]
    for number in (0, 2):
        (tmp_path / str(number)).write_bytes(pickled(a_dump(an_entry(1), an_entry(2, pending=True))))
    os.kill(processes[1].pid, signal.SIGSTOP)
    os.waitpid(processes[1].pid, os.WUNTRACED)
    (suspect,) = vote(gather(ranks)).suspects
    assert (suspect.rank, suspect.pod, len(suspect.witnesses)) == (1, "pod-1", 2)


def test_what_cannot_be_read_is_a_line_and_the_rest_is_known(
    processes: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("step 7\n")
    rank = LocalRank(0, processes[0].pid, dump=str(tmp_path / "\x1b[2Jmissing"), log=str(tmp_path / "log"))
    (seen,) = gather([rank])
    assert seen.process is not None
    assert (seen.process.state, seen.log, seen.groups) == (TaskState.SLEEPING, ("step 7",), ())
    assert any("No such file" in trouble for trouble in seen.troubles)
    assert all(trouble.isprintable() for trouble in seen.troubles)
    assert msgspec.json.decode(msgspec.json.encode(seen), type=RankEvidence) == seen


def test_no_stack_is_asked_for_when_the_time_is_over(processes: list[subprocess.Popen[bytes]]) -> None:
    (seen,) = gather([LocalRank(0, processes[0].pid)], deadline_s=0.0)
    assert seen.stack is None
    assert any("no time left" in trouble for trouble in seen.troubles)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls have other numbers here")
def test_of_two_ranks_the_one_that_does_not_send_what_the_other_waits_for_is_named() -> None:
    script = "import socket; socket.socket(fileno=0).recv(1)"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with (
            other,
            subprocess.Popen([sys.executable, "-c", script], stdin=one.fileno()) as waits,
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[other.fileno()]) as reads,
        ):
            over = time.monotonic() + 30
            while not (suspects := _vote(waits.pid, reads.pid)) and time.monotonic() < over:
                pass
            waits.kill()
            reads.kill()

    assert suspects == {1: "is sleeping in read; 1 rank waits for it"}


def _vote(*pids: int) -> dict[int, str]:
    ranks = gather([LocalRank(rank, pid) for rank, pid in enumerate(pids)], deadline_s=5.0)
    return {each.rank: each.witnesses[0].words for each in vote(ranks).suspects}


def test_no_rank_is_no_evidence() -> None:
    assert gather([]) == []


class TestTheRestIsHeld:
    """By a file system, say: what is known then is kept."""

    def test_states_are_kept_before_any_file_of_users_is_read(self, processes: list[subprocess.Popen[bytes]]) -> None:
        kept: list[Sequence[RankEvidence]] = []
        gather([LocalRank(n, each.pid) for n, each in enumerate(processes)], deadline_s=0.0, keep=kept.append)
        assert [(each.rank, each.troubles) for each in kept[0]] == [(0, ()), (1, ()), (2, ())]
        assert all(each.process is not None for each in kept[0])

    def test_dumps_of_some_ranks_are_not_kept_without_those_of_the_others(
        self, processes: list[subprocess.Popen[bytes]], tmp_path: Path
    ) -> None:
        kept: list[Sequence[RankEvidence]] = []
        for number in range(3):
            (tmp_path / str(number)).write_bytes(pickled(a_dump(an_entry(1, pending=True))))
        ranks = [LocalRank(n, each.pid, dump=str(tmp_path / str(n))) for n, each in enumerate(processes)]
        gather(ranks, deadline_s=0.0, keep=kept.append)
        assert {len({bool(each.groups) for each in ranks}) for ranks in kept} == {1}

    def test_once_it_is_over_nothing_more_is_asked(
        self, processes: list[subprocess.Popen[bytes]], tmp_path: Path
    ) -> None:
        (tmp_path / "log").write_text("step 7\n")
        (seen,) = gather([LocalRank(0, processes[0].pid, log=str(tmp_path / "log"))], is_over=lambda: True)
        assert (seen.log, seen.troubles) == ((), ())
