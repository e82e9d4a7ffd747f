"""How long the failure of a rank waits for evidence of broken hardware. No test here waits for the window itself."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from healthd.core.api.model import CauseKind
from tests.e2e.driver import Stage

pytestmark = pytest.mark.slow

SPARE = ("--spares", "1")
WINDOW = "1h"
ENDS_ITSELF = "import os, signal; os.environ['HEALTHD_ATTEMPT'] == '0' and os.kill(os.getpid(), signal.{})"


def rank_of(stage: Stage, index: int) -> int:
    """The pid of a rank that runs: the one child of its shim that bears its number."""
    for pid in stage.marked():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                words = environ.read().split(b"\0")
        except OSError:
            continue
        if f"RANK={index}".encode() in words and not any(word.startswith(b"HEALTHD_SHIM_OF=") for word in words):
            return pid
    raise AssertionError(f"rank {index} does not run")


async def test_a_rank_that_is_killed_is_started_again_without_waiting(stage: Stage) -> None:
    stage.configure(fault_window=WINDOW)
    async with stage.life(*SPARE, command=stage.training()) as life:
        await stage.all_wait(life, 0)
        os.kill(rank_of(stage, 1), signal.SIGKILL)
        await stage.all_wait(life, 1)
        stage.open_gate()

        assert await life.ended() == 0, life.log
    [recovery] = await stage.recoveries()

    assert [cause.kind for cause in recovery.status.causes] == [CauseKind.SOFTWARE]
    assert stage.attempts() == [0, 1]
    stage.check_writers()


async def test_an_xid_that_comes_after_that_moves_the_gang_to_the_spare(stage: Stage) -> None:
    stage.configure(fault_window=WINDOW)
    async with stage.life(*SPARE, command=stage.training()) as life:
        await stage.all_wait(life, 0)
        os.kill(rank_of(stage, 1), signal.SIGKILL)
        await stage.all_wait(life, 1)
        stage.break_gpu(1)
        await stage.all_wait(life, 2)
        stage.open_gate()

        assert await life.ended() == 0, life.log
    recoveries = await stage.recoveries()

    assert [c.kind for r in recoveries for c in r.status.causes] == [CauseKind.SOFTWARE, CauseKind.HARDWARE]
    assert recoveries[-1].status.placement == {"0": "slot-0", "1": "slot-2"}
    stage.check_writers()


async def test_a_rank_that_aborts_waits_for_its_xid_and_the_gang_ends_on_the_spare_in_one_restart(stage: Stage) -> None:
    stage.configure(fault_window=WINDOW)
    program = ENDS_ITSELF.format("SIGABRT")
    async with stage.life(*SPARE, command=[sys.executable, "-c", program]) as life:
        await life.says("recovery.phase", phase="Choosing")
        stage.break_gpu(0)

        assert await life.ended() == 0, life.log
    [recovery] = await stage.recoveries()

    assert {cause.kind for cause in recovery.status.causes} == {CauseKind.SOFTWARE, CauseKind.HARDWARE}
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert recovery.status.placement["0"] == "slot-2"


async def test_where_no_kernel_log_can_be_read_nothing_is_waited_for(stage: Stage) -> None:
    stage.configure(fault_window=WINDOW, kernel_log=str(stage.folder / "nowhere"))
    program = ENDS_ITSELF.format("SIGABRT")
    async with stage.life(command=[sys.executable, "-c", program]) as life:
        assert await life.ended() == 0, life.log

    assert [attempt.number for r in await stage.recoveries() for attempt in r.status.attempts] == [1]


async def test_ranks_that_wait_for_ever_at_their_start_are_started_again(stage: Stage) -> None:
    stage.configure(more="hang: {floor: 1s, first_step: 1s}")
    waits = "import os, signal; os.environ['HEALTHD_ATTEMPT'] == '0' and signal.pause()"
    async with stage.life(command=[sys.executable, "-c", waits]) as life:
        opened = await life.says("recovery.opened")

        assert await life.ended() == 0, life.log
    assert opened["cause"] == CauseKind.HANG
    assert "hang.first_step" in opened["why"]
