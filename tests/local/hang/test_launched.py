"""The ranks that a launcher started below the only rank of a run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from healthd.local.hang.launched import LOOK_EVERY, LaunchedRanks, RanksBelow
from healthd.local.hang.watch import tree_of
from healthd.local.processes.runner import RunningRank
from tests.fakes import START
from tests.sibling_processes import a_family

LAUNCHER = """
import os, subprocess, sys
idles = "import sys; sys.stdin.read()"
start = lambda environ: subprocess.Popen([sys.executable, "-c", idles], env=environ, stdin=subprocess.PIPE)
ranks = [start({**os.environ, "RANK": str(n)}) for n in range(4, 7)]
server = start({name: value for name, value in os.environ.items() if name != "RANK"})
print(*(process.pid for process in (*ranks, server)), flush=True)
sys.stdin.read()
for process in (*ranks, server):
    process.kill()
"""
LONGEST_S = 60

ONE = RunningRank("uid", "0", 0, shim=100, pid=101, node="slot-0", log="rank-0.log")
BELOW = [ONE._replace(uid=f"uid/{102 + n}", rank=str(n), shim=101, pid=102 + n, is_launched=True) for n in range(2)]


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[tuple[int, list[int], int]]:
    """A launcher below this process, three ranks that it has numbered, and a server without a number."""
    program = tmp_path / "torchrun"
    program.write_text(LAUNCHER)
    environ = {**os.environ, "RANK": "4"}
    process = subprocess.Popen(
        [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    )
    assert process.stdout is not None
    *ranks, server = (int(word) for word in process.stdout.readline().split())
    yield process.pid, ranks, server
    process.communicate()


def found() -> list[RunningRank]:
    """Once all that was started has the environment that it was given."""
    deadline = time.monotonic() + LONGEST_S
    ranks = list[RunningRank]()
    while len(ranks) < 3 and time.monotonic() < deadline:
        ranks = RanksBelow()(ONE._replace(shim=os.getpid()), START)
    return ranks


def test_each_process_that_the_launcher_gave_a_number_is_a_rank_of_that_number(
    launched: tuple[int, Sequence[int], int],
) -> None:
    launcher, pids, _ = launched
    ranks = found()

    assert [(rank.rank, rank.pid, rank.shim, rank.node, rank.is_launched) for rank in ranks] == [
        (str(number), pid, launcher, "slot-0", True) for number, pid in zip(range(4, 7), pids, strict=True)
    ]
    assert len({rank.uid for rank in ranks}) == 3


def test_what_has_no_number_belongs_to_the_first_rank_and_the_launcher_to_none(
    launched: tuple[int, Sequence[int], int],
) -> None:
    launcher, pids, server = launched
    first, *others = (tree_of(rank) for rank in found())
    for each in (first, *others):
        each.read()

    assert set(first._processes) >= {pids[0], server}
    assert not set(first._processes) & {launcher, *pids[1:]}
    assert [set(each._processes) for each in others] == [{pid} for pid in pids[1:]]
    for each in (first, *others):
        each.close()


def test_ranks_without_numbers_are_those_that_are_connected_with_each_other() -> None:
    with a_family("ranks") as family:
        find = RanksBelow()
        launcher = ONE._replace(shim=os.getpid())
        looks = [find(launcher, START + number * LOOK_EVERY) for number in range(2)]
        first = tree_of(looks[-1][0])
        first.read()
        of_first = set(first._processes)
        first.close()

    assert looks[0] == []  # some may be connected before the others
    assert [(rank.rank, rank.pid, rank.shim, rank.is_launched) for rank in looks[-1]] == [
        (str(number), pid, family.parent, True) for number, pid in enumerate(family.children[:3])
    ]
    assert of_first >= {family.children[0], family.children[3], family.parent}
    assert not of_first & {*family.children[1:3]}


def test_what_was_known_of_one_launcher_is_not_of_the_next() -> None:
    with a_family("ranks"):
        find = RanksBelow()
        launcher = ONE._replace(shim=os.getpid())
        looks = [find(launcher._replace(attempt=number), START + number * LOOK_EVERY) for number in range(2)]

    assert looks == [[], []]


def test_a_program_with_loaders_is_no_launcher() -> None:
    with a_family("trainer"):
        find = RanksBelow()
        launcher = ONE._replace(shim=os.getpid())

        assert not any(find(launcher, START + number * LOOK_EVERY) for number in range(3))


class Run:
    """Ranks that run, and those that a look finds below a launcher."""

    def __init__(self, *ranks: RunningRank) -> None:
        self.ranks: Sequence[RunningRank] = ranks
        self.below: Sequence[RunningRank] = BELOW
        self.launched = LaunchedRanks(lambda: self.ranks, lambda *_: self.below)

    async def look(self) -> Sequence[RunningRank]:
        """The ranks after one more look."""
        assert await self.launched.cycle(START) == LOOK_EVERY
        return self.launched.running()


async def test_they_take_the_place_of_the_launcher_once_they_are_found() -> None:
    run = Run(ONE)
    before = run.launched.running()

    assert [before, await run.look()] == [(ONE,), BELOW]


async def test_ranks_that_healthd_started_itself_are_not_looked_below() -> None:
    ranks = ONE, ONE._replace(uid="uid-1", rank="1", shim=200)

    assert await Run(*ranks).look() == ranks


async def test_without_a_launcher_the_rank_is_itself() -> None:
    run = Run(ONE)
    run.below = []

    assert await run.look() == (ONE,)


async def test_what_was_found_below_one_launcher_is_not_below_the_next() -> None:
    run = Run(ONE)
    await run.look()
    run.ranks = [ONE._replace(uid="uid-again", attempt=1, shim=300)]

    assert run.launched.running() == run.ranks


async def test_ranks_that_the_launcher_starts_again_are_found_by_the_next_look() -> None:
    run = Run(ONE)
    await run.look()
    run.below = [rank._replace(uid=f"{rank.uid}-again", pid=rank.pid + 10) for rank in BELOW]

    assert await run.look() == run.below


async def test_a_run_that_has_ended_has_none() -> None:
    run = Run(ONE)
    await run.look()
    run.ranks = []

    assert await run.look() == []
