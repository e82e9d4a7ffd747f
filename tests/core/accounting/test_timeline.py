"""A gang's time is cut into intervals without a gap or an overlap, whatever is done to it."""

from __future__ import annotations

import msgspec
import pytest

from healthd.core.accounting.timeline import counted, extend, take_back, totals
from healthd.core.api.gpu_time import KEPT_INTERVALS, GpuTime, LossCause, Part
from tests.core.accounting.lives import an_account, gpu_minutes, ms


def test_time_that_is_divided_is_not_divided_again() -> None:
    account = extend(an_account(), ms(10), Part.PRODUCTIVE)

    assert extend(account, ms(10), Part.STARTING, LossCause.XID) is account
    assert extend(account, ms(5), Part.STARTING, LossCause.XID) is account


def test_work_is_taken_back_in_the_middle_of_an_interval() -> None:
    account = extend(an_account(gpus=1), ms(10), Part.PRODUCTIVE)
    account = extend(account, ms(12), Part.STARTING, LossCause.HANG)
    account = extend(account, ms(20), Part.PRODUCTIVE)

    back = take_back(account, ms(7), LossCause.XID)

    assert gpu_minutes(back) == {"productive": 7, "redone/xid": 3 + 8, "starting/hang": 2}


def test_members_that_are_left_out_are_lost_while_the_others_train() -> None:
    account = an_account(gpus=16, missing=4, shrunk_by=LossCause.XID)

    account = extend(extend(account, ms(10), Part.PRODUCTIVE), ms(11), Part.STOPPING, LossCause.HANG)

    assert gpu_minutes(account) == {"productive": 120, "shrunk/xid": 40, "stopping/hang": 16}


def test_old_intervals_are_added_up_and_nothing_is_lost() -> None:
    account = an_account(gpus=3)
    for minute in range(1, 4 * KEPT_INTERVALS):
        account = extend(account, ms(minute), Part.PRODUCTIVE if minute % 2 else Part.STARTING, LossCause.XID)

    assert len(account.recent) == KEPT_INTERVALS
    assert gpu_minutes(account) == {"productive": 3 * 2 * KEPT_INTERVALS, "starting/xid": 3 * (2 * KEPT_INTERVALS - 1)}


def test_counters_do_not_go_back_when_work_is_taken_back() -> None:
    first = extend(an_account(gpus=1), ms(10), Part.PRODUCTIVE)
    first, grown = counted(None, first)
    second, taken = counted(first, take_back(first, ms(4), LossCause.XID))
    third, later = counted(second, extend(second, ms(17), Part.PRODUCTIVE))

    assert grown == {"productive": 600_000}
    assert taken == {"redone/xid": 360_000}
    assert later == {"productive": 60_000}
    assert not third.owed
    assert grown + taken + later == totals(third)


def test_an_account_is_the_same_after_it_was_stored() -> None:
    account = extend(extend(an_account(missing=8), ms(10), Part.PRODUCTIVE), ms(11), Part.HELD, LossCause.NVML)

    assert msgspec.json.decode(msgspec.json.encode(account), type=GpuTime) == account


@pytest.mark.parametrize(
    "text",
    [
        '{"since":5,"start":5,"recent":[[4,"productive","xid",1,0]]}',
        '{"since":5,"start":5,"totals":{"fortune/xid":3}}',
        '{"since":5,"start":5,"totals":{"productive":-3}}',
        '{"since":5,"start":1e300}',
    ],
)
def test_what_a_user_invents_is_no_account(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=GpuTime)
