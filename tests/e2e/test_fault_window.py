"""How long the failure of a rank waits for evidence of broken hardware. No test here waits for the window itself."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from healthd.core.api.model import CauseKind
from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow

SPARE = ("--spares", "1")
WINDOW = "1h"
ENDS_ITSELF = "import os, signal; os.environ['HEALTHD_ATTEMPT'] == '0' and os.kill(os.getpid(), signal.{})"


def rank_of(run_folder: RunFolder, index: int) -> int:
    """The pid of a rank that runs: the one child of its shim that bears its number."""
    for pid in run_folder.marked():
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                words = environ.read().split(b"\0")
        except OSError:
            continue
        if f"RANK={index}".encode() in words and not any(word.startswith(b"HEALTHD_SHIM_OF=") for word in words):
            return pid
    raise AssertionError(f"rank {index} does not run")


async def test_a_rank_that_is_killed_is_started_again_without_waiting(run_folder: RunFolder) -> None:
    run_folder.configure(fault_window=WINDOW)
    async with run_folder.life(*SPARE, command=run_folder.training()) as life:
        await run_folder.all_wait(life, 0)
        os.kill(rank_of(run_folder, 1), signal.SIGKILL)
        await run_folder.all_wait(life, 1)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert [cause.kind for cause in recovery.status.causes] == [CauseKind.SOFTWARE]
    assert run_folder.attempts() == [0, 1]
    run_folder.check_writers()


async def test_an_xid_that_comes_after_that_moves_the_gang_to_the_spare(run_folder: RunFolder) -> None:
    run_folder.configure(fault_window=WINDOW)
    async with run_folder.life(*SPARE, command=run_folder.training()) as life:
        await run_folder.all_wait(life, 0)
        os.kill(rank_of(run_folder, 1), signal.SIGKILL)
        await run_folder.all_wait(life, 1)
        run_folder.break_gpu(1)
        await run_folder.all_wait(life, 2)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    recoveries = await run_folder.recoveries()

    assert [c.kind for r in recoveries for c in r.status.causes] == [CauseKind.SOFTWARE, CauseKind.HARDWARE]
    assert recoveries[-1].status.placement == {"0": "slot-0", "1": "slot-2"}
    run_folder.check_writers()


async def test_a_rank_that_aborts_waits_for_its_xid_and_the_gang_ends_on_the_spare_in_one_restart(
    run_folder: RunFolder,
) -> None:
    run_folder.configure(fault_window=WINDOW)
    program = ENDS_ITSELF.format("SIGABRT")
    async with run_folder.life(*SPARE, command=[sys.executable, "-c", program]) as life:
        await life.says("recovery.phase", phase="Choosing")
        run_folder.break_gpu(0)

        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert {cause.kind for cause in recovery.status.causes} == {CauseKind.SOFTWARE, CauseKind.HARDWARE}
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert recovery.status.placement["0"] == "slot-2"


async def test_where_no_kernel_log_can_be_read_nothing_is_waited_for(run_folder: RunFolder) -> None:
    run_folder.configure(fault_window=WINDOW, kernel_log=str(run_folder.folder / "nowhere"))
    program = ENDS_ITSELF.format("SIGABRT")
    async with run_folder.life(command=[sys.executable, "-c", program]) as life:
        assert await life.ended() == 0, life.log

    assert [attempt.number for r in await run_folder.recoveries() for attempt in r.status.attempts] == [1]


async def test_ranks_that_wait_for_ever_at_their_start_are_started_again(run_folder: RunFolder) -> None:
    run_folder.configure(more="hang: {floor: 1s, first_step: 1s}")
    waits = "import os, signal; os.environ['HEALTHD_ATTEMPT'] == '0' and signal.pause()"
    async with run_folder.life(command=[sys.executable, "-c", waits]) as life:
        opened = await life.says("recovery.opened")

        assert await life.ended() == 0, life.log
    assert opened["cause"] == CauseKind.HANG
    assert "hang.first_step" in opened["why"]
