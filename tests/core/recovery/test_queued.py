"""Gangs that another controller's queue starts and stops: what a recovery does when the queue holds them back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.api import Cause, Recovery
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.actions import StartGang
from healthd.core.recovery.decide import Decision, decide
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.phases.starting import ADMITTED_WITHIN
from tests.builders import a_node
from tests.core.gangs import SOFTWARE, a_recovery_in, a_root
from tests.fakes import START

NOW = START + timedelta(minutes=5)
WAITS = "it waits in Kueue's queue 'lq': insufficient unused quota"
HELD = f"its queue does not let it run: {WAITS}"
PREEMPTED = "Kueue has evicted it (Preempted): a workload of higher priority"


def queued(why: str = WAITS, **more: Any) -> Root:
    """A gang that its queue does not let run."""
    return a_root(suspended=True, queue="lq", unadmitted=why, **more)


def decided(recovery: Recovery, root: Root, faults: list[Cause] | None = None) -> Decision:
    """The next move."""
    nodes = {name: a_node(name) for name in ("node-0", "node-1")}
    return decide(recovery, GangView(root=root, nodes=nodes), faults or [], RecoveryPolicy(), NOW)


def starting(*, waited: timedelta, held: bool = False) -> Recovery:
    """In Starting since *waited*, or held there."""
    recovery = a_recovery_in(Phase.STARTING)
    held_in = {"phase": Phase.HELD, "held_in": Phase.STARTING, "message": HELD} if held else {}
    return replace(recovery, status=replace(recovery.status, phase_since=NOW - waited, **held_in))


@pytest.mark.parametrize("phase", [Phase.DETECTED, Phase.STOPPING, Phase.CONFIRMING])
@pytest.mark.parametrize("evicted", [True, False])
def test_a_gang_that_its_queue_has_taken_back_is_not_restarted(phase: Phase, evicted: bool) -> None:
    decision = decided(a_recovery_in(phase), queued(PREEMPTED, evicted=evicted), [SOFTWARE])

    assert decision.record
    assert (decision.record.phase, decision.record.message) == (Phase.SUPERSEDED, PREEMPTED)


def test_a_queue_may_take_a_moment_to_let_a_gang_run_again() -> None:
    decision = decided(starting(waited=timedelta(seconds=1)), queued(attempt=1))

    assert (decision.waits, decision.reason) == (True, WAITS)
    assert decision.recheck == ADMITTED_WITHIN - timedelta(seconds=1)


def test_a_recovery_says_what_it_waits_for_when_others_have_the_quota() -> None:
    decision = decided(starting(waited=ADMITTED_WITHIN), queued(attempt=1))

    assert decision.record
    assert (decision.record.phase, decision.record.message) == (Phase.HELD, HELD)


def test_a_long_wait_for_quota_is_no_failed_start() -> None:
    assert decided(starting(waited=timedelta(days=2), held=True), queued(attempt=1)).waits


def test_a_gang_whose_turn_has_come_gets_the_whole_deadline() -> None:
    decision = decided(starting(waited=timedelta(days=2), held=True), a_root(queue="lq", attempt=1))

    assert decision.record
    assert (decision.record.phase, decision.record.phase_since) == (Phase.STARTING, NOW)


def test_a_gang_that_was_taken_back_while_it_started_is_left_to_its_queue() -> None:
    decision = decided(starting(waited=timedelta(seconds=1)), queued(PREEMPTED, attempt=1, evicted=True))

    assert decision.record
    assert decision.record.phase is Phase.SUPERSEDED


def test_a_start_of_which_one_write_is_missing_is_made_again() -> None:
    recovery = starting(waited=timedelta(seconds=1))
    cut_off = a_root(queue="lq", attempt=1, suspended=True, stopped=True, stopped_by=recovery.metadata.name)

    (action,) = decided(recovery, cut_off).actions

    assert isinstance(action, StartGang)


def test_a_gang_is_not_started_before_the_quota_of_its_last_start_is_back() -> None:
    stuck = a_root(queue="lq", suspended=True, stopped=True, stopped_by="train-1", holds_quota=True)

    soon, late = (decided(starting(waited=waited), stuck) for waited in (timedelta(), ADMITTED_WITHIN))

    assert (soon.waits, soon.actions) == (True, ())
    assert late.record
    assert late.record.message.endswith("the quota that it had before its stop is not back yet")
