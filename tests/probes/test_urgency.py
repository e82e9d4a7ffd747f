"""When the reader may sleep, and when it runs before everybody else."""

from __future__ import annotations

from healthd.probes.urgency import BURST, FLOOD, GLANCE, LULL, PACE, SPIN_LIMIT, WATCH, WINDOW, Priority, Urgency


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
    assert urgency.breath() == 0.0
    return urgency


def breaths(urgency: Urgency, watch: Stopwatch, *, records: int, seconds: float) -> list[float | None]:
    """What it answers while so many records come in each window."""
    answers = []
    for _ in range(round(seconds / WINDOW)):
        watch.seconds += WINDOW
        urgency.read(records)
        answers.append(urgency.breath())
    return answers


def test_a_few_records_change_nothing() -> None:
    scheduling = FakeScheduling()
    urgency = Urgency(scheduling)
    urgency.begin()
    urgency.woke()
    urgency.read(BURST - 1)

    assert urgency.breath() is None
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
