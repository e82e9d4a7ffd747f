"""How fast GPUs run while they work."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from healthd.core.api.health import GpuClock, GpuClocks
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.core.hang.work.gpus.gpu_clocks import KNOWN_FOR, WINDOW, WINDOWS, ClockWindows
from tests.fakes import START

SECOND = timedelta(seconds=1)
LEARNED = round(WINDOWS * WINDOW / SECOND)


class Does(NamedTuple):
    """What one GPU does in each second."""

    mhz: float = 1755.0
    memory: float = 0.4
    limits: tuple[str, ...] = ()
    highest: float = 1980.0


class Driver:
    """GPUs that are sampled each second."""

    def __init__(self) -> None:
        self.clocks = ClockWindows()
        self.now = START
        self.sums: dict[str, GpuUse] = {}

    def run(self, seconds: int, gpus: Mapping[str, Does]) -> None:
        for _ in range(seconds):
            self.now += SECOND
            for pci, does in gpus.items():
                sums = self.sums.get(pci, GpuUse(0.0, 0.0, 0.0))
                memory, cycles = sums.memory + does.memory, sums.cycles + does.memory * does.mhz
                self.sums[pci] = GpuUse(memory, sums.kernels + 1.0, 6e10, cycles, does.highest, does.limits)
            self.clocks.observe(GpuUses(self.now, {pci: self.sums[pci] for pci in gpus}))

    def known(self) -> GpuClocks:
        clocks = self.clocks.of()
        assert clocks is not None
        return clocks

    def slowest(self) -> GpuClock:
        return self.known().gpus[0]


USUAL = {"a": Does(), "b": Does(1740.0), "c": Does(1770.0)}


def test_they_are_known_after_a_minute_and_three_quarters_of_work() -> None:
    driver = Driver()
    driver.run(LEARNED, USUAL)
    assert driver.clocks.of() is None

    driver.run(1, USUAL)
    gpus = [GpuClock(pci=pci, mhz=mhz, newest=mhz) for pci, mhz in (("b", 1740), ("a", 1755), ("c", 1770))]
    assert driver.known() == GpuClocks(begin=START + SECOND, end=driver.now, usual=1755, highest=1980, gpus=gpus)


def test_a_gpu_that_became_slow_is_known_to_be_when_more_than_half_of_its_windows_show_it() -> None:
    driver = Driver()
    driver.run(200, USUAL)
    hot = USUAL | {"c": Does(1200.0, limits=("hw-thermal",))}
    driver.run(LEARNED // 2 - 15, hot)
    assert driver.slowest().pci == "b"

    driver.run(2 * 15, hot)  # one of the windows began before
    assert (driver.slowest().pci, driver.slowest().newest, driver.slowest().limited_by) == ("c", 1200, ["hw-thermal"])
    assert driver.slowest().mhz > 1200
    driver.run(15, hot)
    assert driver.slowest() == GpuClock(pci="c", mhz=1200, newest=1200, limited_by=["hw-thermal"])
    assert driver.known().usual == 1740


def test_a_moment_of_heat_is_none() -> None:
    driver = Driver()
    driver.run(200, USUAL)
    for _ in range(10):
        driver.run(LEARNED // 3, USUAL | {"c": Does(1200.0)})
        driver.run(LEARNED, USUAL)
        assert driver.slowest().pci == "b"


def test_a_gpu_that_only_waits_for_others_does_not_count_as_fast() -> None:
    """Its kernels poll, and draw little power: it runs at its highest clock, and uses no memory."""
    driver = Driver()
    for _ in range(100):
        driver.run(1, {"a": Does(1400.0)})
        driver.run(2, {"a": Does(1980.0, memory=0.0)})

    assert driver.slowest().mhz == 1400


def test_a_pause_keeps_what_was_known_for_five_minutes() -> None:
    driver = Driver()
    driver.run(200, USUAL)
    known = driver.known()
    idle = {pci: Does(345.0, memory=0.0) for pci in USUAL}
    driver.run(round(KNOWN_FOR / SECOND) - LEARNED - 15, idle)
    assert replace(driver.known(), begin=known.begin, end=known.end) == known

    driver.run(LEARNED, idle)
    assert driver.clocks.of() is None


def test_a_reason_counts_if_it_was_there_for_much_of_the_time() -> None:
    driver = Driver()
    for second in range(200):
        limits = ("power-cap", "sw-thermal") if second % 3 == 0 else ("power-cap",)
        driver.run(1, {"a": Does(limits=limits)})

    assert driver.slowest().limited_by == ["power-cap"]


@pytest.mark.parametrize("strange", [Does(mhz=0.0), Does(highest=0.0)], ids=["no clock", "no highest clock"])
def test_a_gpu_that_does_not_say_is_left_out(strange: Does) -> None:
    driver = Driver()
    driver.run(200, USUAL | {"d": strange})

    assert [each.pci for each in driver.known().gpus] == ["b", "a", "c"]


def test_gpus_of_different_models_are_not_compared() -> None:
    driver = Driver()
    driver.run(200, USUAL | {"d": Does(highest=1410.0)})

    assert driver.clocks.of() is None
    assert driver.clocks.of(["a", "b"]) is not None


def test_a_gpu_that_was_not_seen_begins_anew() -> None:
    """Another board may have its address then."""
    driver = Driver()
    driver.run(200, USUAL)
    driver.run(1, {"a": Does()})
    driver.run(30, USUAL)

    assert [each.pci for each in driver.known().gpus] == ["a"]


def test_another_process_that_reads_the_driver_counts_anew() -> None:
    driver = Driver()
    driver.run(200, {"a": Does()})
    driver.sums.clear()
    driver.run(10, {"a": Does()})
    assert driver.slowest().mhz == 1755

    driver.run(100, {"a": Does()})
    assert driver.slowest().mhz == 1755


def test_the_same_sample_again_is_none() -> None:
    driver = Driver()
    driver.run(LEARNED, USUAL)
    for _ in range(100):
        driver.clocks.observe(GpuUses(driver.now, driver.sums))

    assert driver.clocks.of() is None


def test_a_clock_that_was_set_back_makes_them_begin_anew() -> None:
    driver = Driver()
    driver.run(200, USUAL)
    driver.now -= timedelta(hours=1)
    driver.run(LEARNED, USUAL)
    assert driver.clocks.of() is None

    driver.run(1, USUAL)
    assert driver.known().end == driver.now


def test_without_an_answer_nothing_is_known() -> None:
    driver = Driver()
    driver.run(200, USUAL)
    driver.clocks.observe(GpuUses(driver.now))

    assert driver.clocks.of() is None
