"""kill -9 of healthd itself: no process outlives it, and the next healthd knows what became of its pods."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import Pod
from healthd.core.recovery.members import is_terminal
from healthd.local.processes.runner import ProcessRunner
from healthd.local.processes.shim import SHIM_MARK
from tests.builders import a_pod
from tests.local.helpers import (
    PATIENCE,
    Witness,
    heard_pids,
    in_background,
    parent_of,
    running,
    stopped,
    stubborn,
    until,
    witness_at,
)

pytestmark = pytest.mark.slow

HEALTHD = """
import asyncio, os, sys, uuid
from pathlib import Path
from healthd.clock import SystemClock
from healthd.cluster.embedded import EmbeddedCluster
from healthd.local.processes.runner import ProcessRunner

async def main(store, logs):
    with EmbeddedCluster.open(Path(store), clock=SystemClock(), new_uid=lambda: str(uuid.uuid4())) as cluster:
        await ProcessRunner(cluster, SystemClock(), log_dir=Path(logs), environ=os.environ).run()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    numbers = iter(range(1, 1000))
    new_uid = lambda: f"{os.getpid()}-{tmp_path.name}-{next(numbers)}"  # noqa: E731
    with EmbeddedCluster.open(tmp_path / "store", clock=SystemClock(), new_uid=new_uid) as embedded:
        yield embedded


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with witness_at(tmp_path / "witness") as witness:
        yield witness


@asynccontextmanager
async def another_healthd(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that runs the pods of the test's cluster until it is killed."""
    arguments = [sys.executable, "-c", HEALTHD, str(tmp_path / "store"), str(tmp_path / "logs")]
    process = await asyncio.create_subprocess_exec(*arguments, stdout=asyncio.subprocess.DEVNULL)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("last", ["marked", "unmarked"])
async def test_nothing_outlives_a_killed_healthd(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness, last: str
) -> None:
    await cluster.create(a_pod("rank", node="slot-0", container=running(stubborn(witness, last))))
    async with another_healthd(tmp_path) as healthd:
        await heard_pids(witness)
        healthd.kill()

        await witness.silence()


async def test_nothing_outlives_a_killed_healthd_behind_a_stopped_shim(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    """`pkill -STOP -f train.py` also stops the shim, whose command line has the command of the rank."""
    await cluster.create(a_pod("rank", node="slot-0", container=running(stubborn(witness))))
    async with another_healthd(tmp_path) as healthd:
        shim = parent_of((await heard_pids(witness))["rank"])
        healthd.send_signal(signal.SIGSTOP)
        with stopped(shim):
            healthd.kill()
            await witness.silence()


async def test_the_next_healthd_proves_what_the_killed_one_left(
    cluster: EmbeddedCluster, tmp_path: Path, witness: Witness
) -> None:
    """Its shim was killed and left a process; beside it is one with the mark of a shim, for which healthd waits."""
    await cluster.create(a_pod("rank", node="slot-0", container=running(stubborn(witness))))
    async with another_healthd(tmp_path) as healthd:
        shim = parent_of((await heard_pids(witness))["rank"])
        healthd.send_signal(signal.SIGSTOP)
        os.kill(shim, signal.SIGKILL)
        healthd.kill()
        await healthd.wait()
    uid = (await cluster.get(Pod, "rank", "default")).metadata.uid
    stuck_shim = await asyncio.create_subprocess_exec("sleep", "1000", env={**os.environ, SHIM_MARK: uid})
    runner = ProcessRunner(cluster, SystemClock(), log_dir=tmp_path / "logs", environ=os.environ)
    async with in_background(runner):
        await runner.cycle(SystemClock().now())
        before = await cluster.get(Pod, "rank", "default")
        stuck_shim.kill()
        async with asyncio.timeout(PATIENCE):
            after = await until(cluster, Pod, "rank", is_terminal, "default")

        assert not is_terminal(before)
        assert witness.is_alone()
        assert after.status.reason == "EndedWithHealthd"
    await stuck_shim.wait()
