"""How much the GPUs are used, by a driver beneath the real binding in a real child."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from healthd.core.hang.gpus import GpuUse, GpuUses
from healthd.probes.nvml.child.gpu import Utilisation
from healthd.probes.nvml.child.use import SPINS, GpuSums, UseSums
from healthd.probes.nvml.health import Nvml
from healthd.probes.nvml.process import ChildProcess, Pace, asking
from tests.probes.nvml.simulated_node import ENOUGH, GPU0, GPU1, NOW, SimulatedNode
from tests.standin.nvml import StandIn

RARELY = Pace(every=timedelta(hours=1), use=timedelta(milliseconds=20))
"""Only the use is read more than once."""
BUSY = ("value nvmlDeviceGetUtilizationRates 0 100 60", "value nvmlDeviceGetMemoryInfo 0 60000000000")


@pytest.fixture
def world(standin: StandIn, tmp_path: Path) -> SimulatedNode:
    return SimulatedNode(standin, tmp_path, pace=RARELY)


def uses_until(probe: Nvml, is_seen: Callable[[GpuUses], object]) -> GpuUses:
    ends = time.monotonic() + ENOUGH
    while not is_seen(uses := probe.use(NOW)):
        assert time.monotonic() < ends, uses
        probe.wait(0.2)
    return uses


def test_what_each_gpu_does_is_summed_up(world: SimulatedNode) -> None:
    world.standin.play("gpus 2", *BUSY)
    uses = uses_until(world.probe, lambda uses: uses.gpus.get(GPU0, GpuUse(0, 0, 0)).kernels > 0.1)
    world.probe.close()

    busy = uses.gpus[GPU0]
    assert busy.memory == pytest.approx((0.6 - SPINS) * busy.kernels, abs=0.001)
    assert busy.held == 60e9
    assert (uses.gpus[GPU1].memory, uses.gpus[GPU1].kernels) == (0, 0)
    assert NOW - timedelta(seconds=5) <= uses.at <= NOW


def test_the_clock_of_each_gpu_is_read_with_what_keeps_it_down(world: SimulatedNode) -> None:
    slow = "value nvmlDeviceGetClockInfo 0 1200", "value nvmlDeviceGetMaxClockInfo 0 1755", "value throttle 0 70"
    world.standin.play("gpus 2", *BUSY, *slow)
    uses = uses_until(world.probe, lambda uses: uses.gpus.get(GPU0, GpuUse(0, 0, 0)).memory > 0.1)
    world.probe.close()

    hot, idle = uses.gpus[GPU0], uses.gpus[GPU1]
    assert hot.cycles / hot.memory == pytest.approx(1200, rel=0.01)
    assert (hot.highest, set(hot.limits)) == (1755, {"setting", "power-cap", "hw-thermal"})
    assert (idle.cycles, idle.highest, idle.limits) == (0, 1980, ())


@pytest.mark.parametrize("call", ["nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"])
def test_a_driver_that_does_not_say_its_clock_is_read_without(world: SimulatedNode, call: str) -> None:
    world.standin.play("gpus 1", *BUSY, f"error {call} 0 3")
    uses = uses_until(world.probe, lambda uses: uses.gpus.get(GPU0, GpuUse(0, 0, 0)).memory > 0)
    world.probe.close()

    assert not uses.gpus[GPU0].cycles or not uses.gpus[GPU0].highest


def test_the_sample_of_everything_else_stays_the_same_meanwhile(world: SimulatedNode) -> None:
    sample = world.sample_until(lambda sample: sample.readings)
    first = uses_until(world.probe, lambda uses: uses.gpus)
    uses_until(world.probe, lambda uses: uses.gpus[GPU0] != first.gpus[GPU0] or uses.at != first.at)
    again = world.probe.sample(NOW)
    world.probe.close()

    assert again is sample


def test_a_gpu_that_is_shared_out_says_nothing(world: SimulatedNode) -> None:
    """The driver has no utilisation of a GPU in MIG mode."""
    world.standin.play("gpus 2", "error nvmlDeviceGetUtilizationRates 1 3")
    uses = uses_until(world.probe, lambda uses: uses.gpus)
    world.probe.close()

    assert set(uses.gpus) == {GPU0}


def test_a_gpu_that_shares_the_memory_of_its_machine_is_read_without_what_is_taken(world: SimulatedNode) -> None:
    """The driver has no numbers of such a memory."""
    world.standin.play("gpus 1", "error nvmlDeviceGetMemoryInfo 0 3", "value nvmlDeviceGetUtilizationRates 0 100 60")
    uses = uses_until(world.probe, lambda uses: uses.gpus.get(GPU0, GpuUse(0, 0, 0)).memory > 0)
    world.probe.close()

    assert uses.gpus[GPU0].held == 0


def test_it_is_not_read_unless_it_is_asked_for(standin: StandIn, tmp_path: Path) -> None:
    world = SimulatedNode(standin, tmp_path, pace=Pace(every=timedelta(milliseconds=20)))
    world.sample_until(lambda sample: sample.readings)
    world.sample_until(lambda sample: sample.readings)
    uses = world.probe.use(NOW)
    world.probe.close()

    assert uses == GpuUses(NOW)


def test_events_are_reported_between_two_samples_of_the_use(world: SimulatedNode) -> None:
    world.sample_until(lambda sample: sample.readings)
    uses_until(world.probe, lambda uses: uses.gpus)
    world.standin.play("event 1 0 79")
    world.sample_until(
        lambda sample: [each for each in sample.readings if (each.name, each.value) == ("nvml.xid.79", 1)]
    )
    world.probe.close()


def test_a_driver_that_hangs_while_the_use_is_read_does_not_respond(world: SimulatedNode) -> None:
    uses_until(world.probe, lambda uses: uses.gpus)
    world.standin.play("hang nvmlDeviceGetUtilizationRates 0")
    world.wait_until_it_hangs()

    said = []
    for world.clock.ahead in range(13):
        said += world.responds()
    world.probe.close()

    assert (said[0], said[-1]) == ("yes", "no")


def test_nothing_is_said_while_no_gpu_may_be_open(standin: StandIn) -> None:
    paused = Event()
    probe = Nvml(ChildProcess(RARELY, spawn=asking(standin.environ)), is_paused=paused.is_set)
    uses_until(probe, lambda uses: uses.gpus)
    paused.set()

    assert probe.use(NOW) == GpuUses(NOW)


class Gpu:
    """One that says what a test wants."""

    pci = GPU0

    def __init__(self, *said: Utilisation | None) -> None:
        self._said = [*said]

    def utilisation(self) -> Utilisation | None:
        return self._said.pop(0)


HALF = Utilisation(kernels=1.0, memory=0.5, held=7)


def sums(gpu: Gpu, *at: float) -> GpuSums:
    """After a sample at each of these times."""
    found = {}
    counted = UseSums(1.0)
    for each in at:
        found = counted.sample([gpu], each)  # type: ignore[list-item]
    return found[GPU0]


def used(gpu: Gpu, *at: float) -> tuple[float, float, int]:
    """How much its memory was used, kernels ran, and bytes are taken."""
    return sums(gpu, *at)[:3]


def test_a_kernel_that_only_waits_for_others_uses_no_memory() -> None:
    waits = Utilisation(kernels=1.0, memory=0.01, held=7)

    assert used(Gpu(waits, waits), 10.0, 11.0) == (0.0, 1.0, 7)


def test_time_that_was_not_seen_does_not_count() -> None:
    assert used(Gpu(HALF, HALF, HALF), 10.0, 11.0, 60.0) == (0.49, 1.0, 7)


def test_a_gpu_that_did_not_answer_is_counted_from_when_it_does() -> None:
    assert used(Gpu(HALF, None, HALF, HALF), 10.0, 11.0, 12.0, 13.0) == (0.49, 1.0, 7)


def test_cycles_count_while_it_works() -> None:
    works = Utilisation(kernels=1.0, memory=0.51, held=7, clock=1400, highest=1980, limits=("power-cap",))
    polls = Utilisation(kernels=1.0, memory=0.0, held=7, clock=1980, highest=1980)

    assert sums(Gpu(works, works, polls, works), 10.0, 11.0, 12.0, 14.0) == GpuSums(
        memory=1.5, kernels=4.0, held=7, cycles=2100.0, highest=1980, limits=("power-cap",)
    )


def test_a_slow_driver_is_asked_less_often() -> None:
    class Slow(Gpu):
        def utilisation(self) -> Utilisation | None:
            ends = time.process_time() + 0.02
            while time.process_time() < ends:
                pass
            return super().utilisation()

    counted = UseSums(1.0)
    counted.sample([Slow(HALF)], 10.0)  # type: ignore[list-item]

    assert counted.due >= 16.0
