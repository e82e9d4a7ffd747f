"""How runs end: with the exit code of their gang, on fewer ranks, from the newest checkpoint that loads."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from healthd.core.api.model import Phase
from tests.checkpoints.builders import safetensors_bytes
from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow

GARBAGE = """
import os, sys
sys.stdout.buffer.write(b"x" * 2**20 + b"\\n" + bytes(range(256)) * 64 + b"\\x1b[2J\\r\\n" + b"no end")
"""


async def test_a_gang_that_always_fails_ends_with_its_exit_code(run_folder: RunFolder) -> None:
    async with run_folder.life(command=["sh", "-c", "exit 7"]) as life:
        assert await life.ended() == 7, life.log

    [recovery] = await run_folder.recoveries()

    assert recovery.status.phase is Phase.GAVE_UP
    assert [attempt.number for attempt in recovery.status.attempts] == [1, 2, 3]


async def test_a_gang_that_was_given_up_may_be_started_again(run_folder: RunFolder, tmp_path: Path) -> None:
    command = ["sh", "-c", f"test -e {tmp_path}/repaired || exit 7"]
    async with run_folder.life(command=command) as life:
        await life.ended()
    (tmp_path / "repaired").write_text("")
    async with run_folder.life(command=command) as life:
        assert await life.ended() == 0, life.log


async def test_without_a_spare_it_goes_on_with_fewer_ranks(run_folder: RunFolder) -> None:
    async with run_folder.life("--min-nodes", "1") as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        run_folder.open_gate()

        completed = await life.says("run.completed", level="warning", at="step 40")
        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert completed["but"] == "it ended on 1 of 2 ranks"
    assert recovery.status.placement == {"0": "slot-1"}
    assert {line["rank"] for line in run_folder.journal() if line["attempt"] == 1} == {0}
    run_folder.check_writers()


async def test_a_first_run_begins_at_the_newest_checkpoint_that_loads(run_folder: RunFolder) -> None:
    run_folder.checkpoints.mkdir()
    whole = safetensors_bytes({"w": 100})
    (run_folder.checkpoints / "step-000004.safetensors").write_bytes(whole)
    (run_folder.checkpoints / "step-000009.safetensors").write_bytes(whole[:-50])
    run_folder.open_gate()
    async with run_folder.life() as life:
        rejected = await life.says("checkpoint.rejected", path=str(run_folder.checkpoints / "step-000009.safetensors"))

        assert await life.ended() == 0, life.log
    assert "100" in rejected["why"] or "50" in rejected["why"]
    assert run_folder.starts() == [(0, 4)]


async def test_a_rank_that_dies_behind_a_pipe_is_reported(run_folder: RunFolder) -> None:
    """Exit code 0 is all that the shell tells; that nothing was saved is said, and what hides how it ended."""
    async with run_folder.life(command=["sh", "-c", "sh -c 'kill -9 $$' | tee log"]) as life:
        await life.says("command.hides_exit_code", level="warning", by="| tee")
        completed = await life.says("run.completed", level="warning", at="step 0")
        summary = await life.says("run.summary")

        assert await life.ended() == 0, life.log
    assert completed["but"] == "no checkpoint that loads was saved"
    assert re.match(r"it ran for \S+ s and left no checkpoint that loads, without a restart", summary["text"])


async def test_a_run_that_ends_where_it_began_is_reported(run_folder: RunFolder) -> None:
    run_folder.checkpoints.mkdir()
    (run_folder.checkpoints / "step-000004.safetensors").write_bytes(safetensors_bytes({"w": 100}))
    async with run_folder.life(command=["true"]) as life:
        completed = await life.says("run.completed", level="warning", at="step 4")

        assert await life.ended() == 0, life.log
    assert completed["but"] == "nothing beyond step 4 was saved, and there it started"


async def test_a_run_that_went_on_ends_without_a_doubt(run_folder: RunFolder) -> None:
    run_folder.open_gate()
    async with run_folder.life() as life:
        completed = await life.says("run.completed", level="info", at="step 40")

        assert await life.ended() == 0, life.log
    assert "but" not in completed


async def test_output_of_any_kind_is_kept_as_it_came(run_folder: RunFolder) -> None:
    async with run_folder.life(command=[sys.executable, "-I", "-S", "-c", GARBAGE]) as life:
        assert await life.ended() == 0, life.log

    log = (run_folder.state / "logs" / "attempt-0" / "rank-1.log").read_bytes()

    assert log == b"x" * 2**20 + b"\n" + bytes(range(256)) * 64 + b"\x1b[2J\r\n" + b"no end"


async def test_nothing_is_left_in_the_environment_for_the_next_level(run_folder: RunFolder) -> None:
    """healthd may run under healthd: what one rank got is not for the ranks below it."""
    reported = {"HEALTHD_RESUME_FROM": "/elsewhere", "HEALTHD_ATTEMPT": "5", "RANK": "9"}
    async with run_folder.life(
        command=["sh", "-c", 'echo "$RANK $HEALTHD_ATTEMPT $HEALTHD_RESUME_FROM."'], environ=reported
    ) as life:
        assert await life.ended() == 0, life.log

    assert (run_folder.state / "logs" / "attempt-0" / "rank-1.log").read_text() == f"1 0 .{os.linesep}"
