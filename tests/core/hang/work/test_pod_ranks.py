"""Which rank of a pod is named by the times of main threads. They are made up, and read when they are due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from random import Random

import pytest

from healthd.core.api.health import PodSlowRank
from healthd.core.hang.work.pod_ranks import ALONE_FOR, PodRanks
from healthd.core.hang.work.rank_time import RankTime
from tests.fakes import START

SECOND = timedelta(seconds=1)
EVEN = dict.fromkeys(range(8, 16), 0.5)


class Pod:
    """A pod with the ranks 8 to 15 of its gang, whose steps take a second."""

    def __init__(self, seed: int = 7) -> None:
        self.ranks = PodRanks()
        self.dice = Random(seed)
        self.now = START
        self.pids = {number: 100 + number for number in EVEN}
        self.ran: dict[int, float] = dict.fromkeys(EVEN, 30.0)
        self.own_waits: dict[int, float] = dict.fromkeys(EVEN, 0.0)
        self.sleeps: dict[int, float] = {}
        """The share of the time in which each waits for something of its own."""
        self.reads = 0
        self.answers = True

    def run(self, time: timedelta, shares: Mapping[int, float] = EVEN) -> Sequence[PodSlowRank]:
        """So long, with such shares of the time in which main threads run."""
        until = self.now + time
        while self.now < until:
            self.now += SECOND
            for number, share in shares.items():
                self.ran[number] += max(0.0, self.dice.gauss(share, 0.03))
            for number, share in self.sleeps.items():
                self.own_waits[number] += max(0.0, self.dice.gauss(share, 0.03))
            if self.ranks.is_due(1.0, self.now):
                self.reads += 1
                self.ranks.observe(self.times(shares) if self.answers else (), 1.0, self.now)
        return self.ranks.slow

    def times(self, shares: Mapping[int, float]) -> list[RankTime]:
        return [
            RankTime(number=each, pid=self.pids[each], ran=self.ran[each], starved=0.0, own_waits=self.own_waits[each])
            for each in reversed(list(shares))
        ]

    def start_again(self) -> None:
        """The launcher starts all ranks anew."""
        self.pids = {number: pid + 100 for number, pid in self.pids.items()}
        self.ran = dict.fromkeys(EVEN, 1.0)


def with_slow(number: int, by: float = 0.1) -> dict[int, float]:
    """One computes for longer in each step, and the others wait for it."""
    return {each: (0.5 + by) / (1 + by) if each == number else 0.5 / (1 + by) for each in EVEN}


@pytest.mark.parametrize("minutes", [4, 40])
def test_a_rank_that_becomes_slower_by_a_fifth_is_named_within_two_minutes(minutes: int) -> None:
    pod = Pod()
    assert pod.run(timedelta(minutes=minutes)) == []
    became_slow = pod.now

    [slow] = pod.run(timedelta(minutes=2), with_slow(13, by=0.2))

    assert (slow.rank, slow.pid, slow.ended_at) == (13, 113, None)
    assert abs(slow.since - became_slow) <= timedelta(seconds=10)
    assert slow.slower == pytest.approx(0.2, abs=0.07)


def test_a_rank_whose_data_come_late_is_named_and_what_it_waits_for() -> None:
    pod = Pod()
    pod.run(timedelta(minutes=10))
    pod.sleeps = {13: 0.2}

    [slow] = pod.run(timedelta(minutes=2), dict.fromkeys(EVEN, 0.4))

    assert (slow.rank, slow.ended_at) == (13, None)
    assert slow.own_waits == pytest.approx(0.2, abs=0.05)
    assert slow.peers_own_waits == 0.0


def test_even_ranks_are_not_named() -> None:
    assert Pod().run(timedelta(hours=2)) == []


def test_they_are_read_each_five_seconds() -> None:
    pod = Pod()
    pod.run(timedelta(minutes=5))

    assert 58 <= pod.reads <= 62


def test_one_that_keeps_up_again_is_listed_with_its_end() -> None:
    pod = Pod()
    pod.run(timedelta(minutes=10))
    pod.run(timedelta(minutes=4), with_slow(13, by=0.2))
    kept_up = pod.now

    [slow] = pod.run(timedelta(minutes=5))

    assert slow.ended_at is not None
    assert abs(slow.ended_at - kept_up) <= timedelta(seconds=15)


def test_the_first_rank_of_a_pod_may_have_more_to_do_from_its_start() -> None:
    pod = Pod()

    assert pod.run(timedelta(minutes=30), with_slow(8, by=0.3)) == []
    assert [each.rank for each in Pod().ranks.slow] == []


def test_another_rank_that_is_slow_from_its_start_is_named_as_such() -> None:
    [slow] = Pod().run(timedelta(minutes=5), with_slow(13, by=0.3))

    assert (slow.rank, slow.from_start) == (13, True)


def test_an_answer_that_does_not_come_ends_nothing() -> None:
    pod = Pod()
    pod.run(timedelta(minutes=10))
    pod.run(timedelta(minutes=4), with_slow(13, by=0.2))
    pod.answers = False
    pod.run(timedelta(minutes=3), with_slow(13, by=0.2))
    pod.answers = True

    [slow] = pod.run(timedelta(minutes=3), with_slow(13, by=0.2))

    assert slow.ended_at is None


def test_where_nothing_is_known_of_ranks_they_are_asked_for_once_a_minute() -> None:
    pod = Pod()
    pod.answers = False
    pod.run(10 * ALONE_FOR)

    assert pod.reads == 10


def test_ranks_that_a_launcher_started_again_are_others() -> None:
    pod = Pod()
    pod.run(timedelta(minutes=10))
    pod.run(timedelta(minutes=4), with_slow(13, by=0.2))
    pod.start_again()

    [slow] = pod.run(timedelta(minutes=5))

    assert (slow.pid, slow.ended_at is None) == (113, False)


def test_what_a_rank_does_while_its_pod_is_silent_is_not_compared() -> None:
    """It is not asked for then. A silence is longer than two windows."""

    def slow_after(silence: timedelta) -> bool:
        """Whether it is named for what it does in thirty silences."""
        pod = Pod()
        pod.run(timedelta(minutes=30))
        for _ in range(30):
            pod.run(timedelta(seconds=30))
            pod.ran[13] += silence.total_seconds()
            pod.now += silence
        return bool(pod.ranks.slow)

    assert not slow_after(10 * SECOND)
    assert not slow_after(60 * SECOND)


def test_a_window_in_which_the_kernel_did_not_count_is_none() -> None:
    pod = Pod()

    assert pod.run(timedelta(minutes=10), {**EVEN, 13: 0.0}) == []
