"""How long main threads wait for something of their own while that is asked for, by a made-up process file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.core.hang.work.own_waits import NEWEST, OFTEN, SELDOM
from healthd.probes.usage.looks import Looks
from healthd.probes.usage.main_thread_waits import ASKED_FOR_S, MainThreadWaits

SLEEPS = "230 0x1 0x1 0x7ffd5 0x0 0x0 0x0"
WAITS_FOR_PEERS = "202 0x7f36be 0x189 0x0 0x0 0x0 0xffffffff"


class ByHand(Looks):
    """Looks that are taken by the test."""

    starts = 0

    def start(self) -> None:
        self.starts += 1

    def take(self, at: float) -> None:
        for each in self.looked_at:
            each.look(at)


class Node:
    """Two ranks, of which 7 sleeps by itself. They are asked for each five seconds."""

    def __init__(self, root: Path) -> None:
        self.proc, self.now, self.looks = root, 0.0, ByHand()
        self.waits = MainThreadWaits(str(root), lambda: self.now, self.looks)
        for pid, line in ((7, SLEEPS), (8, WAITS_FOR_PEERS)):
            self.does(pid, line)

    def does(self, pid: int, line: str) -> None:
        (self.proc / str(pid)).mkdir(exist_ok=True)
        (self.proc / str(pid) / "syscall").write_text(f"{line}\n")

    def run(self, seconds: float) -> None:
        """A look each half second."""
        until = self.now + seconds
        while self.now < until:
            if self.now % 5 == 0:
                self.waits.follow([7, 8])
            self.looks.take(self.now)
            self.now += 0.5


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_own_waits_add_up_from_question_to_question(node: Node) -> None:
    node.run(10.5)
    assert node.waits.follow([7, 8]) == {7: 10.0, 8: 0.0}
    node.does(7, "running")
    node.run(10)

    assert node.waits.follow([7, 8]) == {7: 10.0, 8: 0.0}


def test_a_process_that_is_not_asked_for_is_not_looked_at(node: Node) -> None:
    node.run(5)
    node.waits.follow([8])

    assert len(node.looks.looked_at) == 1
    assert node.waits.follow([7]) == {7: 0.0}  # from nothing


def test_looks_are_frequent_while_a_rank_waits_for_something_of_its_own(node: Node) -> None:
    node.does(7, WAITS_FOR_PEERS)
    node.run(2 * NEWEST)
    assert node.looks.every == SELDOM
    node.does(7, SLEEPS)
    node.run(2 * NEWEST)
    assert node.looks.every == OFTEN
    node.does(7, WAITS_FOR_PEERS)
    node.run(3 * NEWEST)
    assert node.looks.every == SELDOM


def test_where_nothing_is_asked_any_more_nothing_is_looked_at(node: Node) -> None:
    node.now = 100.0
    node.waits.follow([7, 8])

    assert node.looks.until == 100.0 + ASKED_FOR_S


def test_one_thread_looks(node: Node) -> None:
    node.run(60)

    assert node.looks.starts == 1


def test_a_process_that_has_ended_waits_for_nothing(node: Node) -> None:
    assert node.waits.follow([99]) == {99: 0.0}
    node.looks.take(1.0)
    node.looks.take(2.0)

    assert node.waits.follow([99]) == {99: 0.0}
