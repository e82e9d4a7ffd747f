"""The program fails, stands still, or ends, on healthy hardware."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

import msgspec
import pytest

from healthd.clock import Clock
from healthd.controller.ports import NoActivity
from healthd.core.api import Pod
from healthd.core.api.model import CauseKind, Phase
from healthd.core.config import BreakerPolicy, HangPolicy, RecoveryPolicy
from healthd.core.recovery.gang import WitnessReport
from healthd.core.recovery.phases.stopping import BAD_STATE
from tests.scenarios.scenario import Scenario


async def test_a_crash_is_retried_on_the_same_nodes_from_the_newest_checkpoint() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=5)
    newest = max(saved.step for saved in scenario.store.saved)
    scenario.crash(1)
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.spec.cause.kind is CauseKind.SOFTWARE
    assert recovery.status.checkpoint is not None
    assert recovery.status.checkpoint.step == newest > 10
    assert scenario.places() == {"0": "node-0", "1": "node-1"}
    assert scenario.pool() == ["node-2"]


async def test_a_dying_gpu_that_takes_a_rank_with_it_is_no_fault_of_the_software() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=1)
    scenario.crash(1, exit_code=134)
    await scenario.settle()
    await scenario.run_for(seconds=1)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert CauseKind.HARDWARE in [cause.kind for cause in recovery.status.causes]
    assert scenario.places() == {"0": "node-0", "1": "node-2"}


class AllTold:
    """Witnesses that have always reported what they saw."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def ask(self, since: datetime) -> bool:
        return False

    def witness_report(self, node: str) -> WitnessReport:
        return WitnessReport(until=self._clock.now())


def a_scenario_where_all_is_reported() -> Scenario:
    scenario = Scenario()
    scenario.add_loop("controller", scenario.new_controller("controller", witnesses=AllTold(scenario.clock)))
    return scenario


async def test_an_xid_that_comes_a_second_and_a_half_after_an_abort_still_moves_the_gang_in_one_restart() -> None:
    scenario = a_scenario_where_all_is_reported()
    await scenario.run_for(minutes=1)
    scenario.crash(1, exit_code=134)
    await scenario.run_for(seconds=1.5)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [cause.kind for cause in recovery.status.causes] == [CauseKind.SOFTWARE, CauseKind.HARDWARE]
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert scenario.places() == {"0": "node-0", "1": "node-2"}


async def test_a_rank_that_was_killed_from_outside_is_started_again_before_the_window_is_over() -> None:
    scenario = a_scenario_where_all_is_reported()
    await scenario.run_for(minutes=1)
    scenario.crash(1, exit_code=137)
    await scenario.settle()
    killed = scenario.clock.now()
    recovery = await scenario.run_until(Phase.RECOVERED)

    phases = {entry.phase: entry.at for entry in recovery.status.timeline}
    assert phases[Phase.RESERVING] == phases[Phase.CHOOSING]
    assert phases[Phase.DETECTED] == killed


async def test_an_xid_that_comes_after_the_early_start_moves_the_gang_by_one_more() -> None:
    scenario = a_scenario_where_all_is_reported()
    scenario.config = msgspec.structs.replace(scenario.config, recovery=RecoveryPolicy(fault_window=timedelta(hours=1)))
    scenario.add_loop("controller", scenario.new_controller("controller", witnesses=AllTold(scenario.clock)))
    await scenario.run_for(minutes=1)
    scenario.crash(1, exit_code=137)
    await scenario.run_until(Phase.CONFIRMING)
    await scenario.run_for(seconds=1.5)
    scenario.fault("node-1")
    await scenario.run_for(minutes=10)

    causes = [cause.kind for recovery in scenario.recoveries() for cause in recovery.status.causes]
    assert causes == [CauseKind.SOFTWARE, CauseKind.HARDWARE]
    assert scenario.recovery().status.phase is Phase.RECOVERED
    assert scenario.places() == {"0": "node-0", "1": "node-2"}


async def test_a_program_that_never_gets_further_is_given_up_with_growing_waits() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(max_no_advance=3))
    await scenario.run_for(minutes=1)
    scenario.trainers.crash_at["train"] = 0
    recovery = await scenario.run_until(Phase.GAVE_UP, at_most=timedelta(hours=1))

    starts = [entry.at for entry in recovery.status.timeline if entry.phase is Phase.STARTING]
    waits = [later - earlier for earlier, later in pairwise(starts)]
    assert len(recovery.status.attempts) == 3
    assert waits == sorted(waits)
    assert "3 restarts in a row brought nothing beyond" in recovery.status.message
    assert "exited with code 1" in recovery.status.message


@pytest.mark.slow
async def test_a_checkpoint_after_whose_loading_the_gang_fails_twice_makes_room_for_the_one_before_it() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=5)
    newest = scenario.trainers.stores["train"].newest_whole()
    assert newest is not None
    newest.loads = False
    scenario.crash(1)
    recovery = await scenario.run_until(Phase.RECOVERED, at_most=timedelta(hours=1))

    assert [a.checkpoint.step for a in recovery.status.attempts] == [newest.step, newest.step, newest.step - 1]
    assert [(r.step, r.reason) for r in recovery.status.rejected] == [(newest.step, "the gang failed on it")]
    assert recovery.status.confirmed_step >= newest.step


@pytest.mark.slow
async def test_a_program_that_always_fails_at_one_step_is_given_up_although_older_checkpoints_load() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(max_no_advance=3))
    scenario.trainers.fails_at["train"] = 13
    recovery = await scenario.run_until(Phase.GAVE_UP, at_most=timedelta(hours=2))

    starts = [attempt.checkpoint.step for each in scenario.recoveries() for attempt in each.status.attempts]
    assert starts == [13, 13, 12]
    assert "3 restarts in a row brought nothing beyond step 13" in recovery.status.message


async def test_a_gang_that_says_its_state_is_bad_goes_on_from_the_save_before_the_last() -> None:
    scenario = Scenario()
    await scenario.run_for(minutes=5)
    newest = scenario.store.newest_whole()
    assert newest is not None
    scenario.crash(1, exit_code=BAD_STATE)
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert [attempt.checkpoint.step for attempt in recovery.status.attempts] == [newest.step - 1]
    assert [refused.step for refused in recovery.status.rejected] == [newest.step]


@pytest.mark.slow
async def test_saves_of_a_gang_whose_state_is_always_bad_are_no_progress() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(max_no_advance=3))
    scenario.trainers.fails_at["train"], scenario.trainers.exit_codes["train"] = 13, BAD_STATE
    recovery = await scenario.run_until(Phase.GAVE_UP, at_most=timedelta(hours=1))

    starts = [attempt.checkpoint.step for each in scenario.recoveries() for attempt in each.status.attempts]
    assert starts == [12, 12, 12]
    assert "3 restarts in a row brought nothing beyond step 12" in recovery.status.message


@pytest.mark.slow
async def test_what_was_given_up_stays_stopped() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(max_no_advance=1))
    await scenario.run_for(minutes=1)
    scenario.trainers.crash_at["train"] = 0
    await scenario.run_until(Phase.GAVE_UP, at_most=timedelta(hours=1))
    await scenario.run_for(hours=1)

    assert scenario.processes() == []
    assert len(scenario.recoveries()) == 1


@pytest.mark.slow
async def test_progress_sets_the_count_back() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(max_no_advance=2))
    for _ in range(5):
        await scenario.run_for(minutes=2)
        scenario.crash(0)
        await scenario.run_until(Phase.RECOVERED)

    assert scenario.root.attempt == 5


async def test_a_gang_that_is_silent_against_its_own_rhythm_is_restarted() -> None:
    scenario = Scenario(hang=HangPolicy(floor=timedelta(minutes=10)))
    await scenario.run_for(minutes=5)
    scenario.trainers.stalled.add("train")
    await scenario.run_for(minutes=9)
    assert scenario.recoveries() == []

    await scenario.run_for(minutes=3)
    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.spec.cause.kind is CauseKind.HANG


@pytest.mark.slow
async def test_a_gang_without_a_known_rhythm_is_never_called_hanging() -> None:
    scenario = Scenario()
    scenario.trainers.stalled.add("train")
    await scenario.run_for(hours=1)

    assert scenario.recoveries() == []


@pytest.mark.slow
async def test_without_visible_steps_a_while_of_running_counts_as_recovered() -> None:
    scenario = Scenario(
        options={"healthd.dev/checkpoint": ""}, recovery=RecoveryPolicy(confirm_after=timedelta(minutes=10))
    )
    await scenario.run_for(minutes=1)
    scenario.crash(0)
    recovery = await scenario.run_until(Phase.RECOVERED, at_most=timedelta(minutes=15))

    assert "its steps cannot be seen" in recovery.status.message


class Idle(NoActivity):
    """Members that never say or do anything but start."""

    def __init__(self, clock: Clock) -> None:
        self._since = clock.now()

    def last(self, pods: Sequence[Pod]) -> datetime | None:
        return self._since if pods else None

    def last_work(self, pods: Sequence[Pod]) -> datetime | None:
        return self.last(pods)


@pytest.mark.slow
async def test_a_gang_that_waits_for_ever_before_its_first_step_is_restarted() -> None:
    scenario = Scenario(hang=HangPolicy(first_step=timedelta(minutes=30)))
    scenario.add_loop("controller", scenario.new_controller("controller", activity=Idle(scenario.clock)))
    scenario.trainers.stalled.add("train")
    await scenario.run_for(minutes=29)
    assert scenario.recoveries() == []

    await scenario.run_for(minutes=2)
    scenario.trainers.stalled.clear()
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert recovery.spec.cause.kind is CauseKind.HANG
    assert "hang.first_step" in recovery.spec.cause.message


class Sleepy(NoActivity):
    """healthd and its ranks slept for all but a second of the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def missed_since(self, moment: datetime) -> timedelta:
        return max(timedelta(0), self._clock.now() - moment - timedelta(seconds=1))


async def test_time_in_which_the_machine_slept_does_not_become_the_rhythm_of_a_gang() -> None:
    scenario = Scenario()
    scenario.add_loop("controller", scenario.new_controller("controller", activity=Sleepy(scenario.clock)))
    await scenario.run_for(minutes=3)

    intervals = scenario.root.progress.intervals
    assert intervals
    assert max(intervals) <= 1


class AlwaysBusy(NoActivity):
    """Members that say something all the time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def last(self, pods: Sequence[Pod]) -> datetime | None:
        return self._clock.now() if pods else None

    def last_work(self, pods: Sequence[Pod]) -> datetime | None:
        return self.last(pods)


@pytest.mark.slow
async def test_a_gang_that_never_saved_anything_has_recovered_when_it_shows_life_for_a_while() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(confirm_after=timedelta(minutes=10)))
    scenario.add_loop("controller", scenario.new_controller("controller", activity=AlwaysBusy(scenario.clock)))
    scenario.trainers.stalled.add("train")
    await scenario.run_for(minutes=1)
    scenario.crash(0)
    recovery = await scenario.run_until(Phase.RECOVERED, at_most=timedelta(minutes=15))

    assert "no new step was seen yet" in recovery.status.message


async def test_retries_of_the_user_are_not_used_up() -> None:
    scenario = Scenario(spares=1)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    await scenario.run_for(minutes=1)

    pods = [pod for pod in scenario.pods() if pod.status.phase == "Failed"]
    assert pods == []


@pytest.mark.slow
async def test_more_faults_than_the_breaker_allows_are_not_restarted_until_the_window_has_passed() -> None:
    scenario = Scenario(breaker=BreakerPolicy(restarts=2, window=timedelta(hours=1)))
    for _ in range(2):
        await scenario.run_for(minutes=2)
        scenario.crash(0)
        await scenario.run_until(Phase.RECOVERED)
    scenario.fault("node-1")
    await scenario.run_for(minutes=30)
    held = scenario.recoveries()[-1]
    assert (held.status.phase, held.status.held_in) == (Phase.HELD, Phase.DETECTED)
    assert held.status.message == "the breaker is open: 2 recoveries began within 1:00:00"
    assert scenario.quarantined() == ["node-1"]

    await scenario.run_for(minutes=40)

    assert scenario.recoveries()[-1].status.phase is Phase.RECOVERED
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
