"""When a gang hangs whose ranks have GPUs that are known, each by its own."""

from __future__ import annotations

import random
from math import nan

import pytest

from healthd.core.api.health import MemberState
from healthd.core.hang.samples import Usage
from tests.core.hang.sampled import Gang, Second, evaluates, is_stopped, sleeps, spins, steps


def with_gpu(cpu: Second, gpu: float = 0.4, kernels: float = 0.95) -> Second:
    """A rank whose processors do *cpu*, while its GPU uses so much of its memory."""

    def second(rank: int, at: int, dice: random.Random) -> Usage:
        share = dice.uniform(0.8, 1.2)
        return cpu(rank, at, dice)._replace(gpu=gpu * share, kernels=kernels)

    return second


def waits(cpu: Second, kernels: float = 1.0) -> Second:
    """Its GPU runs at most a kernel that polls."""
    return with_gpu(cpu, gpu=0.0, kernels=kernels)


def spins_all_the_time(_rank: int, _at: int, dice: random.Random) -> Usage:
    """Its processor looks the same whether the GPU works or waits."""
    return Usage(cpu=dice.uniform(0.98, 1.0), states="R")


def yields_all_the_time(_rank: int, _at: int, dice: random.Random) -> Usage:
    """The same with a system call in its loop."""
    return Usage(cpu=dice.uniform(0.98, 1.0), switches=dice.uniform(90, 110), states="R")


def hardly_runs(_rank: int, _at: int, _dice: random.Random) -> Usage:
    """It launches a graph of kernels now and then."""
    return Usage(cpu=0.001, states="S")


def a_gang_that_trains(cpu: Second) -> Gang:
    gang = Gang()
    assert gang.run(90, with_gpu(cpu)) is None
    assert gang.rhythm.is_known
    return gang


@pytest.mark.parametrize("cpu", [spins_all_the_time, yields_all_the_time, hardly_runs])
def test_it_hangs_when_all_gpus_wait_though_its_processors_do_the_same_as_ever(cpu: Second) -> None:
    gang = a_gang_that_trains(cpu)
    stopped = gang.now
    silence = gang.run(20, waits(cpu))

    assert silence is not None
    assert silence.since == stopped


def test_it_hangs_when_its_processors_and_gpus_are_idle() -> None:
    gang = a_gang_that_trains(steps())

    assert gang.run(20, waits(sleeps)) is not None


def test_ranks_that_poll_wait_and_one_that_sleeps_is_silent() -> None:
    gang = a_gang_that_trains(spins_all_the_time)
    silence = gang.run(20, waits(spins), waits(spins), waits(spins), waits(sleeps, kernels=0.0))

    assert silence is not None
    assert [member.state for member in silence.members] == [MemberState.WAITING] * 3 + [MemberState.SILENT]


@pytest.mark.parametrize("cpu", [sleeps, spins])
def test_an_evaluation_that_only_computes_on_gpus_is_work(cpu: Second) -> None:
    """Every rank does nothing but wait for its GPU, for longer than any rhythm allows."""
    gang = a_gang_that_trains(steps())

    assert gang.run(600, with_gpu(cpu, gpu=0.2)) is None
    assert gang.run(60, with_gpu(steps())) is None


def test_it_does_not_hang_while_one_gpu_works() -> None:
    gang = a_gang_that_trains(steps())

    assert gang.run(300, with_gpu(sleeps), waits(sleeps), waits(sleeps), waits(sleeps)) is None


def test_a_save_by_processors_is_work_though_all_gpus_rest() -> None:
    gang = a_gang_that_trains(steps())

    assert gang.run(120, waits(evaluates, kernels=0.0)) is None


def test_a_stopped_rank_is_seen_though_its_gpu_still_runs_a_kernel_that_polls() -> None:
    gang = a_gang_that_trains(steps())

    assert gang.run(20, waits(is_stopped), waits(spins), waits(spins), waits(spins)) is not None


@pytest.mark.parametrize("cpu", [steps(), spins_all_the_time])
def test_where_the_driver_stops_to_answer_processors_alone_count(cpu: Second) -> None:
    gang = a_gang_that_trains(cpu)

    assert gang.run(300, with_gpu(cpu, gpu=nan, kernels=nan)) is None


def test_some_samples_in_which_the_driver_did_not_answer_hide_nothing() -> None:
    """As the first one, while it is being opened."""
    gang = Gang()
    gang.run(10, with_gpu(spins_all_the_time, gpu=nan, kernels=nan))
    gang.run(80, with_gpu(spins_all_the_time))

    assert gang.run(20, waits(spins_all_the_time)) is not None


def test_a_hang_is_seen_without_the_driver() -> None:
    gang = a_gang_that_trains(steps())

    assert gang.run(60, with_gpu(sleeps, gpu=nan, kernels=nan)) is not None


def test_gpus_that_work_for_minutes_of_a_life_that_mostly_does_not_use_them_are_no_rhythm() -> None:
    """A simulator on processors, whose policy is trained now and then."""
    gang = Gang()
    gang.run(600, with_gpu(steps(), gpu=0.0, kernels=0.0))
    gang.run(200, with_gpu(steps()))

    assert gang.run(300, waits(steps(), kernels=0.0)) is None
    assert all("gpu" not in member.rhythm.means for member in gang.rhythm.members.values() if member.rhythm)
