"""Windows of work shares, cut from samples that are taken once a second."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import nan

import pytest

from healthd.core.hang.samples import SampleRing, Usage, rates
from healthd.core.hang.silence import GangRhythm
from healthd.core.hang.work.work_share import ShareWindow, ShareWindows, WorkShare, of_gpus
from tests.fakes import START

SECOND = timedelta(seconds=1)
Rank = Callable[[int], Usage | None]
"""What a rank has used until some second."""


def works(ran: float = 0.5, starved: float = 0.0) -> Rank:
    """The same in every second."""
    return lambda second: Usage(cpu=ran * second, ran=ran * second, starved=starved * second, states="S")


def windows_of(seconds: int, *ranks: Rank) -> list[ShareWindow]:
    gang, windows, found = GangRhythm(), ShareWindows(), list[ShareWindow]()
    for second in range(seconds):
        at = START + second * SECOND
        gang.observe({str(rank): usage(second) for rank, usage in enumerate(ranks)}, at)
        window = windows.next_window(gang, at)
        found += [window] if window is not None else []
    return found


def test_a_window_has_the_shares_of_every_rank() -> None:
    first, _ = windows_of(11, works(0.5), works(0.2, starved=0.3))

    assert first.end - first.begin == timedelta(seconds=5)
    assert first.shares["0"] == pytest.approx(WorkShare(0.5, 0.0), abs=1e-6)
    assert first.shares["1"] == pytest.approx(WorkShare(0.2, 0.3), abs=1e-6)


def test_a_window_in_which_a_rank_could_not_be_sampled_is_left_out() -> None:
    lost: Rank = lambda second: works()(second) if not 5 < second < 12 else None  # noqa: E731

    assert [window.begin for window in windows_of(21, works(), lost)] == [START, START + 15 * SECOND]


def test_where_the_kernel_does_not_count_there_is_no_window() -> None:
    assert windows_of(40, works(), lambda second: Usage(cpu=0.5 * second, states="S")) == []


def test_how_often_a_rank_was_stopped_is_a_part_of_its_own_waits_and_no_further_work() -> None:
    def stops(second: int) -> Usage:
        return Usage(cpu=0.4 * second, ran=0.4 * second, own_waits=0.5 * second, stopped=second // 2, states="S")

    *_, window = windows_of(11, works(0.5), stops)

    assert window.shares["1"].stopped == pytest.approx(0.5, abs=0.11)
    assert window.shares["1"].busy == pytest.approx(0.9, abs=1e-6)


def test_a_share_is_never_above_one() -> None:
    assert WorkShare(0.8, 0.7).busy == 1.0


def ring_of(usage: Usage) -> SampleRing:
    """Ten seconds, in each of which so much is used."""
    ring = SampleRing()
    for second in range(10):
        ring.add(START + second * SECOND, rates(Usage(), usage, 1.0))
    return ring


def test_the_share_of_gpus_is_the_use_of_their_memory_and_the_time_without_a_kernel() -> None:
    share = of_gpus(ring_of(Usage(gpu=0.4, kernels=0.9)), 5)

    assert share == pytest.approx(WorkShare(0.4, own_waits=0.1), abs=1e-6)


def test_gpus_that_run_no_kernel_at_all_only_wait_for_their_host() -> None:
    assert of_gpus(ring_of(Usage(cpu=1.0, ran=1.0)), 5) == WorkShare(0.0, own_waits=1.0)


def test_gpus_that_do_not_answer_have_no_share() -> None:
    assert of_gpus(ring_of(Usage(gpu=nan, kernels=nan)), 5) is None
