"""kill -9 of `healthd run` at every point of a recovery: one fault is one restart, and never are there two writers."""

from __future__ import annotations

import signal

import pytest

from healthd.core.api.model import CauseKind, Phase
from tests.e2e.driver import Life, Stage

WRITES = ["create", "Stopping", "Fencing", "Choosing", "Reserving", "Starting", "Confirming"]
"""What is written of a recovery, in this order: the object, then the phase that each later write enters."""
SPARE = ("--spares", "1")

pytestmark = pytest.mark.slow


async def die(stage: Stage, plan: str, attempt: int = 0) -> None:
    """One life, whose plan comes true after a GPU broke."""
    program = ("tests.e2e.mortal", plan)
    async with stage.life(*SPARE, program=program, command=stage.training("--deaf", "--orphan")) as life:
        await stage.all_wait(life, attempt)
        stage.break_gpu(0)

        assert await life.ended() == -signal.SIGKILL, life.log


async def finish(stage: Stage) -> Life:
    """The next life: it brings the gang to its end, once there is nothing more to recover from."""
    async with stage.life(*SPARE, command=stage.training("--deaf", "--orphan")) as life:
        await life.says("recovery.phase", phase="Recovered")
        stage.open_gate()

        assert await life.ended() == 0, life.log
    return life


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_fault_is_one_restart_wherever_healthd_dies(stage: Stage, when: str, write: str) -> None:
    await die(stage, f"{when}:Recovery:{write}")
    life = await finish(stage)
    recoveries = await stage.recoveries()
    # Ranks that ran when healthd died have to be started once more, and for that reason: it is a fault of its own.
    again = [CauseKind.INTERRUPTED] if write == "Confirming" else []
    causes = [CauseKind.HARDWARE, *again]

    assert list(dict.fromkeys(c.kind for r in recoveries for c in r.status.causes)) == causes, life.log
    assert [attempt.number for r in recoveries for attempt in r.status.attempts] == [1, 2][: len(causes)]
    assert {0, len(causes)} <= set(stage.attempts()) <= {0, 1, len(causes)}
    assert {recovery.status.phase for recovery in recoveries} == {Phase.RECOVERED}
    stage.check_writers()


async def test_healthd_may_die_in_every_phase_of_one_recovery(stage: Stage) -> None:
    await die(stage, "after:Recovery:create")
    for phase in WRITES[1:-1]:
        program = ("tests.e2e.mortal", f"after:Recovery:{phase}")
        async with stage.life(*SPARE, program=program, command=stage.training("--deaf", "--orphan")) as life:
            assert await life.ended() == -signal.SIGKILL, life.log
    await finish(stage)
    [recovery] = await stage.recoveries()

    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert stage.attempts() == [0, 1]
    stage.check_writers()
