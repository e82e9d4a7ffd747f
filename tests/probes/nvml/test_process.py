"""The process that asks NVML, played by a pipe: when it is given up, and when there is another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import IO

import pytest

from healthd.core.backoff import Backoff, no_jitter
from healthd.probes.nvml.process import ChildProcess, Pace

PACE = Pace(
    every=timedelta(seconds=10),
    deadline=timedelta(seconds=10),
    first=timedelta(seconds=60),
)
ANSWER = "{}"


class Child:
    """One that says what a test lets it say, and dies when it is killed, unless it is *stuck* in a driver."""

    def __init__(self) -> None:
        self.is_stuck = False
        self.was_killed = False
        self._status: int | None = None
        reads, self._writes = os.pipe()
        self.stdout: IO[bytes] = os.fdopen(reads, "rb")

    def announce(self, *lines: str) -> None:
        os.write(self._writes, "".join(f"{line}\n" for line in lines).encode())

    def end(self, status: int) -> None:
        self._status = status
        os.close(self._writes)

    def poll(self) -> int | None:
        return self._status

    def kill(self) -> None:
        self.was_killed = True
        if not self.is_stuck and self._status is None:
            self.end(-9)

    def wait(self, timeout: float) -> int:
        assert self._status is not None
        return self._status


class Machine:
    """Starts children and lets time pass."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.children: list[Child] = []
        self.refuses = False
        backoff = Backoff(timedelta(seconds=10), timedelta(seconds=40), no_jitter)
        self.process = ChildProcess(PACE, spawn=self._spawn, monotonic=lambda: self.now, backoff=backoff)

    def _spawn(self, pace: Pace) -> Child:
        if self.refuses:
            raise OSError(11, "Resource temporarily unavailable")
        self.children.append(Child())
        return self.children[-1]

    @property
    def child(self) -> Child:
        return self.children[-1]

    def read_lines(self, *, after: float = 0) -> list[bytes]:
        """Listen every second for so long; what came in the last one."""
        lines = self.process.read_answers()
        for _ in range(int(after)):
            self.now += 1
            lines = self.process.read_answers()
        return lines

    def close(self) -> None:
        for child in self.children:
            child.is_stuck = False
            child.kill()
            child.stdout.close()


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    yield machine
    machine.close()


def asked(machine: Machine) -> str:
    return f"{machine.now:.3f}"


def test_every_line_of_a_child_is_read_whole_and_once(machine: Machine) -> None:
    machine.read_lines()
    machine.child.announce(asked(machine), '{"a":1}', '{"b":2}')

    assert machine.read_lines() == [b'{"a":1}', b'{"b":2}']
    assert machine.read_lines() == []
    assert machine.process.responds is True


def test_a_child_that_ends_soon_after_each_start_is_started_more_and_more_rarely(machine: Machine) -> None:
    """However many answers it gave before."""
    waits = []
    for _ in range(3):
        machine.read_lines()
        machine.child.announce(asked(machine), ANSWER, asked(machine), ANSWER)
        machine.read_lines(after=2)
        machine.child.end(1)
        ended, started = machine.now, len(machine.children)
        machine.read_lines()
        while len(machine.children) == started:
            machine.read_lines(after=1)
        waits.append(machine.now - ended)

    assert waits == [10, 20, 40]


def test_half_a_line_waits_for_the_rest(machine: Machine) -> None:
    machine.read_lines()
    os.write(machine.child._writes, b'{"a"')
    before = machine.read_lines()
    os.write(machine.child._writes, b":1}\n")

    assert before == []
    assert machine.read_lines() == [b'{"a":1}']


def test_the_first_answer_may_take_longer(machine: Machine) -> None:
    machine.read_lines()
    machine.child.announce(asked(machine))
    machine.read_lines(after=59)
    in_time = machine.process.responds
    machine.read_lines(after=2)

    assert in_time is None
    assert machine.process.responds is False


def test_a_later_answer_is_due_ten_seconds_after_it_was_asked_for(machine: Machine) -> None:
    machine.read_lines()
    machine.child.announce(asked(machine), ANSWER)
    machine.read_lines(after=10)
    machine.child.announce(asked(machine))
    machine.read_lines(after=10)
    in_time = machine.process.responds
    machine.read_lines(after=1)

    assert in_time is True
    assert machine.process.responds is False
    assert machine.child.was_killed


def test_one_that_does_not_even_ask_again_hangs_too(machine: Machine) -> None:
    machine.read_lines()
    machine.child.announce(asked(machine), ANSWER)
    machine.read_lines()
    machine.read_lines(after=21)

    assert machine.process.responds is False


def test_one_that_can_not_be_killed_is_the_only_one(machine: Machine) -> None:
    machine.read_lines()
    machine.child.is_stuck = True
    machine.read_lines(after=600)
    while_it_is_stuck = len(machine.children)
    machine.child.is_stuck = False
    machine.child.kill()
    machine.read_lines(after=1)

    assert while_it_is_stuck == 1
    assert len(machine.children) == 2
    assert machine.process.responds is False


def test_waits_grow_while_children_end_at_once(machine: Machine) -> None:
    starts = []
    for _ in range(120):
        machine.read_lines(after=1)
        if machine.child.poll() is None:
            starts.append(machine.now)
            machine.child.announce(ANSWER)
            machine.child.end(0)

    assert [later - sooner for sooner, later in pairwise(starts)] == [10, 20, 40, 40]


def test_one_that_worked_is_replaced_soon(machine: Machine) -> None:
    machine.read_lines()
    machine.child.end(1)
    machine.read_lines(after=10)
    machine.child.announce(ANSWER)
    machine.read_lines(after=10)
    machine.child.announce(ANSWER)
    machine.read_lines()
    machine.child.end(-6)
    machine.read_lines(after=10)

    assert len(machine.children) == 3
    assert machine.process.trouble == "NVML could not be asked: the process that asks it ended with status -6"


def test_an_answer_ends_the_trouble(machine: Machine) -> None:
    machine.read_lines(after=61)
    machine.read_lines(after=10)
    machine.child.announce(ANSWER)
    machine.read_lines()

    assert len(machine.children) == 2
    assert machine.process.responds is True
    assert machine.process.trouble == ""


def test_who_did_not_listen_does_not_call_it_late(machine: Machine) -> None:
    machine.read_lines()
    machine.child.announce(asked(machine), ANSWER)
    machine.read_lines()
    machine.now += 3600
    machine.read_lines()

    assert machine.process.responds is True
    assert not machine.child.was_killed


def test_a_machine_that_starts_nothing_is_a_reason(machine: Machine) -> None:
    machine.refuses = True
    machine.read_lines()
    trouble = machine.process.trouble
    machine.refuses = False
    machine.read_lines(after=10)

    assert trouble == "NVML could not be asked: [Errno 11] Resource temporarily unavailable"
    assert len(machine.children) == 1


def test_one_that_is_closed_is_gone_and_another_starts_when_asked_for(machine: Machine) -> None:
    machine.read_lines()
    machine.process.close()
    killed = machine.child.was_killed
    machine.read_lines()

    assert killed
    assert len(machine.children) == 2


def test_process_that_is_of_no_use_is_started_again_after_its_rest(machine: Machine) -> None:
    machine.read_lines()
    machine.child.end(0)
    machine.process.rest(timedelta(minutes=10), unless=lambda: False)
    machine.read_lines(after=595)
    during = len(machine.children)
    machine.read_lines(after=10)

    assert (during, len(machine.children)) == (1, 2)


def test_rest_ends_once_a_process_is_of_use(machine: Machine) -> None:
    is_there: list[str] = []
    machine.read_lines()
    machine.child.end(0)
    machine.process.rest(timedelta(hours=1), unless=lambda: bool(is_there))
    machine.read_lines(after=60)
    is_there.append("the driver")
    machine.read_lines(after=1)

    assert len(machine.children) == 2
