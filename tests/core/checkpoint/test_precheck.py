"""What a fault would cost now, and what is wrong with the saving of a gang, before the fault."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from healthd.core.api import ChosenCheckpoint, RejectedCheckpoint
from healthd.core.api.save_stats import KEPT_SAVES, Concern, Save, Saves
from healthd.core.checkpoint.precheck import (
    changes_in,
    lost_work,
    refusing,
    refusing_if_emptied,
    take_report,
    take_silence,
    usual_interval,
    worries,
)
from healthd.core.checkpoint.verification import VerificationReport
from healthd.core.config import PrecheckPolicy
from healthd.core.recovery.gang import GangOptions, Root, RootOutcome
from healthd.core.recovery.progress import Progress
from tests.core.gangs import a_root
from tests.fakes import START

POLICY = PrecheckPolicy()
GB = 10**9


def after(**fields: float) -> datetime:
    """So long after the start of time."""
    return START + timedelta(**fields)


def saves(count: int, *, every: float = 10, seconds: float = 5) -> Saves:
    """Good checkpoints from the start of time, so many minutes apart."""
    return Saves(
        good=[Save(step=n, at=after(minutes=n * every), size=GB, seconds=seconds) for n in range(1, count + 1)]
    )


def a_gang(known: Saves, **fields: Any) -> Root:
    return a_root(saves=known, **fields)


def a_report(step: int = 1, *, saved: datetime = START, refused: str = "", **fields: Any) -> VerificationReport:
    found = ChosenCheckpoint(path=f"/c/step_{step}", step=step, saved_ns=int(saved.timestamp() * 1e9))
    rejected = [RejectedCheckpoint(path=refused, step=step + 1, reason="torn")] if refused else []
    return VerificationReport(found=found, rejected=rejected, size=GB, **fields)


EMPTY = VerificationReport()


def concerns(
    root: Root, report: VerificationReport = EMPTY, *, now: datetime, policy: PrecheckPolicy = POLICY
) -> list[Concern]:
    return [worry.concern for worry in worries(root, report, policy, now)]


# What is remembered ---------------------------------------------------------------------------------------------------


def test_a_new_good_checkpoint_is_remembered_once() -> None:
    once = take_report(Saves(), a_report(1), START)
    twice = take_report(once, a_report(1), after(minutes=5))

    assert [save.step for save in twice.good] == [1]
    assert twice == once


def test_a_checkpoint_whose_name_stays_counts_when_it_was_saved_again() -> None:
    once = take_report(Saves(), a_report(-1), after(minutes=1))
    again = take_report(once, a_report(-1, saved=after(minutes=9)), after(minutes=10))

    assert [save.at for save in again.good] == [START, after(minutes=9)]


def test_a_step_that_was_done_again_counts_from_its_second_save() -> None:
    again = take_report(saves(5), a_report(5, saved=after(hours=2)), after(hours=2))

    assert [save.step for save in again.good] == [1, 2, 3, 4, 5]
    assert again.good[-1].at == after(hours=2)


def test_steps_that_go_back_are_a_new_run() -> None:
    again = take_report(saves(5), a_report(2, saved=after(hours=2)), after(hours=2))

    assert [save.step for save in again.good] == [2]


def test_the_clock_of_a_store_that_goes_fast_makes_no_save_of_tomorrow() -> None:
    (save,) = take_report(Saves(), a_report(1, saved=after(hours=1)), START).good

    assert save.at == START


def test_only_so_many_are_kept() -> None:
    known = Saves()
    for step in range(100):
        known = take_report(known, a_report(step, saved=after(minutes=step)), after(minutes=step))

    assert [save.step for save in known.good] == list(range(100 - KEPT_SAVES, 100))


# How late -------------------------------------------------------------------------------------------------------------


def test_what_is_usual_is_known_after_a_few_saves() -> None:
    assert usual_interval(a_gang(saves(3))) is None
    assert usual_interval(a_gang(saves(4))) == timedelta(minutes=10)


def test_the_steps_that_were_seen_as_they_came_report_better() -> None:
    root = a_gang(saves(4), progress=Progress(step=4, intervals=[60.0, 60.0, 600.0]))

    assert usual_interval(root) == timedelta(minutes=1)


@pytest.mark.parametrize(("minutes", "expected"), [(29, []), (31, [Concern.LATE])])
def test_a_gang_is_late_after_three_times_its_interval(minutes: int, expected: list[Concern]) -> None:
    assert concerns(a_gang(saves(4)), now=after(minutes=40 + minutes)) == expected


def test_a_gang_that_saves_every_few_seconds_is_not_late_at_once() -> None:
    assert concerns(a_gang(saves(5, every=0.1)), now=after(minutes=9)) == []


def test_the_time_before_a_restart_does_not_make_it_late() -> None:
    root = a_gang(saves(4), started_at=after(hours=5))

    assert concerns(root, now=after(hours=5, minutes=5)) == []


def test_a_gang_that_never_saved_is_late_in_the_end() -> None:
    root = a_gang(Saves(), started_at=START)

    assert concerns(root, now=after(hours=5)) == []
    assert concerns(root, now=after(hours=7)) == [Concern.LATE]


def test_nothing_is_said_of_a_gang_of_which_nothing_is_known() -> None:
    assert concerns(a_gang(Saves()), now=after(days=9)) == []


# What else is wrong ---------------------------------------------------------------------------------------------------


def test_one_that_is_being_written_is_no_worry_and_one_that_stays_refused_is() -> None:
    written = a_report(1, refused="/c/step_2")
    first = take_report(Saves(), written, START)
    second = take_report(first, written, after(minutes=5))

    assert concerns(a_gang(first), written, now=START) == []
    assert concerns(a_gang(second), written, now=after(minutes=5)) == [Concern.REFUSED]


def test_another_one_that_is_refused_is_a_new_matter() -> None:
    first = take_report(Saves(), a_report(1, refused="/c/step_2"), START)
    second = take_report(first, a_report(2, refused="/c/step_3"), after(minutes=5))

    assert concerns(a_gang(second), now=after(minutes=5)) == []


def test_a_place_where_nothing_loads_would_hold_the_gang() -> None:
    nothing = VerificationReport(
        rejected=[RejectedCheckpoint(path="/c/step_1", step=1, reason="no known checkpoint format")]
    )
    known = take_report(take_report(Saves(), nothing, START), nothing, after(minutes=5))

    (worry,) = worries(a_gang(known), nothing, POLICY, after(minutes=5))
    assert worry.concern is Concern.REFUSED
    assert "would hold the gang" in worry.message
    assert "no known checkpoint format" in worry.message


def test_what_is_certain_is_a_worry_at_once() -> None:
    root = a_gang(Saves())
    wrong = refusing(root, "no such format")
    root = a_gang(take_report(Saves(), wrong, START))

    assert concerns(root, wrong, now=START) == []
    (worry,) = worries(root, wrong, POLICY, START, certain=True)
    assert worry.message == "a fault now would hold the gang; /checkpoints would be refused: no such format"


def silent_since(known: Saves, *minutes: int) -> Root:
    """A gang whose store did not answer at these times."""
    for minute in minutes:
        known = take_silence(a_gang(known), "no answer", after(minutes=minute))
    return a_gang(known)


def test_a_store_that_does_not_answer_twice_is_a_worry_and_what_was_good_may_be_so_still() -> None:
    root = silent_since(saves(4), 41, 46)

    assert concerns(silent_since(saves(4), 41), now=after(minutes=41)) == []
    (worry,) = worries(root, EMPTY, POLICY, after(minutes=46))
    assert worry.concern is Concern.REFUSED
    assert worry.message == "whether step 4 of 2026-01-01 00:40 UTC would be resumed from is not known: no answer"
    assert lost_work(root, after(minutes=46)) == timedelta(minutes=6)


def test_a_store_that_never_answered_reports_nothing_good() -> None:
    (worry,) = worries(silent_since(Saves(), 1, 6), EMPTY, POLICY, after(minutes=6))

    assert worry.message == "whether anything would be resumed from is not known: no answer"


def test_checkpoints_that_are_all_gone_are_refused() -> None:
    gone = refusing_if_emptied(a_gang(saves(4)), EMPTY)

    assert "nothing is there any more, though step 4" in gone.rejected[0].reason


def test_a_place_where_nothing_was_saved_yet_or_something_is_left_is_as_it_is_reported() -> None:
    left = a_report(4)

    assert refusing_if_emptied(a_gang(Saves()), EMPTY) is EMPTY
    assert refusing_if_emptied(a_gang(saves(4)), left) is left


def with_writes(*seconds: float) -> Root:
    good = [Save(step=n, at=after(minutes=n), size=GB, seconds=took) for n, took in enumerate(seconds)]
    return a_gang(Saves(good=good))


@pytest.mark.parametrize(
    ("seconds", "is_slower"),
    [
        ((20, 20, 20, 50, 55), True),
        ((20, 20, 20, 50, 20), False),
        ((20, 20, 20, 20, 50), False),
        ((2, 2, 2, 8, 9), False),
        ((100, 100, 100, 150, 150), False),
        ((20, 50, 50), False),
    ],
)
def test_writes_are_slower_when_two_in_a_row_took_twice_as_long(seconds: tuple[float, ...], is_slower: bool) -> None:
    assert (Concern.SLOWER in concerns(with_writes(*seconds), now=after(minutes=5))) is is_slower


@pytest.mark.parametrize(("free", "is_full"), [(2.9 * GB, True), (3 * GB, False), (-1, False), (0, True)])
def test_room_for_fewer_than_three_more_is_said(free: float, is_full: bool) -> None:
    assert (concerns(a_gang(saves(1)), a_report(free=int(free)), now=after(minutes=11)) == [Concern.FULL]) is is_full


def test_a_look_that_comes_to_nothing_does_not_say_that_there_is_room_again() -> None:
    full = a_gang(Saves(good=saves(1).good, concerns=[Concern.FULL]))

    assert concerns(full, now=after(minutes=11)) == [Concern.FULL]
    assert concerns(full, a_report(free=9 * GB), now=after(minutes=11)) == []


def test_what_began_and_what_is_over_is_reported_once() -> None:
    found = worries(a_gang(saves(4)), EMPTY, POLICY, after(hours=9))

    began, over = changes_in([Concern.FULL], found)
    assert ([worry.concern for worry in began], over) == ([Concern.LATE], [Concern.FULL])
    assert changes_in([Concern.LATE], found) == ([], [])


# What a fault would cost ----------------------------------------------------------------------------------------------


def test_a_fault_costs_the_work_since_the_last_good_checkpoint() -> None:
    assert lost_work(a_gang(saves(4)), after(minutes=47)) == timedelta(minutes=7)


def test_a_gang_that_was_just_set_going_has_little_to_lose() -> None:
    assert lost_work(a_gang(saves(4), started_at=after(hours=5)), after(hours=5, minutes=1)) == timedelta(minutes=1)


def test_before_anybody_has_looked_no_one_knows_what_it_would_cost() -> None:
    looked = take_report(Saves(), EMPTY, START)

    assert lost_work(a_gang(Saves(), started_at=START), after(hours=1)) is None
    assert lost_work(a_gang(looked, started_at=START), after(hours=1)) == timedelta(hours=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"suspended": True},
        {"deleting": True},
        {"ending": RootOutcome.COMPLETE},
        {"has_begun": False},
        {"options": GangOptions(checkpoint="/c")},
        {"options": GangOptions(restart=True)},
    ],
)
def test_a_gang_that_does_not_run_or_save_loses_nothing(fields: dict[str, Any]) -> None:
    assert lost_work(a_gang(saves(4), **fields), after(hours=1)) is None
