"""The windows of work that an agent publishes of a pod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from healthd.core.api.health import MOST_WINDOWS
from healthd.core.hang.samples import Rates, SampleRing
from healthd.core.hang.work.work_windows import pod_windows

SECOND = timedelta(seconds=1)
EVEN = datetime.fromtimestamp(1_800_000_000, UTC)
"""A multiple of each length."""


class Pod:
    """A pod that is sampled each second."""

    def __init__(self, period: float = 1.0, late: timedelta = timedelta(0), start: datetime = EVEN) -> None:
        self.windows = pod_windows(late)
        self.period = period
        self.now = start
        self._ring = SampleRing(200)

    def run(self, seconds: int, rates: Rates | None) -> None:
        """None: it is not sampled."""
        for _ in range(seconds):
            self.now += SECOND
            if rates is not None:
                self._ring.add(self.now, rates)
            self.windows.observe(self._ring, self.period, self.now)


def test_windows_begin_at_the_same_times_whenever_the_agent_began() -> None:
    pod = Pod(start=EVEN + timedelta(seconds=7, milliseconds=400))
    pod.run(40, Rates(cpu=2.0))

    assert pod.windows.newest
    assert (pod.windows.newest.end, pod.windows.newest.cores) == (EVEN + timedelta(seconds=45), [2.0, 2.0])


def test_each_window_is_the_mean_of_its_samples() -> None:
    pod = Pod()
    pod.run(15, Rates(cpu=1.0, starved=0.5, stalled=0.002))
    pod.run(15, Rates(cpu=3.0))
    pod.run(1, Rates(cpu=3.0))

    assert pod.windows.newest
    assert pod.windows.newest.cores == [1.0, 3.0]
    assert (pod.windows.newest.starved, pod.windows.newest.stalled) == ([0.5, 0.0], [])


def test_at_most_so_many_are_published_and_shares_are_at_most_one() -> None:
    pod = Pod()
    pod.run(15 * (MOST_WINDOWS + 5), Rates(cpu=1.0, starved=1.3))

    assert pod.windows.newest
    assert len(pod.windows.newest.cores) == MOST_WINDOWS
    assert set(pod.windows.newest.starved) == {1.0}


def test_after_a_window_that_was_not_sampled_the_list_begins_anew() -> None:
    pod = Pod()
    pod.run(60, Rates(cpu=1.0))
    pod.run(15, None)
    pod.run(16, Rates(cpu=2.0))

    assert pod.windows.newest
    assert pod.windows.newest.cores == [2.0]


def test_a_window_has_three_steps_at_least_and_steps_that_are_too_long_are_not_published() -> None:
    for period, seconds in ((5.0, 15), (6.0, 30), (30.0, 120)):
        pod = Pod(period)
        pod.run(2 * seconds + 2, Rates(cpu=1.0))
        assert pod.windows.newest
        assert pod.windows.newest.seconds == seconds

    pod = Pod(41.0)
    pod.run(600, Rates(cpu=1.0))
    assert pod.windows.newest is None


@pytest.mark.parametrize(
    ("before", "after", "seconds", "is_kept"),
    [
        pytest.param(5.1, 4.9, 30, True, id="it is learned a bit shorter"),
        pytest.param(4.8, 6.0, 15, True, id="a slow rank makes the steps longer"),
        pytest.param(4.8, 8.0, 30, False, id="a window has no room for two steps"),
    ],
)
def test_windows_stay_as_long_as_they_are_while_two_steps_fit(
    before: float, after: float, seconds: int, *, is_kept: bool
) -> None:
    """Else the controller would begin anew, just when its gang has become slower."""
    pod = Pod(before)
    pod.run(180, Rates(cpu=1.0))
    pod.period = after
    pod.run(2 * seconds, Rates(cpu=1.0))

    assert pod.windows.newest
    assert pod.windows.newest.seconds == seconds
    assert (len(pod.windows.newest.cores) > 5) is is_kept


@pytest.mark.parametrize("late", [0, 4])
def test_a_window_is_cut_so_late_and_has_the_same_samples(late: int) -> None:
    pod = Pod(late=timedelta(seconds=late))
    pod.run(30, Rates(cpu=1.0))
    pod.run(late, Rates(cpu=9.0))

    assert pod.windows.newest
    assert (pod.windows.newest.end, pod.windows.newest.cores) == (EVEN + 30 * SECOND, [1.0, 1.0])
