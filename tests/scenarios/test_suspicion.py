"""A gang hangs, and its witnesses suspect a member: whole recoveries."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.clock import Clock
from healthd.controller.ports import NoActivity
from healthd.core.api import HangSuspect, Pod
from healthd.core.api.model import CauseKind, Hold, Phase
from healthd.core.config import HangPolicy
from healthd.core.hang.silence import Silence
from healthd.core.recovery.holds import hold_of
from healthd.core.recovery.members import attempt_of
from tests.scenarios.scenario import Scenario


class Watched(NoActivity):
    """Members that are seen to hang in the attempts *hangs*, with the *suspects* of the vote."""

    def __init__(self, clock: Clock) -> None:
        self.hangs: set[int] = set()
        self.suspects: tuple[HangSuspect, ...] = ()
        self.worked = 3600.0
        self._clock = clock

    def silence(self, pods: Sequence[Pod]) -> Silence | None:
        if max(map(attempt_of, pods), default=0) not in self.hangs:
            return None
        now = self._clock.now()
        since = now - timedelta(seconds=12)
        return Silence(
            since=since, seen_at=now, allowed=12, period=2, members=(), suspects=self.suspects, worked=self.worked
        )


async def hung(*suspects: HangSuspect) -> tuple[Scenario, Watched]:
    """A gang that trained for a while, and hangs now."""
    scenario = Scenario(ranks=2, spares=1, hang=HangPolicy(floor=timedelta(seconds=10)))
    watched = Watched(scenario.clock)
    scenario.add_loop("controller", scenario.new_controller("controller", activity=watched))
    await scenario.run_for(minutes=5)
    scenario.trainers.stalled.add("train")
    watched.suspects, watched.hangs = suspects, {0}
    return scenario, watched


async def recovered(scenario: Scenario) -> None:
    await scenario.run_until(Phase.CONFIRMING)
    scenario.trainers.stalled.clear()
    await scenario.run_until(Phase.RECOVERED)


SUSPECT = HangSuspect(member="1", node="node-1", witnesses=2, doing="read (rows.py:7)", stack="a1")


@pytest.mark.parametrize("witnesses", [0, 1])
async def test_with_too_few_witnesses_the_gang_is_restarted_where_it_was(witnesses: int) -> None:
    suspects = [HangSuspect(member="1", node="node-1", witnesses=witnesses)] if witnesses else []
    scenario, _ = await hung(*suspects)
    await recovered(scenario)

    assert scenario.recovery().spec.cause.kind is CauseKind.HANG
    assert scenario.places() == {"0": "node-0", "1": "node-1"}
    assert (scenario.pool(), scenario.quarantined()) == (["node-2"], [])


async def test_a_node_that_two_witnesses_suspect_is_swapped_for_a_spare_and_becomes_the_spare() -> None:
    scenario, _ = await hung(SUSPECT)
    await recovered(scenario)
    await scenario.run_for(minutes=1)

    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert (scenario.pool(), scenario.quarantined()) == (["node-1"], [])


async def again(scenario: Scenario, watched: Watched) -> None:
    """Until it runs again, and hangs again."""
    await scenario.run_until(Phase.CONFIRMING)
    watched.hangs.add(1)
    await scenario.run_for(minutes=1)


async def test_a_gang_that_hangs_again_in_the_same_place_is_not_restarted_again() -> None:
    scenario, watched = await hung(SUSPECT)
    await again(scenario, watched)
    await scenario.run_for(minutes=30)
    status = scenario.recovery().status

    assert (status.phase, status.held_in, hold_of(status)) == (Phase.HELD, Phase.CONFIRMING, Hold.PROGRAM)
    assert [attempt.number for attempt in status.attempts] == [1]
    assert "member 1 is in read (rows.py:7)" in status.message


async def test_it_waits_for_as_long_as_it_hangs_also_longer_than_it_had_worked_before() -> None:
    scenario, watched = await hung(SUSPECT)
    await again(scenario, watched)
    await scenario.run_until(Phase.HELD)
    watched.worked = 11.0  # shorter than its silence: it would not be restarted for that
    await scenario.run_for(minutes=30)

    assert (scenario.recovery().status.phase, hold_of(scenario.recovery().status)) == (Phase.HELD, Hold.PROGRAM)


async def test_when_it_works_again_the_wait_is_over() -> None:
    scenario, watched = await hung(SUSPECT)
    await again(scenario, watched)
    watched.hangs.clear()
    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [attempt.number for attempt in recovery.status.attempts] == [1]


async def test_a_rank_that_fails_ends_the_wait_with_a_restart() -> None:
    scenario, watched = await hung(SUSPECT)
    await again(scenario, watched)
    watched.hangs.clear()
    scenario.crash(0)
    await recovered(scenario)

    assert [attempt.number for attempt in scenario.recovery().status.attempts] == [1, 2]


async def test_a_hang_in_another_place_is_restarted_again() -> None:
    scenario, watched = await hung(SUSPECT)
    await scenario.run_until(Phase.STOPPING)
    watched.suspects = (replace(SUSPECT, stack="b2"),)
    await again(scenario, watched)
    await recovered(scenario)

    assert [attempt.number for attempt in scenario.recovery().status.attempts] == [1, 2]


async def test_hardware_that_is_found_meanwhile_gets_the_spare_instead_of_the_suspect() -> None:
    scenario, _ = await hung(SUSPECT)
    await scenario.run_until(Phase.STOPPING)
    scenario.fault("node-0")
    await recovered(scenario)

    assert scenario.places() == {"0": "node-2", "1": "node-1"}
    assert scenario.quarantined() == ["node-0"]
