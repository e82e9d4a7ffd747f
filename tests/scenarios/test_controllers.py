"""Controllers die at any point, and two may believe that they lead: one fault is still one restart."""

from __future__ import annotations

import random
from datetime import datetime
from typing import Any

import pytest

from healthd.core.model import Phase
from healthd.core.policy import RecoveryPolicy
from tests.scenarios.stage import Stage
from tests.simulation.faulty import StaleMirror
from tests.simulation.turns import Crashed


class DiesAtWrite:
    """A cluster whose user dies at its *number*th write, before or after it took effect."""

    def __init__(self, cluster: Any, number: int, *, after: bool) -> None:
        self._cluster = cluster
        self._left = number
        self._after = after

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._cluster, name)
        return self._mortal(verb) if name in ("create", "patch", "delete") else verb

    def _mortal(self, verb: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Crashed
            answer = await verb(*args, **options)
            if self._left == 0:
                raise Crashed
            return answer

        return call


WRITES = 16
"""A recovery of this gang takes so many writes, or fewer."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES + 1))
async def test_a_controller_that_dies_at_any_write_is_continued_by_the_next(number: int, after: bool) -> None:
    stage = Stage()
    await stage.run_for(minutes=2)
    mortal = stage.new_controller(
        "controller", cluster=DiesAtWrite(stage.truth.seen_by("controller"), number, after=after)
    )

    async def until_death(now: datetime) -> Any:
        try:
            return await mortal(now)
        except Crashed:
            stage.restart_controller()
            return await stage.new_controller("controller")(now)

    stage.add_loop("controller", until_death)
    stage.fault("node-1")
    await stage.run_for(minutes=5)

    assert [recovery.status.phase for recovery in stage.recoveries()] == [Phase.RECOVERED]
    assert stage.root.attempt == 1
    assert stage.places() == {"0": "node-0", "1": "node-2"}


async def test_two_controllers_at_once_restart_once() -> None:
    stage = Stage()
    stage.add_loop("second controller", stage.new_controller("controller-2"))
    await stage.run_for(minutes=2)
    stage.fault("node-1")
    await stage.run_for(minutes=5)

    assert [recovery.status.phase for recovery in stage.recoveries()] == [Phase.RECOVERED]
    assert stage.root.attempt == 1


async def test_a_controller_with_a_stale_view_does_no_harm() -> None:
    stage = Stage(recovery=RecoveryPolicy())
    mirror = StaleMirror(stage.truth.seen_by("controller-2"))
    stage.add_loop("stale controller", stage.new_controller("controller-2", mirror=mirror))
    dice = random.Random(3)
    await stage.run_for(minutes=2)
    for fault in ("node-1", "node-0"):
        mirror.refresh(dice, 0.5)
        stage.fault(fault)
        await stage.run_for(minutes=5)
        stage.repair(fault)
        await stage.run_for(minutes=5)

    assert [recovery.status.phase for recovery in stage.recoveries()] == [Phase.RECOVERED] * 2
    assert stage.root.attempt == 2
    assert stage.pool() == ["node-0"]
