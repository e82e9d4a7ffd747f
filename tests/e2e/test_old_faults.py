"""A run on a machine whose kernel log reports a fault from before: taken or not, it is said which, and why."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys

import pytest

from tests.e2e.driver import FIRST_BUS, XID_79, RunFolder

pytestmark = pytest.mark.slow


async def test_a_fault_from_before_the_driver_was_loaded_anew_takes_no_slot(run_folder: RunFolder) -> None:
    run_folder.break_gpu(0, ago=30)
    run_folder.load_driver(ago=20)
    async with run_folder.life() as life:
        said = await life.says("finding.put_right")
        await run_folder.all_wait(life, 0)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    assert (said["node"], said["record"]) == ("slot-0", XID_79.format(bus=FIRST_BUS))
    assert "a load of the driver" in said["why"]
    assert not [line for line in life.said if line["event"] == "node.quarantined"]
    assert run_folder.attempts() == [0]


async def test_a_fault_after_the_load_takes_the_slot(run_folder: RunFolder) -> None:
    run_folder.load_driver(ago=30)
    run_folder.break_gpu(0, ago=10)
    async with run_folder.life() as life:
        said = await life.says("node.quarantined")

    assert said["node"] == "slot-0"


async def test_an_old_fault_that_nothing_puts_right_is_reported_with_the_command_that_does(
    run_folder: RunFolder,
) -> None:
    run_folder.break_gpu(0, ago=30)
    async with run_folder.life("--spares", "1") as life:
        said = await life.says("node.quarantined")
        command = said["note"].split("`")[1]
        repair = [sys.executable, "-m", "healthd.cli.main", *shlex.split(command)[1:]]
        done = await asyncio.to_thread(subprocess.run, repair, capture_output=True, text=True, check=False)
        await life.says("node.returned", node="slot-0")

    assert said["record"] == XID_79.format(bus=FIRST_BUS)
    assert f"seen at {said['seen']}, before healthd was started" in said["note"]
    assert command.startswith("healthd repair slot-0 ")
    assert done.returncode == 0, done.stderr
