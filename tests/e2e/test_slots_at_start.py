"""A run that is started again with slots out of service: it takes its spares, or says why it does not start."""

from __future__ import annotations

import signal

import pytest

from healthd.core.api.model import Phase
from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow


async def lose_a_gpu_and_stop(run_folder: RunFolder, *options: str) -> None:
    """A life in which slot-0 breaks, the spare takes over, and the user stops the run."""
    async with run_folder.life(*options) as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await run_folder.all_wait(life, 1)
        await life.says("recovery.phase", phase=Phase.RECOVERED)
        life.signal(signal.SIGINT)
        await life.ended()


@pytest.mark.parametrize("again", [(), ("--grace", "1s"), ("--fresh",)])
async def test_a_run_that_was_stopped_on_its_spare_goes_on_there(run_folder: RunFolder, again: tuple[str, ...]) -> None:
    await lose_a_gpu_and_stop(run_folder, "--spares", "1")
    async with run_folder.life("--spares", "1", *again) as life:
        await run_folder.all_wait(life, 2)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    run_folder.check_writers()


async def test_without_a_slot_for_every_rank_none_starts_and_that_is_said(run_folder: RunFolder) -> None:
    await lose_a_gpu_and_stop(run_folder, "--spares", "1")
    async with run_folder.life("--nproc", "3") as life:
        waits = await life.says("run.waits", level="warning")
        life.signal(signal.SIGINT)
        await life.ended()

    assert waits["why"] == "3 ranks need 3 slots, and 2 are in service: slot-0 is out of service (xid-79)"
    assert "healthd repair" in waits["note"]
    assert run_folder.attempts() == [0, 1]
