"""What `healthd run` says of the checkpoints of a job that trains well: before anything breaks."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.driver import RunFolder

pytestmark = pytest.mark.slow

SOON_FULL = "precheck: {every: 5s, room_for: 1000000000000000}\n"
"""No disk has room for so many: said at the first look."""


async def test_what_is_wrong_with_the_saving_is_reported_while_the_job_trains(run_folder: RunFolder) -> None:
    run_folder.config.write_text(run_folder.config.read_text() + SOON_FULL)
    async with run_folder.life() as life:
        await run_folder.all_wait(life, 0)
        worry = await life.says("checkpoint.worry", concern="full")
        life.signal(signal.SIGINT)
        await life.ended()

    assert "there is room for" in worry["why"]
    assert run_folder.attempts() == [0]
