"""For how long a gang that hangs has done next to nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from math import nan

import pytest

from healthd.core.hang.inactivity import Inactivity
from healthd.core.hang.samples import Usage
from tests.core.hang.sampled import Gang, Second, is_stopped, is_traced, sleeps, spins, steps

MINUTE = timedelta(minutes=1)


@dataclass
class Watched:
    """A gang whose rhythm is known, and for how long it is inactive."""

    works: Second = field(default_factory=steps)
    gang: Gang = field(default_factory=Gang)
    inactivity: Inactivity = field(default_factory=Inactivity)

    def __post_init__(self) -> None:
        self.run(720, self.works)

    def run(self, seconds: int, *behaviour: Second) -> timedelta | None:
        """For how long it is inactive afterwards."""
        for _ in range(seconds):
            hangs = self.gang.run(1, *behaviour) is not None
            self.inactivity.observe(self.gang.rhythm, hangs=hangs)
        return self.inactivity.lasts


def prints(waits: Second) -> Second:
    """A rank that waits, and of which a thread prints once a second that it tries again."""

    def second(rank: int, at: int, dice: random.Random) -> Usage:
        used = waits(rank, at, dice)
        return used._replace(cpu=used.cpu + 0.001, calls=used.calls + 1, written=used.written + 60)

    return second


def measures(rank: int, at: int, dice: random.Random) -> Usage:
    """A rank that waits, and of which a background program looks at the machine each 15 s."""
    used = sleeps(rank, at, dice)
    return used if at % 15 else used._replace(cpu=0.05, faults=60, calls=200)


def at_a_share(share: float) -> Second:
    """The usual work, but less of it, and some lines of output: an evaluation whose data are in memory."""
    return prints(steps(cpu=0.4 * share, switches=40 * share, faults=60 * share, calls=5 * share, written=0))


WAYS: dict[str, tuple[Second, ...]] = {
    "all sleep, and one prints": (prints(sleeps), sleeps),
    "all poll and print": (prints(spins),),
    "one is stopped": (is_stopped, prints(sleeps)),
    "a background program goes on": (measures, prints(sleeps)),
}


@pytest.mark.parametrize("hang", WAYS.values(), ids=WAYS)
def test_a_gang_that_hangs_and_prints_is_inactive_for_as_long_as_that_was_seen(hang: tuple[Second, ...]) -> None:
    assert 9 * MINUTE <= (Watched().run(600, *hang) or MINUTE) <= 10 * MINUTE


def test_a_gang_that_works_is_not_known_to_be_inactive() -> None:
    watched = Watched()

    assert watched.inactivity.lasts is None
    assert watched.run(300, sleeps) is not None
    assert watched.run(30, steps()) is None


def test_a_gang_whose_rhythm_is_not_known_is_not() -> None:
    inactivity, gang = Inactivity(), Gang()
    for _ in range(300):
        inactivity.observe(gang.rhythm, hangs=gang.run(1, prints(sleeps)) is not None)

    assert inactivity.lasts is None


def test_one_that_does_a_little_of_everything_seems_silent_and_is_active() -> None:
    watched = Watched()
    inactive = watched.run(1800, at_a_share(0.12))

    assert watched.gang.silences[-1] is not None
    assert inactive == timedelta(0)


def test_so_is_one_of_which_a_single_rank_does() -> None:
    assert Watched().run(1800, at_a_share(0.12), sleeps, sleeps, sleeps) == timedelta(0)


def test_each_minute_with_some_work_begins_it_anew() -> None:
    watched = Watched()
    before = watched.run(600, prints(sleeps))
    watched.run(70, at_a_share(0.12))
    after = watched.run(120, prints(sleeps))

    assert before is not None
    assert after is not None
    assert before >= 9 * MINUTE
    assert after <= 2 * MINUTE


def uses_gpu(waits: Second, gpu: float) -> Second:
    """A rank whose GPUs use their memory for this part of the time."""
    return lambda rank, at, dice: waits(rank, at, dice)._replace(gpu=gpu)


@pytest.mark.parametrize(
    ("gpu", "inactive"),
    [
        pytest.param(0.05, False, id="they evaluate"),
        pytest.param(0.0, True, id="they wait, too"),
        pytest.param(nan, True, id="they do not answer any more"),
    ],
)
def test_of_a_rank_whose_gpus_are_known_these_tell(gpu: float, *, inactive: bool) -> None:
    watched = Watched(works=steps(gpu=0.5))
    lasts = watched.run(600, prints(uses_gpu(sleeps, gpu)))

    assert watched.gang.silences[-1] is not None
    assert lasts is not None
    assert (lasts >= 9 * MINUTE) is inactive
    assert (lasts == timedelta(0)) is not inactive


@pytest.mark.parametrize("hours", [-3, 3])
def test_neither_a_clock_that_is_set_nor_a_machine_that_slept_makes_it_longer(hours: int) -> None:
    watched = Watched()
    before = watched.run(300, sleeps)
    watched.gang.now += timedelta(hours=hours)
    after = watched.run(120, sleeps)

    assert before is not None
    assert after is not None
    assert MINUTE <= after - before <= 3 * MINUTE


def test_time_in_a_debugger_does_not_count() -> None:
    watched = Watched()
    before = watched.run(300, sleeps)

    assert watched.run(600, is_traced, sleeps, sleeps, sleeps) == before
