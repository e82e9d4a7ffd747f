"""An account follows what is recorded of its gang, and is the same however often it is brought up to date."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.accounting.recoveries import Saving
from healthd.core.accounting.settle import as_of, gpus_of, is_due, settle
from healthd.core.api import Recovery
from healthd.core.api.gpu_time import GpuTime
from healthd.core.api.model import Phase
from healthd.core.recovery.gang import GangOptions, RootOutcome
from tests.core.accounting.lives import a_life, a_view, an_account, at, gpu_minutes, members, ms, saved, seen, xid
from tests.core.gangs import a_root

STOPPED_BY_US = {"suspended": True, "stopped_by": "train-1"}


def settled(account: GpuTime | None, minutes: float, *recoveries: Recovery, pods: Any = None, **root: Any) -> GpuTime:
    after = settle(account, a_view(a_root(**root), pods), recoveries, at(minutes))
    assert after is not None
    return after


def a_restart(began: float = 20, ended: float = 40) -> Recovery:
    way = [
        (began, Phase.DETECTED),
        (began + 1, Phase.STOPPING),
        (began + 2, Phase.RESERVING),
        (began + 3, Phase.STARTING),
        (began + 4, Phase.CONFIRMING),
        (ended, Phase.RECOVERED),
    ]
    return a_life(way, causes=[xid(began)], resumed=[saved(1, began - 2)], confirmed=2)


def test_steps_make_time_productive_and_nothing_else_does() -> None:
    account = settled(None, 0, progress=seen(1, -5, every=10))
    account = settled(account, 30, progress=seen(1, -5, every=10))
    before = gpu_minutes(account)
    account = settled(account, 31, progress=seen(2, 30, every=10))

    assert before == {}
    assert gpu_minutes(account) == {"productive": 16 * 30}


def test_a_gang_that_shows_no_steps_is_never_productive() -> None:
    account = settled(None, 0, options=GangOptions(restart=True))
    account = settled(account, 60, options=GangOptions(restart=True), ending=RootOutcome.COMPLETE)

    assert gpu_minutes(account) == {"unverified": 16 * 60}


def test_the_first_steps_of_a_gang_do_not_show_how_long_it_took_to_start() -> None:
    account = settled(None, 0)
    account = settled(account, 12, progress=seen(1, 12))
    account = settled(account, 22, progress=seen(2, 22))

    assert gpu_minutes(account) == {"unverified": 16 * 12, "productive": 16 * 10}


def test_waiting_for_pods_and_being_suspended_are_not_ours() -> None:
    account = settled(None, 0, pods=members(1, phase="Pending"))
    account = settled(account, 10, started_at=at(0))
    account = settled(account, 30, progress=seen(1, 30, every=15), started_at=at(0))
    account = settled(account, 36, progress=seen(1, 30, every=15), suspended=True, pods=[])
    account = settled(account, 60, progress=seen(1, 30, every=15), started_at=at(58))

    assert gpu_minutes(account) == {
        "queued": 16 * 10,
        "startup/user": 16 * 5,
        "productive": 16 * 15,
        "redone/user": 16 * 6,
        "suspended": 16 * 22,
    }


def test_a_restart_by_its_own_controller_costs_the_work_since_the_last_step() -> None:
    account = settled(None, 0, progress=seen(1, -1, every=10))
    account = settled(account, 10, progress=seen(2, 10, every=10))
    account = settled(account, 14, progress=seen(2, 10, every=10), own_restarts=1, pods=members(phase="Pending"))
    account = settled(account, 16, progress=seen(2, 10, every=10), own_restarts=1)
    account = settled(account, 29, progress=seen(3, 29, every=10), own_restarts=1)

    assert gpu_minutes(account) == {
        "productive": 16 * 20,
        "redone/unknown": 16 * 4,
        "starting/unknown": 16 * 2,
        "startup/unknown": 16 * 3,
    }


def test_the_end_of_a_gang_that_completes_was_training() -> None:
    account = settled(None, 0, progress=seen(1, -1))
    account = settled(account, 7, progress=seen(1, -1), ending=RootOutcome.COMPLETE)
    account = settled(account, 900, progress=seen(1, -1), ending=RootOutcome.COMPLETE)

    assert gpu_minutes(account) == {"productive": 16 * 7}


def test_a_recovery_counts_once_when_it_has_ended() -> None:
    recovery, progress = a_restart(), seen(1, 19, every=10)
    account = settled(None, 0, progress=seen(0, -1, every=10))
    account = settled(account, 19, progress=progress)
    running = replace(recovery, status=replace(recovery.status, phase=Phase.CONFIRMING))
    during = settled(account, 30, running, progress=progress)
    after = settled(during, 41, recovery, progress=progress, attempt=1)
    again = settled(after, 42, recovery, progress=progress, attempt=1)

    assert during == account
    assert again == after
    assert gpu_minutes(after)["redone/xid"] == 16 * 2
    assert sum(gpu_minutes(after).values()) == 16 * 40


def test_two_recoveries_that_ended_while_no_controller_ran_are_both_counted() -> None:
    account = settled(None, 0, progress=seen(0, -1, every=10))
    after = settled(account, 100, a_restart(60, 80), a_restart(20, 40), progress=seen(1, 19, every=10), attempt=2)

    assert gpu_minutes(after)["stopping/xid"] == 16 * 2
    assert sum(gpu_minutes(after).values()) == 16 * 80


def test_a_gang_that_was_given_up_is_lost_until_its_user_starts_it() -> None:
    way = [(6.0, Phase.DETECTED), (7.0, Phase.STOPPING), (8.0, Phase.GAVE_UP)]
    recovery = a_life(way, causes=[xid(5)])
    account = settled(None, 0, progress=seen(0, -1))
    account = settled(account, 30, recovery, progress=seen(0, -1), pods=[], **STOPPED_BY_US)
    account = settled(account, 40, recovery, progress=seen(0, -1), started_at=at(38))

    assert gpu_minutes(account)["gave_up/xid"] == 16 * 30


def test_members_that_a_recovery_left_out_are_lost_to_its_cause_until_they_are_back() -> None:
    recovery = a_restart()
    account = settled(None, 0, progress=seen(1, -1, every=10))
    account = settled(account, 41, recovery, world=1, attempt=1, progress=seen(1, 19, every=10))
    account = settled(account, 60, recovery, world=1, attempt=1, progress=seen(3, 60, every=10))
    shrunk = gpu_minutes(account)["shrunk/xid"]
    account = settled(account, 61, recovery, world=2, attempt=1, progress=seen(3, 60, every=10))

    assert shrunk == 8 * 20
    assert (account.gpus, account.missing) == (16, 0)


def test_a_gang_that_its_user_makes_smaller_misses_no_member() -> None:
    account = settled(None, 0)

    assert settled(account, 5, world=1).missing == 0


@pytest.mark.parametrize(
    ("pods", "gpus"),
    [(members(), 16), (members(1), 16), (members(gpus=0), 2), ((*members(1), *members(1, gpus=0)), 8), ((), 0)],
    ids=["all", "one is not made yet", "no GPUs", "a launcher", "none"],
)
def test_the_gpus_of_a_gang(pods: Any, gpus: int) -> None:
    assert gpus_of(a_view(a_root(world=2), pods)) == gpus


def test_an_account_from_before_its_gang_is_begun_anew() -> None:
    account = settled(an_account(since=0, start=0, run_since=0), 60, created_at=at(50), progress=seen(1, 59))

    assert account.since == ms(60)


def test_an_account_that_ends_after_now_is_begun_anew() -> None:
    account = settled(an_account(start=ms(0) + 10**12), 60, progress=seen(1, 59))

    assert account.since == ms(60)


def test_what_a_recovery_costs_shows_before_it_has_ended() -> None:
    held = a_life(
        [(10, Phase.DETECTED), (10, Phase.STOPPING), (11, Phase.RESERVING), (11, Phase.HELD)], causes=[xid(10)]
    )

    now = as_of(an_account(), held, Saving(), at(71))

    assert gpu_minutes(now)["no_spare/xid"] == 16 * 60


def test_it_is_stored_when_something_happened_and_else_rarely() -> None:
    account = settled(None, 0, progress=seen(1, -1, every=1))
    soon, later = (settled(account, when, progress=seen(2, when, every=1)) for when in (1, 6))
    suspended = settled(account, 1, suspended=True, pods=[])

    assert [is_due(account, after) for after in (account, soon, later, suspended)] == [False, False, True, True]


def test_a_gang_that_stands_still_is_stored_once_an_hour() -> None:
    account = settled(settled(None, 0), 1, suspended=True, pods=[])
    soon, later = (settled(account, when, suspended=True, pods=[]) for when in (50, 62))

    assert [is_due(account, after) for after in (soon, later)] == [False, True]


def test_a_gang_without_a_root_or_members_has_no_account_yet() -> None:
    assert settle(None, a_view(a_root(), []), (), at(0)) is None
