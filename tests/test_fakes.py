"""
The fakes keep what they promise, or every test that stands on them says little.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.fakes import START, ManualClock, counting_uids, settle

SECOND = timedelta(seconds=1)


async def test_sleeper_waits_until_the_clock_is_turned_far_enough() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(3 * SECOND))
    await settle()
    clock.advance(2 * SECOND)
    await settle()
    early = sleeper.done()
    clock.advance(SECOND)
    await settle()

    assert not early
    assert sleeper.done()


async def test_sleepers_wake_in_order_of_their_deadlines() -> None:
    clock, woken = ManualClock(), []

    async def sleep(seconds: int) -> None:
        await clock.sleep(seconds * SECOND)
        woken.append(seconds)

    sleepers = [asyncio.create_task(sleep(seconds)) for seconds in (3, 1, 2)]
    await settle()
    clock.advance(3 * SECOND)
    await asyncio.gather(*sleepers)

    assert woken == [1, 2, 3]


async def test_run_for_wakes_each_sleeper_at_its_time() -> None:
    clock, seen = ManualClock(), []

    async def tick() -> None:
        while True:
            await clock.sleep(2 * SECOND)
            seen.append(clock.now() - START)

    ticking = asyncio.create_task(tick())
    await clock.run_for(5 * SECOND)
    ticking.cancel()

    assert seen == [2 * SECOND, 4 * SECOND]
    assert clock.now() == START + 5 * SECOND


async def test_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    sleeper = asyncio.create_task(clock.sleep(SECOND))
    await settle()
    sleeper.cancel()
    await settle()

    assert clock.next_deadline() is None


async def test_sleep_of_no_length_gives_way_once() -> None:
    clock = ManualClock()
    await clock.sleep(timedelta(0))

    assert clock.now() == START


def test_uids_count() -> None:
    new_uid = counting_uids("pod")

    assert [new_uid(), new_uid()] == ["pod-1", "pod-2"]
