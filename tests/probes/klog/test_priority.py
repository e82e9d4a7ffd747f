"""When the reader may sleep, and when it runs before everybody else."""

from __future__ import annotations

import os

import pytest

from healthd.probes.klog.priority import (
    BURST,
    CALM,
    FLOOD,
    GLANCE,
    LULL,
    PACE,
    SPIN_LIMIT,
    WATCH,
    WINDOW,
    AdaptivePriority,
    Priority,
    ThreadScheduling,
)


class FakeScheduling:
    """Grants everything, or nothing."""

    def __init__(self, *, grants: bool = True) -> None:
        self.grants = grants
        self.is_realtime = False

    def head_start(self) -> bool:
        return self.grants

    def realtime(self) -> bool:
        self.is_realtime = self.grants
        return self.grants

    def ordinary(self) -> None:
        self.is_realtime = False


class Stopwatch:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def a_reader(scheduling: FakeScheduling | None = None, watch: Stopwatch | None = None) -> AdaptivePriority:
    """One that has read what was in the ring, slept, and was woken."""
    urgency = AdaptivePriority(scheduling or FakeScheduling(), now=watch or Stopwatch())
    urgency.begin()
    assert urgency.breath() is None
    urgency.woke()
    return urgency


def a_flooded_reader(watch: Stopwatch) -> AdaptivePriority:
    urgency = a_reader(watch=watch)
    urgency.read(FLOOD)
    assert urgency.breath() == 0.0
    return urgency


def breaths(urgency: AdaptivePriority, watch: Stopwatch, *, records: int, seconds: float) -> list[float | None]:
    """What it answers while so many records come in each window."""
    answers = []
    for _ in range(round(seconds / WINDOW)):
        watch.seconds += WINDOW
        urgency.read(records)
        answers.append(urgency.breath())
    return answers


def test_a_few_records_change_nothing() -> None:
    scheduling = FakeScheduling()
    urgency = a_reader(scheduling)
    urgency.read(BURST - 1)

    assert urgency.breath() is None
    assert urgency.patience() is None
    assert (urgency.priority, scheduling.is_realtime) == (Priority.NICE, False)


def test_a_burst_is_read_at_real_time_priority() -> None:
    scheduling = FakeScheduling()
    urgency = a_reader(scheduling)
    urgency.read(BURST)

    assert scheduling.is_realtime
    assert urgency.priority is Priority.REALTIME
    assert urgency.patience() == CALM


def test_silence_ends_the_priority() -> None:
    scheduling = FakeScheduling()
    urgency = a_reader(scheduling)
    urgency.read(BURST)
    urgency.calm()

    assert not scheduling.is_realtime
    assert urgency.patience() is None


def test_a_trickle_after_the_burst_ends_the_priority_too() -> None:
    scheduling, watch = FakeScheduling(), Stopwatch()
    urgency = a_reader(scheduling, watch)
    urgency.read(BURST)
    breaths(urgency, watch, records=1, seconds=2 * CALM)

    assert not scheduling.is_realtime


def test_what_the_ring_held_before_is_no_burst() -> None:
    scheduling = FakeScheduling()
    urgency = AdaptivePriority(scheduling)
    urgency.read(10 * FLOOD)

    assert urgency.breath() is None
    assert not scheduling.is_realtime


def test_a_refusal_is_known_and_harmless() -> None:
    urgency = a_reader(FakeScheduling(grants=False))
    urgency.read(BURST)
    urgency.calm()

    assert urgency.priority is Priority.NORMAL


def test_a_thread_gets_back_what_it_had() -> None:
    before = os.sched_getscheduler(0)
    scheduling = ThreadScheduling()
    if not scheduling.realtime():
        pytest.skip("this machine lets us have no real-time priority (CAP_SYS_NICE)")
    raised = os.sched_getscheduler(0)
    scheduling.ordinary()

    assert raised == os.SCHED_RR | os.SCHED_RESET_ON_FORK
    assert os.sched_getscheduler(0) == before


def test_in_a_flood_the_reader_takes_no_breath() -> None:
    watch = Stopwatch()
    urgency = a_flooded_reader(watch)

    assert set(breaths(urgency, watch, records=FLOOD, seconds=SPIN_LIMIT / 2)) == {0.0}


def test_a_long_flood_leaves_the_others_time_to_run() -> None:
    watch = Stopwatch()
    urgency = a_flooded_reader(watch)

    assert breaths(urgency, watch, records=FLOOD, seconds=2 * SPIN_LIMIT)[-1] == PACE


def test_in_a_pause_of_the_flood_the_reader_only_glances() -> None:
    watch = Stopwatch()
    urgency = a_flooded_reader(watch)

    assert breaths(urgency, watch, records=FLOOD - 1, seconds=2 * LULL)[-1] == GLANCE


def test_a_flood_that_does_not_come_back_is_over() -> None:
    watch = Stopwatch()
    urgency = a_flooded_reader(watch)

    assert breaths(urgency, watch, records=FLOOD // 3, seconds=2 * WATCH)[-1] is None
