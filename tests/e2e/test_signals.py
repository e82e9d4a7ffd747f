"""What signals do to `healthd run`: the gang is stopped as it should be, and the next run of its name goes on."""

from __future__ import annotations

import signal
from signal import SIGINT, SIGTERM

import pytest

from healthd.core.api.model import CauseKind, Phase
from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow


@pytest.fixture
def patient(run_folder: RunFolder) -> RunFolder:
    """Its ranks have an hour to end after SIGTERM."""
    run_folder.configure(grace="1h")
    return run_folder


async def go_on_to_the_end(run_folder: RunFolder, *options: str) -> None:
    """The next run of the name, until its gang is done."""
    async with run_folder.life(command=run_folder.training(*options)) as life:
        await run_folder.all_wait(life, 1)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log


@pytest.mark.parametrize(("number", "code"), [(SIGINT, 130), (SIGTERM, 143)])
async def test_a_signal_stops_the_gang_and_the_next_run_goes_on(
    patient: RunFolder, number: signal.Signals, code: int
) -> None:
    async with patient.life() as life:
        await patient.all_wait(life, 0)
        life.signal(number)
        stops = await life.says("run.stops")

        assert number.name in stops["by"]
        assert await life.ended() == code, life.log
        patient.check_gone()
    await go_on_to_the_end(patient)

    assert patient.starts() == [(0, 0), (1, 4)]
    assert await patient.recoveries() == []
    patient.check_writers()


async def test_a_second_signal_ends_the_grace(patient: RunFolder) -> None:
    async with patient.life(command=patient.training("--deaf")) as life:
        await patient.all_wait(life, 0)
        life.signal(SIGINT)
        await life.says("run.stops")
        life.signal(SIGINT)

        assert await life.ended() == 130, life.log
        patient.check_gone()
    await go_on_to_the_end(patient, "--deaf")
    patient.check_writers()


async def test_killed_while_it_stops_it_goes_on_later(patient: RunFolder) -> None:
    plan = "after:Job:suspend"
    async with patient.life(program=("tests.e2e.killed_at_write", plan), command=patient.training("--deaf")) as life:
        await patient.all_wait(life, 0)
        life.signal(SIGINT)

        assert await life.ended() == -signal.SIGKILL, life.log
    await go_on_to_the_end(patient, "--deaf")

    assert patient.starts() == [(0, 0), (1, 4)]
    patient.check_writers()


async def test_killed_while_it_trains_it_recovers_later(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        life.signal(signal.SIGKILL)
        await life.ended()
    async with run_folder.life() as life:
        await life.says("recovery.phase", phase="Recovered")
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    [recovery] = await run_folder.recoveries()

    assert {cause.kind for cause in recovery.status.causes} == {CauseKind.INTERRUPTED}
    assert recovery.status.phase is Phase.RECOVERED
    assert run_folder.starts() == [(0, 0), (1, 4)]
    run_folder.check_writers()


async def test_stopped_while_it_waits_for_a_spare_it_starts_no_rank(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        run_folder.break_gpu(0)
        await life.says("recovery.phase", phase="Held")
        life.signal(SIGINT)

        assert await life.ended() == 130, life.log
    assert run_folder.attempts() == [0]
    run_folder.check_writers()


async def test_its_supervisor_may_close_the_terminal(run_folder: RunFolder) -> None:
    """SIGHUP is what a closed terminal or a lost ssh connection sends."""
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        life.signal(signal.SIGHUP)

        assert await life.ended() == 129, life.log
        run_folder.check_gone()
    await go_on_to_the_end(run_folder)
    run_folder.check_writers()


async def test_what_was_stopped_may_go_on_with_other_options(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        life.signal(SIGINT)
        await life.ended()
    async with run_folder.life("--nproc", "3") as life:
        await run_folder.all_wait(life, 1, world=3)
        run_folder.open_gate()

        assert await life.ended() == 0, life.log
    assert run_folder.starts() == [(0, 0), (1, 4)]
    run_folder.check_writers()


async def test_what_was_interrupted_goes_on_as_it_was_begun(run_folder: RunFolder) -> None:
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        life.signal(signal.SIGKILL)
        await life.ended()
    async with run_folder.life("--nproc", "3") as life:
        assert await life.ended() == 2, life.log

    assert "goes on as it was begun, with other options (--nproc 2, now 3)" in life.other
