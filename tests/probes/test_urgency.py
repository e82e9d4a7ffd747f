"""When the reader may sleep, and when it runs before everybody else."""

from __future__ import annotations

from healthd.probes.urgency import BURST, FLOOD, SPIN_LIMIT, WINDOW, Priority, Urgency


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

    def ordinary(self) -> bool:
        self.is_realtime = False
        return self.grants


class Stopwatch:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def a_flooded_reader(watch: Stopwatch) -> Urgency:
    urgency = Urgency(FakeScheduling(), now=watch)
    urgency.woke()
    urgency.read(FLOOD)
    assert not urgency.may_sleep()
    return urgency


def test_a_few_records_change_nothing() -> None:
    scheduling = FakeScheduling()
    urgency = Urgency(scheduling)
    urgency.begin()
    urgency.woke()
    urgency.read(BURST - 1)

    assert urgency.may_sleep()
    assert urgency.patience() is None
    assert (urgency.priority, scheduling.is_realtime) == (Priority.NICE, False)


def test_a_burst_is_read_at_real_time_priority_until_it_is_over() -> None:
    scheduling = FakeScheduling()
    urgency = Urgency(scheduling)
    urgency.woke()
    urgency.read(BURST)
    during = scheduling.is_realtime
    urgency.calm()

    assert (during, scheduling.is_realtime) == (True, False)
    assert urgency.patience() is None


def test_while_a_burst_lasts_the_sleep_has_an_end() -> None:
    urgency = Urgency(FakeScheduling())
    urgency.read(BURST)

    assert urgency.patience() is not None


def test_a_refusal_is_known_and_harmless() -> None:
    urgency = Urgency(FakeScheduling(grants=False))
    urgency.begin()
    urgency.read(BURST)
    urgency.calm()

    assert urgency.priority is Priority.NORMAL


def test_in_a_flood_the_reader_does_not_sleep() -> None:
    watch = Stopwatch()
    urgency = a_flooded_reader(watch)

    for _ in range(10):
        watch.seconds += WINDOW
        urgency.read(FLOOD)
        assert not urgency.may_sleep()


def test_a_flood_is_over_after_one_quiet_window() -> None:
    watch = Stopwatch()
    urgency = a_flooded_reader(watch)
    watch.seconds += WINDOW
    assert not urgency.may_sleep()

    watch.seconds += WINDOW
    urgency.read(FLOOD - 1)

    assert urgency.may_sleep()


def test_an_endless_flood_does_not_take_a_core_for_ever() -> None:
    watch = Stopwatch()
    urgency = a_flooded_reader(watch)

    for _ in range(round(SPIN_LIMIT / WINDOW) + 2):
        watch.seconds += WINDOW
        urgency.read(FLOOD)
        slept = urgency.may_sleep()

    assert slept
