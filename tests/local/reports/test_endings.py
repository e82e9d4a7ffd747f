"""A run that ends with 0 is doubted where it went no further, and where not all of it was there."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api import ChosenCheckpoint, ContainerState, ContainerStatus, Pod, PodStatus, Terminated
from healthd.local.reports.endings import EARLY, doubts, left_early, unsaved
from tests.builders import a_pod
from tests.fakes import START

LOST = "rank 0 ended 8 s before the last one, and nothing was saved after that"


NO_CHECKPOINT = ChosenCheckpoint()


def at_step(step: int, saved_after: float = 0.0) -> ChosenCheckpoint:
    saved = int((START + timedelta(seconds=saved_after)).timestamp() * 1e9)
    return ChosenCheckpoint(path=f"/out/step-{step}", step=step, saved_ns=saved)


def test_a_run_that_went_on_from_where_it_began_is_not_doubted() -> None:
    assert doubts(2, 2, NO_CHECKPOINT, at_step(40), START) == []
    assert doubts(2, 2, at_step(20), at_step(40), START) == []
    assert doubts(2, 2, at_step(-1, -9), at_step(-1, 9), START) == []


def test_a_run_that_went_no_further_is_doubted_with_its_step() -> None:
    assert doubts(2, 2, at_step(20), at_step(20, 9), START) == [
        "nothing beyond step 20 was saved, and there it started"
    ]
    assert doubts(2, 2, at_step(-1, -9), at_step(-1, -9), START) == [
        "nothing beyond /out/step--1 was saved, and there it started"
    ]
    assert doubts(2, 2, NO_CHECKPOINT, NO_CHECKPOINT, START) == ["no checkpoint that loads was saved"]


def test_a_run_that_ended_on_fewer_ranks_is_doubted() -> None:
    assert doubts(2, 1, NO_CHECKPOINT, at_step(40), START) == ["it ended on 1 of 2 ranks"]


def test_what_could_not_be_read_raises_no_doubt() -> None:
    assert doubts(2, 2, at_step(20), None, START) == []


def a_rank(index: int, ended_after: timedelta | None) -> Pod:
    if ended_after is None:
        return a_pod(f"rank-{index}", index=index, status=PodStatus(phase="Running"))
    end = ContainerState(terminated=Terminated(exit_code=0, finished_at=START + ended_after))
    status = PodStatus(phase="Succeeded", container_statuses=[ContainerStatus(name="main", state=end)])
    return a_pod(f"rank-{index}", index=index, status=status)


def test_a_rank_that_left_before_the_others_is_reported_within_seconds() -> None:
    ranks = [a_rank(0, None), a_rank(1, timedelta(0)), a_rank(2, EARLY)]

    assert timedelta(seconds=10) > EARLY

    assert left_early(ranks, START + EARLY) == ["1"]
    assert left_early(ranks[1:], START + 9 * EARLY) == []


@pytest.mark.parametrize(
    ("ends", "saved_after", "why"),
    [
        pytest.param((2, 10), 1.0, [LOST], id="lost"),
        pytest.param((2, 10), 8.0, [], id="saved by the others"),
        pytest.param((2, 4), 1.0, [], id="all end together"),
        pytest.param((10, 10), 1.0, [], id="at the same moment"),
    ],
)
def test_what_no_one_saved_after_the_first_rank_ended_is_a_doubt(
    ends: tuple[int, int], saved_after: float, why: list[str]
) -> None:
    ranks = [a_rank(number, timedelta(seconds=seconds)) for number, seconds in enumerate(ends)]

    assert unsaved(ranks, at_step(20, saved_after)) == why
    assert unsaved(ranks, None) == []
