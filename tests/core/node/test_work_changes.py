"""When a pod works more or less than before."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from healthd.core.api.health import GpuWork, PodWork
from healthd.core.node.work_changes import has_changed
from tests.fakes import START


def work(cores: Sequence[float], starved: Sequence[float] = ()) -> PodWork:
    return PodWork(end=START, seconds=15, cores=list(cores), starved=list(starved))


def test_a_pod_that_works_as_before_has_not_changed() -> None:
    dice = random.Random(3)
    assert not has_changed(work([dice.gauss(4, 0.02) for _ in range(24)]))


@pytest.mark.parametrize("now", [3.64, 4.4])
def test_a_twentieth_more_or_less_for_three_windows_is_a_change(now: float) -> None:
    assert has_changed(work([4.0, 4.01, 3.99] * 6 + [now] * 3))
    assert not has_changed(work([4.0, 4.01, 3.99] * 6 + [4.0, now, now]))


def test_what_comes_and_goes_anyway_is_none() -> None:
    assert not has_changed(work([3.0, 5.0, 4.0, 3.5] * 5 + [4.3] * 3))


def test_a_pause_is_none() -> None:
    assert not has_changed(work([4.0] * 20 + [0.1] * 3))


def test_a_pod_that_begins_to_get_no_processor_has_changed() -> None:
    assert has_changed(work([4.0] * 20, [0.0] * 17 + [0.1] * 3))


def gpus(memory: Sequence[float], idle: Sequence[float]) -> GpuWork:
    return GpuWork(end=START, seconds=15, memory=list(memory), idle=list(idle))


def test_gpus_that_begin_to_do_less_or_to_wait_for_their_host_have_changed() -> None:
    assert not has_changed(gpus([0.4, 0.41, 0.39] * 7, [0.02, 0.01, 0.03] * 7))
    assert has_changed(gpus([0.4, 0.41, 0.39] * 6 + [0.36] * 3, [0.02] * 21))
    assert has_changed(gpus([0.4] * 21, [0.02, 0.01, 0.03] * 6 + [0.12] * 3))


@pytest.mark.parametrize("cores", [[], [4.0] * 5, [0.0] * 20])
def test_too_little_is_no_change(cores: list[float]) -> None:
    assert not has_changed(work(cores))
    assert not has_changed(None)
