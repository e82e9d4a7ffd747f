"""Ranks that are slow within their pods: what of what agents list is a change."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from healthd.core.hang.straggler import Straggler
from healthd.core.hang.work.slow_in_pods import MISSING_FOR, SlowInPods, Source
from tests.fakes import START

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def slow(rank: str = "13", *, since: datetime = START, ended_at: datetime | None = None) -> Straggler:
    return Straggler(
        rank=rank,
        pid=4711,
        pod="train-1",
        node="node-1",
        since=since,
        ended_at=ended_at,
        seen_at=since,
        slower=0.2,
        ran=0.6,
        starved=0.0,
        peers_ran=0.5,
        peers_starved=0.0,
        confidence=0.9,
    )


def seen() -> SlowInPods:
    """One that is slow was seen."""
    gang = SlowInPods(["u0", "u1"])
    assert gang.observe({Source("train-1"): [slow()], Source("train-0"): []}, START) == [slow()]
    return gang


def test_one_is_a_change_once() -> None:
    gang = seen()

    assert gang.observe({Source("train-1"): [slow()]}, START + MINUTE) == []
    assert gang.present == [slow()]


def test_its_end_is_that_which_its_agent_lists() -> None:
    gang, end = seen(), START + 5 * MINUTE

    assert gang.observe({Source("train-1"): [slow(ended_at=end)]}, end + MINUTE) == [slow(ended_at=end)]
    assert gang.present == []
    assert gang.observe({Source("train-1"): [slow(ended_at=end)]}, end + 2 * MINUTE) == []


def test_one_that_is_slow_again_is_a_change_again() -> None:
    gang, end = seen(), START + 5 * MINUTE
    gang.observe({Source("train-1"): [slow(ended_at=end)]}, end)
    again = slow(since=end + MINUTE)

    assert gang.observe({Source("train-1"): [slow(ended_at=end), again]}, end + 2 * MINUTE) == [again]


def test_of_a_pod_of_which_nothing_is_known_none_is_over() -> None:
    gang = seen()

    assert gang.observe({Source("train-0"): []}, START + 10 * MISSING_FOR) == []
    assert gang.present == [slow()]


def test_an_agent_that_was_restarted_may_list_it_again_as_slow_from_the_start() -> None:
    gang = seen()
    gang.observe({Source("train-1"): []}, START + MINUTE)
    again = replace(slow(since=START + 3 * MINUTE), from_start=True)

    assert gang.observe({Source("train-1"): [again]}, START + 5 * MINUTE) == []
    assert gang.present == [slow()]
    assert gang.observe({Source("train-1"): []}, START + 6 * MINUTE + MISSING_FOR) == []  # missing for the second time


def test_one_that_is_no_longer_listed_is_over_after_a_while() -> None:
    gang = seen()
    gang.observe({Source("train-1"): []}, START + MINUTE)

    assert gang.observe({Source("train-1"): []}, START + MISSING_FOR) == []
    [over] = gang.observe({Source("train-1"): []}, START + MINUTE + MISSING_FOR)
    assert over.ended_at == START + MINUTE + MISSING_FOR


def test_an_end_of_earlier_is_not_that_of_one_on_record() -> None:
    gang = SlowInPods(["u0", "u1"])
    gang.adopt(slow(since=START + 10 * MINUTE))

    assert gang.observe({Source("train-1"): [slow(ended_at=START + 5 * MINUTE)]}, START + 11 * MINUTE) == []


def test_the_same_number_in_another_pod_is_another_rank() -> None:
    gang = seen()
    other = replace(slow(), pod="train-2")

    assert gang.observe({Source("train-1"): [slow()], Source("train-2"): [other]}, START + SECOND) == [other]


def late(pod: str = "train-1", *, rank: str = "1") -> Straggler:
    """A GPU of *pod* waits for its host."""
    return replace(slow(rank), pid=0, pod=pod, gpu="0000:3b:00.0", idle=0.1)


def test_a_late_gpu_is_none_beside_what_is_known_of_its_pod() -> None:
    gang = SlowInPods(["u0", "u1"])
    listed = {Source("train-1"): [slow()], Source("train-1", of_gpus=True): [late()]}

    assert gang.observe(listed, START) == [slow()]
    assert gang.observe({Source("train-0", of_gpus=True): [late("train-0", rank="0")]}, START, slow=["train-0"]) == []


def test_a_late_gpu_of_which_nothing_is_listed_stays() -> None:
    gang = SlowInPods(["u0", "u1"])
    assert gang.observe({Source("train-1", of_gpus=True): [late()]}, START) == [late()]

    assert gang.observe({Source("train-1"): []}, START + MISSING_FOR) == []
    assert gang.observe({Source("train-1"): []}, START + 2 * MISSING_FOR) == []
    assert gang.present == [late()]
