"""Which ranks have a GPU that runs slower than those of their peers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from healthd.core.api.health import GpuClock, GpuClocks
from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.gpus.gpu_clocks import KNOWN_FOR
from healthd.core.hang.work.gpus.slow_gpus import OVER, SlowGpus
from healthd.core.hang.work.straggler_text import effect_of, sentence_of
from tests.fakes import START

PCI = "0000:3b:00.0"
LATER = timedelta(seconds=15)


def clocks(
    mhz: float = 1755, *, usual: float = 1770, highest: float = 1980, gpus: int = 8, limited_by: Sequence[str] = ()
) -> GpuClocks:
    """A node whose slowest GPU runs at *mhz*."""
    others = [GpuClock(pci=f"0000:af:00.{number}", mhz=max(mhz, usual)) for number in range(gpus - 1)]
    slowest = GpuClock(pci=PCI, mhz=mhz, limited_by=list(limited_by))
    begin = START - timedelta(seconds=105)
    return GpuClocks(begin=begin, end=START, usual=usual, highest=highest, gpus=[slowest, *others])


def a_gang(ranks: int = 8, **strange: GpuClocks) -> dict[str, GpuClocks]:
    """*strange*: by rank, as `r3`."""
    return {str(rank): strange.get(f"r{rank}", clocks()) for rank in range(ranks)}


def found(gang: dict[str, GpuClocks]) -> list[Straggler]:
    return SlowGpus().observe(gang, START)


def test_a_slow_gpu_is_named_with_its_rank_its_address_and_why() -> None:
    [slow] = found(a_gang(r3=clocks(1180, limited_by=["power-cap", "hw-thermal"])))

    assert (slow.rank, slow.gpu, slow.since) == ("3", PCI, START - timedelta(minutes=1))
    assert slow.slower == pytest.approx(0.5)
    assert sentence_of(slow) == (
        "rank 3 has a GPU that is 50% slower than those of its peers, which have to wait (95% sure): "
        "0000:3b:00.0 runs at 1,180 MHz while it works, those of its peers at 1,770 MHz: it is too hot"
    )
    assert effect_of(slow) == "up to 50% slower, because of a GPU of rank 3"


def test_one_that_has_just_become_slow_is_as_slow_as_its_newest_window_shows() -> None:
    node = clocks(1500, limited_by=["hw-thermal"])
    node = replace(node, gpus=[replace(node.gpus[0], newest=1180), *node.gpus[1:]])
    [slow] = found(a_gang(r3=node))

    assert slow.slower == pytest.approx(0.5)
    assert "runs at 1,180 MHz" in slow.reason


@pytest.mark.parametrize(
    ("limited_by", "why", "sure"),
    [
        (["sw-thermal"], "it is too hot", 0.95),
        (["power-brake"], "the power supply of its machine asks it to slow down", 0.95),
        (["hw-slowdown"], "its hardware slows it down", 0.95),
        (["power-cap"], "it is at its limit of power: that may be set lower, or it has more to do", 0.75),
        (["setting"], "its clock is set lower", 0.75),
        (["of-a-newer-healthd"], "its driver gives no reason", 0.75),
        ([], "its driver gives no reason", 0.75),
    ],
)
def test_without_a_fault_it_is_less_sure(limited_by: Sequence[str], why: str, sure: float) -> None:
    [slow] = found(a_gang(r3=clocks(1180, limited_by=limited_by)))

    assert slow.reason.endswith(f": {why}")
    assert slow.confidence == sure


@pytest.mark.parametrize(("mhz", "is_slow"), [(1609, True), (1665, False)])
def test_one_that_is_slower_by_a_tenth_because_of_a_fault_is_named_and_one_by_a_bit_less_is_not(
    mhz: float, is_slow: bool
) -> None:
    assert bool(found(a_gang(r3=clocks(mhz, limited_by=["hw-thermal"])))) is is_slow


def after_an_hour(mhz: float) -> SlowGpus:
    """Of a gang whose rank 3 has run at *mhz*."""
    gpus = SlowGpus()
    for second in range(0, 3600, 15):
        assert gpus.observe(a_gang(r3=clocks(mhz)), START - timedelta(seconds=3600 - second)) == []
    return gpus


def test_gpus_differ_by_nature_so_without_a_fault_it_has_to_have_become_slower() -> None:
    slower = a_gang(r3=clocks(1609))

    assert SlowGpus().observe(slower, START) == []
    assert after_an_hour(1609).observe(slower, START) == []
    assert after_an_hour(1660).observe(slower, START) == []
    assert [each.rank for each in after_an_hour(1755).observe(slower, START)] == ["3"]


def test_rank_0_evaluates_for_all_with_another_clock() -> None:
    gpus = SlowGpus()
    for second in range(0, 3600, 15):
        gpus.observe(a_gang(), START - timedelta(seconds=3600 - second))

    assert gpus.observe(a_gang(r0=clocks(1609)), START) == []
    assert len(gpus.observe(a_gang(r0=clocks(1609, limited_by=["hw-thermal"])), START)) == 1


def test_one_that_is_slower_by_nature_is_over_when_it_is_as_slow_as_usual_again() -> None:
    gpus = after_an_hour(1660)
    assert len(gpus.observe(a_gang(r3=clocks(1500)), START)) == 1

    gpus.observe(a_gang(r3=clocks(1660)), START + LATER)
    assert len(gpus.observe(a_gang(r3=clocks(1660)), START + LATER + OVER)) == 1


def test_one_that_is_about_as_slow_as_may_be_by_nature_is_reported_once() -> None:
    gpus, changes = after_an_hour(1550), []
    for second in range(0, 3600, 15):
        mhz = 1530 if second % 600 < 300 else 1550  # slower by 15.7 % and by 14.2 %
        changes += gpus.observe(a_gang(r3=clocks(mhz)), START + timedelta(seconds=second))

    assert [each.ended_at for each in changes] == [None]


def test_one_whose_fault_ends_is_over_though_it_is_slow_by_nature() -> None:
    gpus = after_an_hour(1600)
    assert len(gpus.observe(a_gang(r3=clocks(1590, limited_by=["hw-thermal"])), START)) == 1

    gpus.observe(a_gang(r3=clocks(1590)), START + LATER)
    assert len(gpus.observe(a_gang(r3=clocks(1590)), START + LATER + OVER)) == 1


def test_a_new_leader_sees_its_end_though_it_knows_no_past() -> None:
    [reported] = after_an_hour(1660).observe(a_gang(r3=clocks(1416, limited_by=["hw-thermal"])), START)  # 25 %
    gpus = SlowGpus()
    gpus.adopt(reported)
    for second in range(0, 3600, 15):
        assert gpus.observe(a_gang(r3=clocks(1500)), START + timedelta(seconds=second)) == []  # 18 %

    gpus.observe(a_gang(r3=clocks(1660)), START + timedelta(hours=1))
    assert len(gpus.observe(a_gang(r3=clocks(1660)), START + timedelta(hours=1) + OVER)) == 1


def test_each_gpu_has_a_past_of_its_own() -> None:
    """One that is slow by nature does not hide another one of its node that becomes so."""
    gpus = after_an_hour(1609)
    node = clocks(1609)
    *others, last = node.gpus
    hot = replace(node, gpus=[*others, replace(last, mhz=1600)])

    assert [each.gpu for each in gpus.observe(a_gang(r3=hot), START)] == [last.pci]


def test_in_a_large_gang_too_the_peers_of_a_rank_are_usual() -> None:
    assert [each.rank for each in found(a_gang(100, r3=clocks(1180, usual=1180)))] == ["3"]


def test_one_that_is_slow_does_not_learn_that_as_usual() -> None:
    gpus = after_an_hour(1755)
    for second in range(0, 3600, 15):
        gpus.observe(a_gang(r3=clocks(1609)), START + timedelta(seconds=second))
    for second in range(3600, 3700, 15):
        gpus.observe(a_gang(), START + timedelta(seconds=second))
    assert gpus.present == []

    assert len(gpus.observe(a_gang(r3=clocks(1609)), START + timedelta(hours=2))) == 1


def test_it_is_reported_once_and_over_when_it_keeps_up_for_a_minute() -> None:
    gpus, slow, fast = SlowGpus(), a_gang(r3=clocks(1180)), a_gang()
    gpus.observe(slow, START)
    assert gpus.observe(slow, START + LATER) == []

    assert gpus.observe(fast, START + 2 * LATER) == []
    assert gpus.observe(a_gang(r3=clocks(1300)), START + 3 * LATER) == []  # it did not last
    assert gpus.observe(fast, START + 4 * LATER) == []
    [over] = gpus.observe(fast, START + 4 * LATER + OVER)
    assert over.rank == "3"
    assert over.slower == pytest.approx(0.5)  # as it was reported
    assert gpus.present == []


def test_the_end_of_one_is_when_its_windows_show_that_it_became_as_fast_as_the_others() -> None:
    """The median of seven windows shows it with the fourth, and it is reported a minute after that."""
    gpus, changes = SlowGpus(), list[Straggler]()
    gpus.observe(a_gang(r3=clocks(1180)), START)
    for number in range(1, 12):
        at = START + number * LATER
        own = replace(clocks(1770 if number >= 4 else 1180), end=at)
        changes += gpus.observe(a_gang(r3=own), at)

    assert [each.ended_at for each in changes] == [START]


def test_a_clock_that_was_ahead_for_a_moment_puts_off_no_end() -> None:
    gpus = SlowGpus()
    gpus.observe(a_gang(r3=clocks(1180)), START)
    gpus.observe(a_gang(), START + timedelta(hours=2))
    gpus.observe(a_gang(), START + LATER)

    assert len(gpus.observe(a_gang(), START + LATER + OVER)) == 1


def test_a_gpu_of_which_nothing_is_known_any_more_stays_slow() -> None:
    gpus = SlowGpus()
    gpus.observe(a_gang(r3=clocks(1180)), START)
    unknown = {rank: each for rank, each in a_gang().items() if rank != "3"}

    assert gpus.observe(unknown, START + timedelta(hours=1)) == []
    assert [each.rank for each in gpus.present] == ["3"]


def test_many_slow_ones_have_another_part_in_the_job() -> None:
    slow = clocks(1180)

    assert len(found(a_gang(r1=slow, r2=slow))) == 2
    assert found(a_gang(r1=slow, r2=slow, r3=slow)) == []


def test_the_gpus_of_one_node_are_peers() -> None:
    assert [each.rank for each in found(a_gang(1, r0=clocks(1180)))] == ["0"]
    assert found(a_gang(1, r0=clocks(1180, gpus=2))) == []


def test_a_node_that_is_slow_as_a_whole_is_slower_than_the_others() -> None:
    """As when its power supply brakes."""
    [slow] = found(a_gang(2, r1=clocks(1180, usual=1180)))

    assert slow.rank == "1"


def test_few_gpus_have_no_usual_clock() -> None:
    def alone(mhz: float) -> GpuClocks:
        return clocks(mhz, usual=mhz, gpus=1)

    assert found({str(rank): alone(1770) for rank in range(2)} | {"2": alone(1180)}) == []
    assert [each.rank for each in found({str(rank): alone(1770) for rank in range(3)} | {"3": alone(1180)})] == ["3"]


def test_another_model_is_no_peer() -> None:
    """An A100 beside seven H100."""
    assert found(a_gang(r3=clocks(1290, usual=1305, highest=1410))) == []


@pytest.mark.parametrize("strange", [clocks(0, usual=0), clocks(0), clocks(1755, usual=0)])
def test_a_clock_of_zero_is_none(strange: GpuClocks) -> None:
    """Of an agent that others wrote for."""
    assert all(each.rank != "3" for each in found(a_gang(r3=strange)))


def later(gang: dict[str, GpuClocks], by: timedelta) -> dict[str, GpuClocks]:
    """The same clocks, in windows that end later."""
    return {rank: replace(each, begin=each.begin + by, end=each.end + by) for rank, each in gang.items()}


def test_the_newest_clocks_have_to_show_it_before_anything_follows() -> None:
    gpus = SlowGpus()
    gpus.observe(a_gang(r3=clocks(1180)), START)
    [now] = gpus.slow_now(START + KNOWN_FOR)
    assert (now.rank, now.since) == ("3", START - timedelta(minutes=1))
    assert gpus.slow_now(START + KNOWN_FOR + LATER) == []

    gpus.observe(a_gang(r3=clocks(1180)), START + KNOWN_FOR + LATER)  # nothing newer is published
    assert gpus.slow_now(START + KNOWN_FOR + LATER) == []

    at = 2 * KNOWN_FOR
    gpus.observe(later(a_gang(r3=clocks(1160)), at), START + at)
    [now] = gpus.slow_now(START + at)
    assert now.slower == pytest.approx(0.526, abs=0.001)
    assert now.seen_at == START + at

    gpus.observe(later(a_gang(), 3 * KNOWN_FOR), START + 3 * KNOWN_FOR)
    assert gpus.slow_now(START + 3 * KNOWN_FOR) == []


def test_ranks_that_are_stopped_are_over() -> None:
    gpus = SlowGpus()
    gpus.observe(a_gang(r3=clocks(1180)), START)

    assert [(each.rank, each.was_stopped) for each in gpus.stopped(START + LATER)] == [("3", True)]


def test_slower_is_how_much_longer_the_same_work_takes() -> None:
    assert [each.slower for each in found(a_gang(r3=clocks(1416)))] == [pytest.approx(0.25)]
    assert [each.slower for each in found(a_gang(r3=clocks(0.001)))] == [10.0]  # it is bounded
