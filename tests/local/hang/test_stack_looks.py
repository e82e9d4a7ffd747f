"""Looks at the main threads of ranks: taken beside the samples, and of real processes by py-spy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from healthd.local.hang.stack_looks import Seen, StackLooks, look_at_stacks
from healthd.local.processes.runner import RunningRank

RANKS = [RunningRank("uid-0", "0", 0, 1), RunningRank("uid-1", "", 0, 1)]


class Looking:
    """What is seen of ranks. *failures*: so many times nothing can be."""

    def __init__(self, *, failures: int = 0) -> None:
        self.asked = 0
        self._failures = failures

    def __call__(self, ranks: Sequence[RunningRank]) -> Sequence[Seen]:
        self.asked += 1
        if self.asked <= self._failures:
            raise RuntimeError("no")
        return [Seen(rank.name, "relu") for rank in ranks]


T = TypeVar("T")


async def until(holds: Callable[[], T]) -> T:
    """Its answer, once that is true: looks are taken in a thread."""
    async with asyncio.timeout(20):
        while True:
            if answer := holds():
                return answer
            await asyncio.sleep(0)


async def test_what_was_seen_is_taken_once() -> None:
    looks = StackLooks(Looking())
    looks.begin(RANKS)

    assert await until(looks.take) == [Seen("0", "relu"), Seen("uid-1", "relu")]
    assert looks.take() == ()


async def test_no_further_look_is_begun_before_the_last_one_is_taken() -> None:
    looking = Looking()
    looks = StackLooks(looking)
    looks.begin(RANKS)
    looks.begin(RANKS)
    await until(looks.take)
    looks.begin(RANKS)
    await until(looks.take)

    assert looking.asked == 2


async def test_what_is_seen_of_ranks_that_are_no_more_is_dropped() -> None:
    looking = Looking()
    looks = StackLooks(looking)
    looks.begin(RANKS)
    await until(lambda: looking.asked)
    looks.forget()

    assert looks.take() == ()


async def test_a_look_that_fails_shows_nothing_and_the_next_one_is_begun() -> None:
    looking = Looking(failures=1)
    looks = StackLooks(looking)

    def begun_and_taken() -> Sequence[Seen]:
        looks.begin(RANKS)
        return looks.take()

    assert await until(begun_and_taken)
    assert looking.asked == 2


def test_a_process_that_is_gone_shows_nothing() -> None:
    assert look_at_stacks([RunningRank("uid", "0", 0, os.getpid(), pid=2**22)]) == []


def looks_at(process: subprocess.Popen[bytes]) -> list[Seen]:
    """Enough of them for every function of a program."""
    rank = RunningRank("uid", "3", 0, os.getpid(), pid=process.pid)
    return [each for _ in range(4) for each in look_at_stacks([rank])]


@pytest.mark.slow
@pytest.mark.parametrize("process", ["layers.first(), own(), layers.second()"], indirect=True)
def test_a_process_is_seen_in_the_functions_of_packages(process: subprocess.Popen[bytes]) -> None:
    seen = looks_at(process)

    assert {each.rank for each in seen} == {"3"}
    assert {each.function for each in seen} == {
        None,
        ("first", "layers/__init__.py"),
        ("second", "layers/__init__.py"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("process", "is_native"),
    [("own()", False), ("os.stat('/')", False), ("zlib.compress(data)", True)],
    ids=["Python", "system calls", "compiled code"],
    indirect=["process"],
)
def test_a_process_is_seen_in_compiled_code(process: subprocess.Popen[bytes], is_native: bool) -> None:
    seen = looks_at(process)

    assert len(seen) > 8
    assert (2 * sum(each.is_native for each in seen) >= len(seen)) is is_native


LAYERS = """
import time
def first():
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end: pass
def second():
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end: pass
"""
PROGRAM = """
import os, time, zlib, layers
data = os.urandom(1 << 20)
def own():
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end: pass
print(flush=True)
while True: """


@pytest.fixture
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """It does the same without end."""
    packages = tmp_path / "site-packages"
    (packages / "layers").mkdir(parents=True)
    (packages / "layers" / "__init__.py").write_text(LAYERS)
    (script := tmp_path / "train.py").write_text(PROGRAM + request.param)
    environ = {**os.environ, "PYTHONPATH": str(packages)}
    with subprocess.Popen([sys.executable, str(script)], env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()
