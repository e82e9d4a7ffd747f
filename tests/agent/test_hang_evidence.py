"""The component `hang-evidence`: whom it answers, and what the agent makes of its answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from healthd.agent.hang_evidence import LONGEST_QUESTION, Witness, listen, main, serve
from healthd.agent.pod_witness import ASKED_AGAIN_S, LONGEST_ANSWER, AskRankTimes, ask_processes
from healthd.core.api.health import PodFrame, PodProcess
from healthd.probes.pod_processes import PodProcesses
from tests.fakes import ManualClock

POD = "0b54c8a1-6f0e-4a8e-9d3c-1f2e3d4c5b6a"


class Node:
    """A node with one pod of one real process, and the component on it."""

    def __init__(self, root: Path, pid: int) -> None:
        self.socket = str(root / "socket")
        self.pid = pid
        group = self._group = root / "groups" / "kubepods" / f"pod{POD}" / "main"
        group.mkdir(parents=True)
        (root / "groups" / "cgroup.controllers").write_text("pids\n")
        for folder in (group.parent, group):
            (folder / "pids.current").write_text("1\n")
        (group / "cgroup.procs").write_text(f"{pid}\n")
        self._witness = Witness(PodProcesses(root / "groups"))
        self.listener = listen(self.socket)

    def gets(self, pid: int) -> None:
        """Another process begins in the pod."""
        with (self._group / "cgroup.procs").open("a") as processes:
            processes.write(f"{pid}\n")

    def serves(self, *, uid: int = os.getuid(), questions: int = 1) -> None:
        """It answers so many questions of user *uid*."""

        def answer_all() -> None:
            for _ in range(questions):
                try:
                    caller, _ = self.listener.accept()
                except OSError:
                    return  # the test is over
                serve(caller, uid, self._witness)

        Thread(target=answer_all, daemon=True).start()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, "RANK": "13"}) as process:
        made = Node(tmp_path, process.pid)
        with made.listener:
            yield made
        process.kill()


def test_the_agent_is_answered_about_the_pods_of_its_node(node: Node) -> None:
    node.serves()
    found = ask_processes([POD, "another"], node.socket)

    assert list(found) == [POD]
    assert (found[POD].state, found[POD].name, found[POD].processes) == ("sleeping", "cat", 1)


def test_the_agent_is_answered_how_long_the_ranks_of_a_pod_ran(node: Node) -> None:
    node.serves()

    [rank] = AskRankTimes(node.socket)([POD, "another"])[POD]

    assert (rank.number, rank.pid) == (13, node.pid)
    assert rank.ran > 0


def test_that_ranks_wait_for_a_pipe_is_seen_from_question_to_question(node: Node) -> None:
    node.serves(questions=100_000)
    until = time.monotonic() + 60
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, "RANK": "14"}) as other:
        node.gets(other.pid)
        waits = [0.0]
        while not all(waits) and time.monotonic() < until:
            answer = AskRankTimes(node.socket)([POD])  # on a busy machine one may not come in time
            waits = [each.own_waits for each in answer.get(POD, [])] or [0.0]
        other.kill()

    assert len(waits) == 2
    assert all(waits)


def test_no_other_user_is_given_times(node: Node) -> None:
    node.serves(uid=os.getuid() + 1)

    assert AskRankTimes(node.socket)([POD]) == {}


def test_a_component_that_gives_no_times_is_asked_again_minutes_later(tmp_path: Path) -> None:
    """As one of an older version, to which it is no question."""
    clock = ManualClock()
    ask = AskRankTimes(str(tmp_path / "socket"), lambda: clock.now().timestamp())
    questions: list[bytes] = []
    with listen(str(tmp_path / "socket")) as listener:

        def refuse(count: int) -> None:
            for _ in range(count):
                caller, _ = listener.accept()
                with caller:
                    questions.append(caller.recv(1 << 16))

        refusing = Thread(target=refuse, args=(2,), daemon=True)
        refusing.start()
        assert ask([POD]) == {}
        clock.advance(timedelta(seconds=ASKED_AGAIN_S - 1))
        assert ask([POD]) == {}
        assert len(questions) == 1
        clock.advance(timedelta(seconds=2))
        assert ask([POD]) == {}
        refusing.join(10)

    assert len(questions) == 2


def test_without_the_component_no_times_are_known(tmp_path: Path) -> None:
    assert AskRankTimes(str(tmp_path / "socket"))([POD]) == {}


def test_no_other_user_is_answered(node: Node) -> None:
    node.serves(uid=os.getuid() + 1)

    assert ask_processes([POD], node.socket) == {}


@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"\n",
        b"{}\n",
        b"[1]\n",
        b'{"times":[1]}\n',
        b'{"times":7}\n',
        b"x" * (LONGEST_QUESTION + 9),
        b"[" * 5000 + b"\n",
    ],
)
def test_after_a_question_that_is_none_it_answers_the_next(node: Node, question: bytes) -> None:
    node.serves(questions=2)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(node.socket)
        caller.sendall(question)
        caller.shutdown(socket.SHUT_WR)
        caller.settimeout(5)
        assert caller.recv(1) == b""

    assert list(ask_processes([POD], node.socket)) == [POD]


def test_without_the_component_nothing_is_known(tmp_path: Path) -> None:
    assert ask_processes([POD], str(tmp_path / "socket")) == {}


def answered(path: Path, give: Callable[[socket.socket], object]) -> dict[str, PodProcess]:
    """What the agent makes of what *give* writes."""
    with listen(str(path)) as listener:

        def serve_one() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.recv(1 << 16)
                give(caller)

        Thread(target=serve_one, daemon=True).start()
        return dict(ask_processes([POD], str(path), wait_s=0.3))


GOOD = b'{"a":{"state":"sleeping","stack":[{"function":"f","file":"t.py","line":3}]}}'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        GOOD[:-1],
        GOOD.replace(b"sleeping", b"s" * 65),
        GOOD.replace(b"3", b"-1"),
        GOOD.replace(b"3", b"1e99"),
        b'{"a":{"stack":[' + b",".join([b"{}"] * 13) + b"]}}",
        b" " * (LONGEST_ANSWER + 1),
    ],
)
def test_an_answer_that_does_not_fit_is_none(tmp_path: Path, text: bytes) -> None:
    assert answered(tmp_path / "socket", lambda caller: caller.sendall(text)) == {}


def test_an_answer_that_fits_is_taken(tmp_path: Path) -> None:
    frame = PodFrame(function="f", file="t.py", line=3)

    assert answered(tmp_path / "socket", lambda caller: caller.sendall(GOOD)) == {
        "a": PodProcess(state="sleeping", stack=[frame])
    }


def test_an_answer_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    assert answered(tmp_path / "socket", lambda caller: caller.recv(1)) == {}


def test_a_socket_that_an_earlier_run_left_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    listen(path).close()

    with listen(path) as listener:
        assert listener.getsockname() == path


@pytest.mark.parametrize("arguments", [[], ["socket", "agent", "/sys"], ["socket", "-1", "/sys"]])
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    assert main([str(tmp_path / "gone" / "socket"), "65532", "/sys"]) == 1


STUCK = """
import sys, time
from healthd.agent import hang_evidence
hang_evidence.STUCK_AFTER_S = 1
hang_evidence.Witness.processes = lambda *_: time.sleep(600)
hang_evidence.main(sys.argv[1:])
"""
"""A question that does not return, as where a process hangs in a driver."""


def test_a_component_that_is_stuck_in_a_question_ends_so_that_its_kubelet_starts_it_again(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    arguments = [str(path), str(os.getuid()), str(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", STUCK, *arguments]) as component:
        until, answers = time.monotonic() + 60, list[object]()
        while component.poll() is None and time.monotonic() < until:
            answers.append(ask_processes([POD], str(path), wait_s=0.1))
        component.kill()

    assert component.returncode == -signal.SIGALRM
    assert not any(answers)
