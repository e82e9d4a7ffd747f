"""How runs end: with the exit code of their gang, on fewer ranks, from the newest checkpoint that loads."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from healthd.core.api.model import Phase
from tests.checkpoints.builders import safetensors_bytes
from tests.e2e.driver import Stage

pytestmark = pytest.mark.slow

GARBAGE = """
import os, sys
sys.stdout.buffer.write(b"x" * 2**20 + b"\\n" + bytes(range(256)) * 64 + b"\\x1b[2J\\r\\n" + b"no end")
"""


async def test_a_gang_that_always_fails_ends_with_its_exit_code(stage: Stage) -> None:
    async with stage.life(command=["sh", "-c", "exit 7"]) as life:
        assert await life.ended() == 7, life.log

    [recovery] = await stage.recoveries()

    assert recovery.status.phase is Phase.GAVE_UP
    assert [attempt.number for attempt in recovery.status.attempts] == [1, 2, 3]


async def test_a_gang_that_was_given_up_may_be_started_again(stage: Stage, tmp_path: Path) -> None:
    command = ["sh", "-c", f"test -e {tmp_path}/repaired || exit 7"]
    async with stage.life(command=command) as life:
        await life.ended()
    (tmp_path / "repaired").write_text("")
    async with stage.life(command=command) as life:
        assert await life.ended() == 0, life.log


async def test_without_a_spare_it_goes_on_with_fewer_ranks(stage: Stage) -> None:
    async with stage.life("--min-nodes", "1") as life:
        await stage.all_wait(life, 0)
        stage.break_gpu(0)
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        stage.open_gate()

        completed = await life.says("run.completed", level="warning", at="step 40")
        assert await life.ended() == 0, life.log
    [recovery] = await stage.recoveries()

    assert completed["but"] == "it ended on 1 of 2 ranks"
    assert recovery.status.placement == {"0": "slot-1"}
    assert {line["rank"] for line in stage.journal() if line["attempt"] == 1} == {0}
    stage.check_writers()


async def test_a_first_run_begins_at_the_newest_checkpoint_that_loads(stage: Stage) -> None:
    stage.checkpoints.mkdir()
    whole = safetensors_bytes({"w": 100})
    (stage.checkpoints / "step-000004.safetensors").write_bytes(whole)
    (stage.checkpoints / "step-000009.safetensors").write_bytes(whole[:-50])
    stage.open_gate()
    async with stage.life() as life:
        rejected = await life.says("checkpoint.rejected", path=str(stage.checkpoints / "step-000009.safetensors"))

        assert await life.ended() == 0, life.log
    assert "100" in rejected["why"] or "50" in rejected["why"]
    assert stage.starts() == [(0, 4)]


async def test_a_rank_that_dies_behind_a_pipe_is_told(stage: Stage) -> None:
    """Exit code 0 is all that the shell tells; that nothing was saved is told, and what hides how it ended."""
    async with stage.life(command=["sh", "-c", "sh -c 'kill -9 $$' | tee log"]) as life:
        await life.says("command.hides_exit_code", level="warning", by="| tee")
        completed = await life.says("run.completed", level="warning", at="step 0")
        summary = await life.says("run.summary")

        assert await life.ended() == 0, life.log
    assert completed["but"] == "no checkpoint was saved"
    assert re.match(r"it ran for \S+ s and left no checkpoint that loads, without a restart", summary["text"])


async def test_a_run_that_ends_where_it_began_is_told(stage: Stage) -> None:
    stage.checkpoints.mkdir()
    (stage.checkpoints / "step-000004.safetensors").write_bytes(safetensors_bytes({"w": 100}))
    async with stage.life(command=["true"]) as life:
        completed = await life.says("run.completed", level="warning", at="step 4")

        assert await life.ended() == 0, life.log
    assert completed["but"] == "nothing beyond step 4 was saved, and there it started"


async def test_a_run_that_went_on_ends_without_a_doubt(stage: Stage) -> None:
    stage.open_gate()
    async with stage.life() as life:
        completed = await life.says("run.completed", level="info", at="step 40")

        assert await life.ended() == 0, life.log
    assert "but" not in completed


async def test_output_of_any_kind_is_kept_as_it_came(stage: Stage) -> None:
    async with stage.life(command=[sys.executable, "-I", "-S", "-c", GARBAGE]) as life:
        assert await life.ended() == 0, life.log

    log = (stage.state / "logs" / "attempt-0" / "rank-1.log").read_bytes()

    assert log == b"x" * 2**20 + b"\n" + bytes(range(256)) * 64 + b"\x1b[2J\r\n" + b"no end"


async def test_nothing_is_left_in_the_environment_for_the_next_level(stage: Stage) -> None:
    """healthd may run under healthd: what one rank was told is not for the ranks below it."""
    told = {"HEALTHD_RESUME_FROM": "/elsewhere", "HEALTHD_ATTEMPT": "5", "RANK": "9"}
    async with stage.life(
        command=["sh", "-c", 'echo "$RANK $HEALTHD_ATTEMPT $HEALTHD_RESUME_FROM."'], environ=told
    ) as life:
        assert await life.ended() == 0, life.log

    assert (stage.state / "logs" / "attempt-0" / "rank-1.log").read_text() == f"1 0 .{os.linesep}"
