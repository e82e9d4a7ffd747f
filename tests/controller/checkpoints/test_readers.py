"""How many processes read what users saved, for whom, and what they may take together."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from healthd.checkpoints.processes import Processes
from healthd.checkpoints.report import Inquiry
from healthd.controller.checkpoints.readers import MOST, STEP_READERS, VERIFIERS, Pool, Readers
from healthd.core.checkpoint.verification import VerificationReport
from tests.checkpoints.builders import safetensors_bytes

MANIFEST = Path(__file__).parents[3] / "deploy" / "controller.yaml"
SCRIPT = """
import sys, time
for line in sys.stdin:
    if "slow" in line:
        time.sleep(600)
    if "large" in line and int(sys.argv[1]) < 100 << 20:
        sys.exit(1)
    print("{}", flush=True)
"""
READER = (sys.executable, "-c", SCRIPT)
"""Never answers where a place is slow, and ends where it has no room for a large one."""


def test_all_readers_at_their_limits_fit_beside_the_controller() -> None:
    limit = re.search(r"limits: \{memory: ([0-9]+)Mi\}", MANIFEST.read_text())

    assert limit is not None
    assert int(limit[1]) << 20 >= MOST


@pytest.fixture
def readers() -> Readers:
    return Readers(program=READER)


@pytest.mark.parametrize("way", ["read", "verify"])
async def test_the_slow_storage_of_one_tenant_leaves_readers_for_another(readers: Readers, way: str) -> None:
    slow = [asyncio.create_task(getattr(readers, way)(Inquiry(location=f"/slow/{n}"), 60, "team-a")) for n in range(20)]
    await asyncio.sleep(0)
    pool = readers._step_readers if way == "read" else readers._verifiers

    answer = await getattr(readers, way)(Inquiry(location="/good"), 60, "team-b")

    assert answer == VerificationReport()
    assert pool._running.count("team-a") == pool.most // 2
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


@pytest.mark.parametrize("way", ["read", "verify"])
async def test_however_many_ask_there_are_never_more_readers_than_that(readers: Readers, way: str) -> None:
    slow = [
        asyncio.create_task(getattr(readers, way)(Inquiry(location=f"/slow/{n}"), 60, f"team-{n}")) for n in range(20)
    ]
    await asyncio.sleep(0)
    pool = readers._step_readers if way == "read" else readers._verifiers

    assert len(pool._running) == pool.most == 2 * (STEP_READERS if way == "read" else VERIFIERS)
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_a_look_that_is_cancelled_ends_its_process_and_the_next_one_has_its_place() -> None:
    processes = Processes(idle=1, program=READER)
    pool = Pool(1, processes)
    looks = [asyncio.create_task(pool.ask(Inquiry(location="/slow"), 600, who)) for who in ("team-a", "team-b")]
    await asyncio.sleep(0)
    for each in looks:
        each.cancel()
    await asyncio.gather(*looks, return_exceptions=True)

    answer = await pool.ask(Inquiry(location="/good"), 60, "team-a")

    assert answer == VerificationReport()
    assert processes.stuck() == []


async def test_what_takes_more_than_a_small_process_may_is_read_by_a_large_one(readers: Readers) -> None:
    assert await readers.verify(Inquiry(location="/large"), 60, "team-a") == VerificationReport()
    assert await readers.read(Inquiry(location="/large"), 60, "team-a") == VerificationReport()


async def test_a_real_checkpoint_is_read_by_a_small_process(tmp_path: Path) -> None:
    (tmp_path / "step_7.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    readers = Readers()

    report = await readers.verify(Inquiry(location=str(tmp_path)), 60, "team-a")

    assert report.found is not None
    assert len(readers._verifiers._processes._idle) == 1
    assert readers._verifiers._processes._idle[0].last == str(tmp_path)
