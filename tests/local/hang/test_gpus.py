"""How much the GPUs of the slots are used."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import isnan

from healthd.core.api import Device
from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.local.hang.gpus import SlotGpus
from healthd.local.machine.slots import Slot
from tests.fakes import START

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


def test_a_driver_is_closed_once() -> None:
    driver = Driver({})
    gpus = SlotGpus(SLOTS, driver)
    gpus.close()
    assert driver.closed == 0

    gpus.read(START)
    gpus.close()
    gpus.close()
    assert driver.closed == 1
