"""The list of gangs: the state of each, what a fault would cost, and who needs a person."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from healthd.core.api import ANNOTATION_ATTEMPT, Pod, PodStatus, Recovery
from healthd.core.api.model import Phase
from healthd.core.api.save_stats import Concern, Save, Saves
from healthd.core.hang.silence import Silence
from healthd.core.recovery.gang import GangOptions, RootOutcome
from healthd.core.recovery.progress import Progress
from healthd.core.report.listing.gangs import COLUMNS, NEED_A_PERSON, GangRow, GangState, cells, gang_row, in_order
from tests.builders import a_pod
from tests.core.gangs import STOPPED, a_recovery_in, a_root
from tests.fakes import START

LATER = START + timedelta(minutes=5)
RUNNING = PodStatus(phase="Running")

QUIET = Silence(since=START, seen_at=START, allowed=12.0, period=2.0, members=())


def row(*recoveries: Recovery, running: int = 2, **root: Any) -> GangRow:
    pods = [a_pod(f"train-{n}", node=f"node-{n}", status=RUNNING) for n in range(running)]
    return gang_row(a_root(**root), pods, recoveries, LATER)


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (row(), GangState.RUNNING),
        (row(running=1), GangState.STARTING),
        (row(running=0, world=0), GangState.STARTING),
        (row(a_recovery_in(Phase.RECOVERED)), GangState.RUNNING),
        (row(a_recovery_in(Phase.STOPPING), **STOPPED), GangState.RESTARTING),
        (row(a_recovery_in(Phase.HELD), **STOPPED), GangState.HELD),
        (row(running=0, **STOPPED), GangState.STOPPED),
        (row(a_recovery_in(Phase.GAVE_UP), running=0, **STOPPED), GangState.GAVE_UP),
        (row(a_recovery_in(Phase.GAVE_UP), running=0, suspended=True), GangState.SUSPENDED),
        (row(a_recovery_in(Phase.GAVE_UP)), GangState.RUNNING),
        (row(a_recovery_in(Phase.SUPERSEDED), running=0, **STOPPED), GangState.STOPPED),
        (row(a_recovery_in(Phase.SUPERSEDED), running=0, edited_since_stop=True, **STOPPED), GangState.SUSPENDED),
        (row(a_recovery_in(Phase.SUPERSEDED), running=0, suspended=True), GangState.SUSPENDED),
        (row(a_recovery_in(Phase.SUPERSEDED)), GangState.RUNNING),
        (row(running=0, suspended=True), GangState.SUSPENDED),
        (row(ending=RootOutcome.COMPLETE), GangState.COMPLETE),
        (row(ending=RootOutcome.FAILED), GangState.FAILED),
        (row(a_recovery_in(Phase.STOPPING), invalid=("healthd.dev/attempt: no number",)), GangState.INVALID),
    ],
)
def test_a_gang_has_one_state(found: GangRow, state: GangState) -> None:
    assert found.state is state


def test_a_gang_that_lost_its_attempt_needs_a_person_unless_a_recovery_is_at_work() -> None:
    later = [a_pod("train-0", node="node-0", status=RUNNING, annotations={ANNOTATION_ATTEMPT: "2"})]

    lost = gang_row(a_root(attempt=0), later, [], LATER)

    assert (lost.state, lost.message.partition(":")[0]) == (GangState.INVALID, ANNOTATION_ATTEMPT)
    assert gang_row(a_root(attempt=2), later, [], LATER).state is not GangState.INVALID
    given_back = a_root(attempt=0, options=GangOptions(restart=False))
    assert gang_row(given_back, later, [], LATER).state is not GangState.INVALID
    assert gang_row(a_root(attempt=1), later, [a_recovery_in(Phase.STARTING)], LATER).state is GangState.RESTARTING


def test_a_pod_that_ends_does_not_count_as_running() -> None:
    ending = a_pod("train-0", node="node-0", status=RUNNING, deletion_timestamp=START)
    other: list[Pod] = [ending, a_pod("train-1", status=PodStatus(phase="Pending"))]

    assert gang_row(a_root(), other, [], LATER).running == 0


def test_its_step_and_what_a_fault_would_cost_are_shown() -> None:
    saves = Saves(watched_since=START, good=[Save(step=7, at=START + timedelta(minutes=2))])
    found = row(saves=saves)

    assert (found.step, found.at_stake) == (7, 180)
    assert cells(found, LATER)[5:7] == ("7", "3m ago")


def test_the_time_of_the_save_is_that_of_the_step() -> None:
    saves = Saves(watched_since=START, good=[Save(step=7, at=START + timedelta(minutes=2))])
    found = row(saves=saves, progress=Progress(step=9, at=START + timedelta(minutes=4)))

    assert (found.step, found.at_stake) == (9, 60)
    assert cells(found, LATER)[5:7] == ("9", "1m ago")


def test_a_step_that_would_be_refused_is_shown_with_its_own_time() -> None:
    saves = Saves(good=[Save(step=7, at=START + timedelta(minutes=2))], refused="/c/step-9", why_refused="torn")
    found = row(saves=saves, progress=Progress(step=9, at=START + timedelta(minutes=4)))

    assert (found.step, found.at_stake) == (9, 180)
    assert cells(found, LATER)[5:7] == ("9", "1m ago")


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ({"options": GangOptions(restart=False)}, "may not restart it"),
        ({"invalid": ("healthd.dev/attempt: no number",)}, "no number"),
        ({"saves": Saves(watched_since=START, good=[Save(at=START)], none_loads=True)}, "no checkpoint would load"),
        ({"saves": Saves(watched_since=START, good=[Save(at=START)], concerns=[Concern.FULL])}, "nearly full"),
        ({"silence": QUIET}, "hangs: no rank has worked since 2026-01-01 00:00:00 UTC"),
        ({**STOPPED}, "recovery train-1 stopped it and is gone"),
    ],
)
def test_the_message_says_what_is_wrong(root: dict[str, Any], words: str) -> None:
    assert words in row(**root).message


def test_the_message_says_why_a_gang_is_stopped() -> None:
    given_up = row(a_recovery_in(Phase.GAVE_UP, message="3 restarts brought nothing"), running=0, **STOPPED)

    assert given_up.message == "3 restarts brought nothing"
    assert row(running=0, suspended=True).message == "its user stopped it"
    switched_off = a_recovery_in(Phase.SUPERSEDED, message="restarts of the gang were switched off; it stays stopped")
    assert row(switched_off, running=0, **STOPPED).message == (
        f"recovery {switched_off.metadata.name} stopped it, and does not start it: {switched_off.status.message}"
    )
    edited = row(switched_off, running=0, edited_since_stop=True, **STOPPED)
    assert edited.message == "its user changed it while it was stopped"
    assert row(running=0, suspended=True, unadmitted="its queue is full").message == "its queue is full"


def test_those_that_need_a_person_come_first() -> None:
    rows = [row(), row(a_recovery_in(Phase.GAVE_UP), **STOPPED), row(a_recovery_in(Phase.HELD))]
    states = [each.state for each in in_order(rows)]

    assert states == [GangState.HELD, GangState.GAVE_UP, GangState.RUNNING]
    assert {*states[:2]} <= NEED_A_PERSON


def test_there_is_a_cell_for_each_column() -> None:
    assert len(cells(row(), LATER)) == len(COLUMNS)
