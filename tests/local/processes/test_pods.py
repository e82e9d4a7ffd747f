"""What the kubelet of this machine does about one pod."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from healthd.core.api import Condition, Pod, PodStatus
from healthd.local.processes.pods import (
    Act,
    EndLost,
    RankExit,
    RankView,
    Remove,
    Start,
    StopRank,
    Wait,
    WriteStatus,
    begun,
    decide_pod,
    ended,
    running,
    with_condition,
)
from tests.builders import a_pod
from tests.fakes import START

LATER = START + timedelta(seconds=5)
RUNNING = PodStatus(phase="Running", start_time=START)
FAILED = PodStatus(phase="Failed", start_time=START)
STARTED = RankView(pid=100)
FAILURE = RankExit(exit_code=3, reason="Error", message="exit code 3; no process of it is left")


def bound(status: PodStatus | None = None, *, delete_at: datetime | None = None, grace: int | None = None) -> Pod:
    return a_pod(
        node="slot-0", status=status, deletion_timestamp=delete_at, deletion_grace_period_seconds=grace
    )  # fmt: skip


def decided(pod: Pod, rank: RankView | None, *, may_start: bool = True, begun_here: bool = True) -> Act:
    return decide_pod(pod, rank, may_start=may_start, begun_here=begun_here, now=LATER)


@pytest.mark.parametrize(
    ("pod", "rank", "act"),
    [
        pytest.param(bound(), None, Start(), id="a new pod is started"),
        pytest.param(bound(), RankView(), Wait(), id="one that is being started is waited for"),
        pytest.param(bound(RUNNING), STARTED, Wait(), id="one that runs is left alone"),
        pytest.param(bound(RUNNING, delete_at=LATER), STARTED, StopRank(timedelta(0)), id="grace is over"),
        pytest.param(
            bound(RUNNING, delete_at=LATER + timedelta(seconds=7)),
            STARTED,
            StopRank(timedelta(seconds=7)),
            id="grace left",
        ),
        pytest.param(bound(RUNNING, delete_at=START), STARTED, StopRank(timedelta(0)), id="long past its grace"),
        pytest.param(bound(FAILED), None, Wait(), id="what has ended stays"),
        pytest.param(bound(FAILED, delete_at=START, grace=30), None, Remove(), id="ended and deleted: removed"),
        pytest.param(bound(FAILED, delete_at=START, grace=0), None, Wait(), id="only a finalizer keeps it"),
        pytest.param(bound(FAILED), STARTED, StopRank(timedelta(0)), id="called ended by another, yet alive"),
    ],
)
def test_the_next_act(pod: Pod, rank: RankView | None, act: Act) -> None:
    assert decided(pod, rank) == act


def test_a_slot_that_is_not_free_is_waited_for() -> None:
    assert decided(bound(), None, may_start=False) == Wait()


def test_what_an_earlier_life_began_is_ended_and_not_begun_again() -> None:
    pod = bound(PodStatus(start_time=START))

    assert decided(pod, None, begun_here=False) == EndLost()
    assert decided(pod, None, begun_here=True) == Start()


def test_a_deleted_pod_of_an_earlier_life_needs_the_proof_too() -> None:
    assert decided(bound(RUNNING, delete_at=START), None, begun_here=False) == EndLost()


def test_a_started_pod_is_reported_running_and_ready() -> None:
    pod = bound(begun(bound(), START))
    act = decided(pod, STARTED)

    assert act == WriteStatus(running(pod, LATER))
    assert isinstance(act, WriteStatus)
    assert act.status.phase == "Running"
    assert [(c.type, c.status) for c in act.status.conditions] == [("PodScheduled", "True"), ("Ready", "True")]
    assert [status.ready for status in act.status.container_statuses] == [True]


def test_an_ending_is_reported_with_its_times() -> None:
    pod = bound(running(bound(), START))
    status = ended(pod, FAILURE, LATER)
    end = status.container_statuses[0].state.terminated

    assert decided(pod, RankView(pid=100, ending=FAILURE)) == WriteStatus(status)
    assert (status.phase, status.reason, status.message) == ("Failed", "Error", FAILURE.message)
    assert end is not None
    assert (end.exit_code, end.started_at, end.finished_at) == (3, START, LATER)


def test_an_end_that_could_not_be_reported_at_once_keeps_its_time() -> None:
    pod = bound(running(bound(), START))
    seen = START + timedelta(seconds=1)

    assert decided(pod, RankView(pid=100, ending=FAILURE, ended_at=seen)) == WriteStatus(ended(pod, FAILURE, seen))


def test_exit_code_0_is_success() -> None:
    assert ended(bound(RUNNING), RankExit(exit_code=0, reason="Completed"), LATER).phase == "Succeeded"


def test_conditions_of_others_survive_every_report() -> None:
    disrupted = Condition(type="DisruptionTarget", status="True", last_transition_time=START)
    pod = bound(PodStatus(conditions=[disrupted]))

    for status in (begun(pod, LATER), running(pod, LATER), ended(pod, FAILURE, LATER)):
        assert disrupted in status.conditions


def test_the_time_of_a_condition_moves_only_with_its_status() -> None:
    first = with_condition([], Condition(type="Ready", status="True"), START)
    same = with_condition(first, Condition(type="Ready", status="True", message="still"), LATER)
    other = with_condition(same, Condition(type="Ready", status="False"), LATER)

    assert [c.last_transition_time for c in (first[0], same[0], other[0])] == [START, START, LATER]
