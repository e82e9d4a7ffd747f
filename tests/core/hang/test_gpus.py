"""When the GPUs of a node work, by how much their memory is used."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from healthd.core.api.health import GPUS, MemberState, PodRhythm
from healthd.core.hang.gpus import GpuRhythms, GpuUse, GpuUses
from tests.fakes import START

SECOND = timedelta(seconds=1)
GIB = 2**30
Second = Callable[[random.Random], GpuUse]
"""What one GPU does in a second: how much it uses its memory, runs kernels, and how many bytes are taken."""


def trains(dice: random.Random) -> GpuUse:
    return GpuUse(dice.uniform(0.2, 0.5), dice.uniform(0.9, 1.0), 60 * GIB)


def waits_for_others(dice: random.Random) -> GpuUse:
    """A kernel of NCCL polls. Its reads are below what the driver's child counts."""
    return GpuUse(0.0, dice.uniform(0.99, 1.0), 60 * GIB)


def is_idle(_: random.Random) -> GpuUse:
    """Its process holds its memory, and asks nothing of it."""
    return GpuUse(0.0, 0.0, 60 * GIB)


def is_free(_: random.Random) -> GpuUse:
    """No process has it."""
    return GpuUse(0.0, 0.0, 0.6 * GIB)


class Node:
    """GPUs that each do the same for a while, and are sampled each second."""

    def __init__(self) -> None:
        self.rhythms = GpuRhythms()
        self.now = START
        self.sums: dict[str, GpuUse] = {}
        self._dice = random.Random(7)

    def run(self, seconds: int, *gpus: Second | None) -> None:
        """None: a GPU that does not say what it does."""
        for _ in range(seconds):
            self.now += SECOND
            for number, gpu in enumerate(gpus):
                if gpu is not None:
                    use, sums = gpu(self._dice), self.sums.get(f"gpu-{number}", GpuUse(0, 0, 0))
                    self.sums[f"gpu-{number}"] = GpuUse(sums.memory + use.memory, sums.kernels + use.kernels, use.held)
            said = {f"gpu-{number}": self.sums[f"gpu-{number}"] for number, gpu in enumerate(gpus) if gpu is not None}
            self.rhythms.observe(GpuUses(self.now, said))

    def published(self, *, a_pod_is_quiet: bool = False, at: datetime | None = None) -> PodRhythm | None:
        return self.rhythms.published(at or self.now, a_pod_is_quiet=a_pod_is_quiet)

    def state(self, *, a_pod_is_quiet: bool = False) -> MemberState | None:
        rhythm = self.published(a_pod_is_quiet=a_pod_is_quiet)
        return rhythm.state if rhythm is not None else None


def a_node_that_trains(*more: Second) -> Node:
    node = Node()
    node.run(120, trains, trains, *more)
    return node


def test_they_work_once_their_rhythm_is_known() -> None:
    node = Node()
    node.run(30, trains, trains)
    assert node.state() is None

    node.run(60, trains, trains)
    assert node.published() == PodRhythm(uid=GPUS, state=MemberState.WORKING, period=2.0, allowed=12.0)


def test_they_are_silent_when_all_of_them_only_wait() -> None:
    node = a_node_that_trains()
    stopped = node.now
    node.run(20, waits_for_others, waits_for_others)
    rhythm = node.published()

    assert rhythm is not None
    assert (rhythm.uid, rhythm.state, rhythm.since) == (GPUS, MemberState.SILENT, stopped)
    assert rhythm.activity is not None
    assert rhythm.activity.gpu_utilisation == 99
    assert rhythm.worked is not None
    assert 60 <= rhythm.worked <= 120


def test_the_one_that_does_least_tells_which_node_is_behind() -> None:
    node = a_node_that_trains()
    node.run(20, waits_for_others, is_idle)
    rhythm = node.published()

    assert rhythm is not None
    assert rhythm.activity is not None
    assert rhythm.activity.gpu_utilisation == 0


def test_one_that_works_is_enough() -> None:
    node = a_node_that_trains()
    node.run(60, trains, waits_for_others)

    assert node.state(a_pod_is_quiet=True) is MemberState.WORKING


def test_they_work_again() -> None:
    node = a_node_that_trains()
    node.run(20, waits_for_others, waits_for_others)
    node.run(2, trains, trains)

    assert node.state() is MemberState.WORKING


def test_one_that_was_never_used_is_not_waited_for() -> None:
    node = a_node_that_trains(is_free)
    node.run(20, waits_for_others, waits_for_others, is_free)

    assert node.state() is MemberState.SILENT


def touched(_: random.Random) -> GpuUse:
    """A check of a second."""
    return GpuUse(0.3, 1.0, 1.2 * GIB)


def test_one_that_was_only_checked_is_not_waited_for() -> None:
    node = Node()
    node.run(2, trains, touched)
    node.run(200, trains, is_free)
    assert node.state() is None

    node.run(200, trains, is_free)
    assert node.state() is MemberState.WORKING


def test_nothing_is_known_where_one_does_not_answer() -> None:
    node = a_node_that_trains()
    node.run(60, waits_for_others, None)

    assert node.state(a_pod_is_quiet=True) is None


def test_gpus_that_no_process_holds_any_more_are_forgotten() -> None:
    node = a_node_that_trains()
    node.run(20, is_free, is_free)
    assert node.state() is None

    node.run(30, trains, trains)
    assert node.state() is None, "the next job is learned anew"


def test_a_process_that_loads_its_model_and_compiles_is_not_known() -> None:
    node = a_node_that_trains()
    node.run(5, is_free, is_free)
    node.run(10, trains, trains)
    node.run(600, is_idle, is_idle)

    assert node.state(a_pod_is_quiet=True) is None


def test_pauses_that_come_now_and_then_are_part_of_their_rhythm() -> None:
    """As a save of half a minute, beside which processors work."""
    node = a_node_that_trains()
    node.run(30, is_idle, is_idle)
    node.run(120, trains, trains)
    node.run(40, is_idle, is_idle)

    assert node.state() is MemberState.WORKING


def test_beside_a_quiet_pod_it_counts_whether_they_have_worked_since() -> None:
    node = a_node_that_trains()
    node.run(30, is_idle, is_idle)
    node.run(120, trains, trains)
    stopped = node.now
    node.run(14, is_idle, is_idle)
    rhythm = node.published(a_pod_is_quiet=True)

    assert rhythm is not None
    assert (rhythm.state, rhythm.since, rhythm.allowed) == (MemberState.SILENT, stopped, 12.0)


def test_nothing_is_known_without_samples() -> None:
    node = a_node_that_trains()

    assert node.published(at=node.now + timedelta(seconds=4)) is None


def test_gpus_of_whose_memory_nothing_is_known_are_watched_all_the_same() -> None:
    def unmeasured(gpu: Second) -> Second:
        return lambda dice: gpu(dice)._replace(held=0)

    node = Node()
    node.run(120, unmeasured(trains))
    node.run(20, unmeasured(waits_for_others))

    assert node.state() is MemberState.SILENT


@pytest.mark.parametrize("gpus", [(None, None), (waits_for_others, None)])
def test_a_silence_is_not_known_to_go_on_where_the_driver_does_not_answer(gpus: tuple[Second | None, ...]) -> None:
    """They may work again, and nothing would show it."""
    node = a_node_that_trains()
    node.run(20, waits_for_others, waits_for_others)
    assert node.state() is MemberState.SILENT

    node.run(5, *gpus)
    assert node.state() is None


def test_the_same_sample_again_is_none() -> None:
    node = a_node_that_trains()
    for _ in range(60):
        node.rhythms.observe(GpuUses(node.now, dict.fromkeys(("gpu-0", "gpu-1"), GpuUse(0, 0, 60 * GIB))))

    assert node.state(a_pod_is_quiet=True) is MemberState.WORKING


def test_sums_that_were_begun_anew_are_no_silence() -> None:
    node = a_node_that_trains()
    node.sums.clear()
    node.run(60, trains, trains)

    assert node.state() is MemberState.WORKING


def test_what_is_published_does_not_change_while_nothing_changes() -> None:
    node = a_node_that_trains()
    node.run(20, waits_for_others, waits_for_others)
    before = node.published()
    node.run(20, waits_for_others, is_idle)

    assert node.published() is before


def test_a_machine_without_gpus_is_not_sampled() -> None:
    node = Node()
    node.run(5)
    idle = Node()
    idle.run(60, is_free, is_free)

    assert (node.rhythms.are_used, idle.rhythms.are_used, a_node_that_trains().rhythms.are_used) == (False, False, True)
