"""What is said of a run's restarts: one line each, and a hold again and again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from healthd.core.api import Attempt, Cause, ChosenCheckpoint, FencedPod, Recovery, RecoveryStatus, TimelineEntry
from healthd.core.api.model import CauseKind, Phase
from healthd.local.reports.restarts import AGAIN, SLOW, Restarts, RunMessageKind, spoken
from tests.builders import a_recovery
from tests.fakes import START

KILLED = Cause(kind=CauseKind.SOFTWARE, message="rank 1 was killed (signal 9)", at=START)
BROKEN = Cause(kind=CauseKind.HARDWARE, node="slot-0", message="Xid 79", at=START)
STEP_20 = ChosenCheckpoint(path="/out/step-20", step=20, saved_ns=int((START.timestamp() - 3) * 1e9))


def after(seconds: float) -> Any:
    return START + timedelta(seconds=seconds)


def at(phase: Phase, *entries: tuple[Phase, float], causes: tuple[Cause, ...] = (KILLED,), **status: Any) -> Recovery:
    """A recovery in *phase*, with the phases before it and when each began."""
    timeline = [TimelineEntry(phase=each, at=after(seconds)) for each, seconds in entries]
    known = RecoveryStatus(phase=phase, timeline=timeline, causes=list(causes), **{"attempt": 1, **status})
    return a_recovery(cause=causes[0], status=known)


BEGAN = ((Phase.DETECTED, 0), (Phase.STOPPING, 0))
BACK: dict[str, Any] = {"checkpoint": STEP_20, "attempts": [Attempt(number=1, checkpoint=STEP_20)]}


def texts(restarts: Restarts, recovery: Recovery, seconds: float = 1, world: int = 2) -> list[str]:
    return [news.text for news in restarts.poll([recovery], world, after(seconds))]


def test_a_restart_is_one_line_once_all_ranks_run_again() -> None:
    restarts = Restarts(asked=2)

    assert texts(restarts, at(Phase.STOPPING, *BEGAN)) == []
    assert texts(restarts, at(Phase.STARTING, *BEGAN, (Phase.STARTING, 2), **BACK)) == []
    assert texts(restarts, at(Phase.CONFIRMING, *BEGAN, (Phase.CONFIRMING, 8), **BACK), 8) == [
        "rank 1 was killed (signal 9): all ranks again from step 20, back after 8 s (restart 1)"
    ]
    assert texts(restarts, at(Phase.RECOVERED, *BEGAN, (Phase.CONFIRMING, 8), **BACK), 9) == []
    assert (restarts.count, restarts.down, restarts.lost) == (1, timedelta(seconds=8), timedelta(seconds=3))


def test_it_says_which_spare_took_the_place_and_that_fewer_ranks_run() -> None:
    moved = at(
        Phase.CONFIRMING,
        *BEGAN,
        (Phase.CONFIRMING, 4),
        causes=(KILLED, BROKEN),
        replacements={"slot-0": "slot-2"},
        **BACK,
    )

    assert texts(Restarts(asked=2), moved, world=1) == [
        "slot-0: Xid 79: 1 of 2 ranks again from step 20, back after 4 s (restart 1); slot-2 in place of slot-0"
    ]


def test_work_since_the_ranks_were_started_is_lost_where_nothing_was_saved() -> None:
    restarts = Restarts(asked=2)
    ran = [FencedPod(name="a", uid="a", node="slot-0", since=after(-60))]
    fresh: dict[str, Any] = {
        "checkpoint": ChosenCheckpoint(),
        "attempts": [Attempt(number=1, checkpoint=ChosenCheckpoint())],
    }

    [line] = texts(restarts, at(Phase.CONFIRMING, *BEGAN, (Phase.CONFIRMING, 2), pods=ran, **fresh))

    assert "all ranks again from the beginning" in line
    assert restarts.lost == timedelta(minutes=1)


def test_each_restart_of_one_recovery_has_its_line_with_its_own_cause() -> None:
    restarts, again = (
        Restarts(asked=2),
        Cause(kind=CauseKind.SOFTWARE, message="rank 0 exited with code 3", at=after(20)),
    )
    once = (*BEGAN, (Phase.CONFIRMING, 5))
    texts(restarts, at(Phase.CONFIRMING, *once, **BACK))
    twice = at(
        Phase.CONFIRMING,
        *once,
        (Phase.STOPPING, 20),
        (Phase.CONFIRMING, 26),
        causes=(KILLED, again),
        attempt=2,
        checkpoint=STEP_20,
        attempts=[Attempt(number=1, checkpoint=STEP_20), Attempt(number=2, checkpoint=STEP_20)],
    )

    assert texts(restarts, twice) == [
        "rank 0 exited with code 3: all ranks again from step 20, back after 6 s (restart 2)"
    ]


def test_a_start_that_fails_is_reported_and_counts() -> None:
    restarts = Restarts(asked=2)
    texts(restarts, at(Phase.STARTING, *BEGAN, (Phase.STARTING, 2), **BACK))
    failed = at(
        Phase.STOPPING,
        *BEGAN,
        (Phase.STARTING, 2),
        (Phase.STOPPING, 3),
        causes=(KILLED, KILLED),
        **{**BACK, "attempt": 2},
    )

    assert texts(restarts, failed) == ["restart 1 failed: rank 1 was killed (signal 9), before all ranks ran"]
    assert restarts.count == 1


def test_a_hold_is_reported_with_the_way_out_and_again_every_ten_minutes() -> None:
    restarts = Restarts(asked=2)
    held = at(
        Phase.HELD, *BEGAN, (Phase.HELD, 1), held_in=Phase.RESERVING, message="no spare for slot-0", causes=(BROKEN,)
    )

    [first] = restarts.poll([held], 2, after(1))
    quiet = restarts.poll([held], 2, after(2))
    [again] = restarts.poll([held], 2, after(1) + AGAIN)

    assert (first.kind, first.text) == (RunMessageKind.HOLD, "the run waits: no spare for slot-0")
    assert "healthd repair" in first.hint
    assert quiet == []
    assert again.text == "the run waits for 10 min: no spare for slot-0"
    assert texts(restarts, at(Phase.RESERVING, *BEGAN, (Phase.RESERVING, 700)), 700)[0] == "the run waits no longer"


def test_a_slow_restart_says_once_what_it_is_at() -> None:
    restarts, slow = Restarts(asked=2), at(Phase.STOPPING, *BEGAN)

    [line] = texts(restarts, slow, SLOW.total_seconds())

    assert line == "rank 1 was killed (signal 9): the other ranks are asked to end, and get their grace"
    assert texts(restarts, slow, 2 * SLOW.total_seconds()) == []


def test_a_back_off_is_reported() -> None:
    waits = at(Phase.RESERVING, *BEGAN, (Phase.RESERVING, 1), not_before=after(21), no_advance=2, checkpoint=STEP_20)

    assert texts(Restarts(asked=2), waits) == [
        "2 restarts in a row brought nothing beyond step 20: the next one waits 20 s"
    ]


def test_what_was_over_before_is_of_an_earlier_life() -> None:
    restarts, over = Restarts(asked=2), at(Phase.RECOVERED, *BEGAN, (Phase.CONFIRMING, 5), **BACK)
    restarts.skip([over])

    assert texts(restarts, over) == []


def test_a_restart_that_the_killed_healthd_has_reported_did_not_fail() -> None:
    restarts, once = Restarts(asked=2), (*BEGAN, (Phase.CONFIRMING, 5))
    restarts.skip([at(Phase.CONFIRMING, *once, **BACK)])
    killed = Cause(kind=CauseKind.INTERRUPTED, message="rank 0 lost its supervisor", at=after(60))
    again: dict[str, Any] = {"causes": (KILLED, killed), "attempt": 2, "checkpoint": STEP_20}
    attempts = [Attempt(number=1, checkpoint=STEP_20), Attempt(number=2, checkpoint=STEP_20)]

    assert texts(restarts, at(Phase.STOPPING, *once, (Phase.STOPPING, 60), attempts=attempts[:1], **again), 61) == []
    assert texts(
        restarts, at(Phase.CONFIRMING, *once, (Phase.STOPPING, 60), (Phase.CONFIRMING, 62), attempts=attempts, **again)
    ) == ["rank 0 lost its supervisor: all ranks again from step 20, back after 2 s (restart 1)"]


def test_a_restart_that_the_killed_healthd_began_is_reported_by_the_next_one() -> None:
    restarts = Restarts(asked=2)
    restarts.skip([at(Phase.STOPPING, *BEGAN)])

    assert texts(restarts, at(Phase.CONFIRMING, *BEGAN, (Phase.CONFIRMING, 8), **BACK)) == [
        "rank 1 was killed (signal 9): all ranks again from step 20, back after 8 s (restart 1)"
    ]


def test_durations_are_said_as_people_say_them() -> None:
    cause_text = [spoken(timedelta(seconds=seconds)) for seconds in (0.42, 8, 59.4, 200, 7500)]

    assert cause_text == ["0.4 s", "8 s", "59 s", "3 min 20 s", "2 h 5 min"]
