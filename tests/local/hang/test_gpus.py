"""How much the GPUs of the slots are used."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import isnan
from pathlib import Path

import pytest

from healthd.clock import SystemClock
from healthd.core.api import Device
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.local.hang.gpus import SlotGpus
from healthd.local.machine.slots import Slot
from tests.fakes import START
from tests.lab.programs import wait_until
from tests.standin.nvml import StandIn, built

A, B, C = (f"0000:{bus}:00.0" for bus in ("3b", "3c", "3d"))
SLOTS = [Slot(name="slot-0", devices=(Device(pci=A), Device(pci=B))), Slot(name="slot-1", devices=(Device(pci=C),))]


class Driver:
    """A driver whose GPUs have done so much."""

    def __init__(self, gpus: Mapping[str, GpuUse]) -> None:
        self.gpus = gpus
        self.closed = 0

    def use(self, now: datetime) -> GpuUses:
        return GpuUses(now, self.gpus)

    def close(self) -> None:
        self.closed += 1


def test_a_slot_with_several_gpus_is_their_mean() -> None:
    driver = Driver({A: GpuUse(2.0, 4.0, 10), B: GpuUse(4.0, 8.0, 20), C: GpuUse(7.0, 9.0, 30)})

    assert SlotGpus(SLOTS, driver).read(START) == {"slot-0": GpuUse(3.0, 6.0, 15), "slot-1": GpuUse(7.0, 9.0, 30)}


def test_a_gpu_that_does_not_answer_makes_its_slot_unknown() -> None:
    found = SlotGpus(SLOTS, Driver({A: GpuUse(2.0, 4.0, 10), C: GpuUse(7.0, 9.0, 30)})).read(START)

    assert isnan(found["slot-0"].memory)
    assert found["slot-1"] == GpuUse(7.0, 9.0, 30)


def test_slots_that_are_numbers_have_no_gpus_and_open_no_driver() -> None:
    gpus = SlotGpus([Slot(name="slot-0")])

    assert gpus.read(START) == {}
    gpus.close()


def test_the_clocks_of_each_slot_are_those_of_its_gpus() -> None:
    driver, now = Driver({}), START
    gpus = SlotGpus(SLOTS, driver)
    for second in range(150):
        now = START + timedelta(seconds=second)
        driver.gpus = {
            pci: GpuUse(second / 2, second, 7, mhz * second / 2, 1980) for pci, mhz in ((A, 1755), (B, 1200), (C, 1740))
        }
        gpus.read(now)

    clocks = gpus.clocks()
    assert {slot: [(gpu.pci, gpu.mhz) for gpu in each.gpus] for slot, each in clocks.items()} == {
        "slot-0": [(B, 1200), (A, 1755)],
        "slot-1": [(C, 1740)],
    }


def test_a_driver_is_closed_once() -> None:
    driver = Driver({})
    gpus = SlotGpus(SLOTS, driver)
    gpus.close()
    assert driver.closed == 0

    gpus.read(START)
    gpus.close()
    gpus.close()
    assert driver.closed == 1


def test_a_process_of_its_own_asks_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    standin = StandIn(built(), tmp_path / "script")
    standin.play(
        "gpus 3", "value nvmlDeviceGetUtilizationRates * 100 50", "value nvmlDeviceGetMemoryInfo * 70000000000"
    )
    for name in ("LD_LIBRARY_PATH", "STANDIN_NVML"):
        monkeypatch.setenv(name, standin.environ[name])
    gpus = SlotGpus(SLOTS)
    try:
        wait_until("a GPU that works", lambda: gpus.read(SystemClock().now())["slot-1"].memory > 0, limit=30)
        found = gpus.read(SystemClock().now())
    finally:
        gpus.close()

    assert found["slot-0"].held == 70e9
    assert found["slot-0"].memory == pytest.approx(0.49 * found["slot-0"].kernels, abs=0.001)
