"""kill -9 of `healthd run` at every point of a recovery: one fault is one restart, and never are there two writers."""

from __future__ import annotations

import signal

import pytest

from healthd.core.api.model import CauseKind, Phase
from tests.e2e.driver import HealthdProcess, RunFolder

WRITES = ["create", "Stopping", "Fencing", "Choosing", "Reserving", "Starting", "Confirming"]
"""What is written of a recovery, in this order: the object, then the phase that each later write enters."""
SPARE = ("--spares", "1")

pytestmark = pytest.mark.slow


async def die(run_folder: RunFolder, plan: str, attempt: int = 0) -> None:
    """One life, whose plan comes true after a GPU broke."""
    program = ("tests.e2e.killed_at_write", plan)
    async with run_folder.life(*SPARE, program=program, command=run_folder.training("--deaf", "--orphan")) as life:
        await run_folder.all_wait(life, attempt)
        run_folder.break_gpu(0)

        assert await life.ended() == -signal.SIGKILL, life.log


async def finish(run_folder: RunFolder) -> HealthdProcess:
    """The next life: it brings the gang to its end, once there is nothing more to recover from."""
    async with run_folder.life(*SPARE, command=run_folder.training("--deaf", "--orphan")) as life:
        await life.says("recovery.phase", phase="Recovered")
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    return life


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_fault_is_one_restart_wherever_healthd_dies(run_folder: RunFolder, when: str, write: str) -> None:
    await die(run_folder, f"{when}:Recovery:{write}")
    life = await finish(run_folder)
    recoveries = await run_folder.recoveries()
    # Ranks that ran when healthd died have to be started once more, and for that reason: it is a fault of its own.
    again = [CauseKind.INTERRUPTED] if write == "Confirming" else []
    causes = [CauseKind.HARDWARE, *again]

    assert list(dict.fromkeys(c.kind for r in recoveries for c in r.status.causes)) == causes, life.log
    assert [attempt.number for r in recoveries for attempt in r.status.attempts] == [1, 2][: len(causes)]
    assert {0, len(causes)} <= set(run_folder.attempts()) <= {0, 1, len(causes)}
    assert {recovery.status.phase for recovery in recoveries} == {Phase.RECOVERED}
    run_folder.check_writers()


async def test_healthd_may_be_killed_any_number_of_times_between_two_saves(run_folder: RunFolder) -> None:
    """The program did not fail, and a person starts healthd again: that is no restart without progress."""
    for attempt in range(5):
        async with run_folder.life() as life:
            await run_folder.all_wait(life, attempt)
            if attempt:
                await life.says("run.restarted")
            life.signal(signal.SIGKILL)
            assert await life.ended() == -signal.SIGKILL, life.log

        assert not any(said.get("about") in ("failed", "waits") for said in life.said), life.log
    run_folder.open_gate()
    async with run_folder.life() as life:
        assert await life.ended() == 0, life.log
    run_folder.check_writers()


async def test_healthd_may_die_in_every_phase_of_one_recovery(run_folder: RunFolder) -> None:
    await die(run_folder, "after:Recovery:create")
    for phase in WRITES[1:-1]:
        program = ("tests.e2e.killed_at_write", f"after:Recovery:{phase}")
        async with run_folder.life(*SPARE, program=program, command=run_folder.training("--deaf", "--orphan")) as life:
            assert await life.ended() == -signal.SIGKILL, life.log
    await finish(run_folder)
    [recovery] = await run_folder.recoveries()

    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert run_folder.attempts() == [0, 1]
    run_folder.check_writers()
