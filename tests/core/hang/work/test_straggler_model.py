"""The model that the figures of stragglers come from: a window has the parts of steps that fell into it."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest

from tests.bench._straggler_model import RANKS, WINDOW, Gang, Slow, Step

LONG_STEPS, SHORT_STEPS = 15, 3
"""Seeds of gangs whose steps take 4.5 s and 0.4 s."""


class Recorded(Gang):
    """Keeps its steps."""

    def __init__(self, seed: int) -> None:
        self.made: list[Step] = []
        super().__init__(seed)

    def _step(self, begin: float, slow: Slow | None) -> Step:
        self.made.append(super()._step(begin, slow))
        return self.made[-1]


@pytest.mark.parametrize("seed", [LONG_STEPS, SHORT_STEPS])
@pytest.mark.parametrize("early", [0.0, 0.9])
def test_what_a_rank_works_in_its_steps_is_in_one_window_or_the_next(seed: int, early: float) -> None:
    gang = Recorded(seed)
    windows = [*gang.windows(400, early=(early,) * RANKS)]
    end = 400 * WINDOW - early

    for rank in range(RANKS):
        worked = sum(max(0.0, min(end, each.begin + each.worked[rank]) - each.begin) for each in gang.made)
        assert sum(window.shares[str(rank)].ran for window in windows) * WINDOW == pytest.approx(worked)


def test_of_long_steps_one_window_has_more_work_than_the_next() -> None:
    def spread(seed: int) -> float:
        shares = [window.shares["3"].ran for window in Gang(seed).windows(60)]
        return pstdev(shares) / fmean(shares)

    assert spread(LONG_STEPS) > 5 * spread(SHORT_STEPS)


def test_the_others_wait_at_the_end_of_a_step_for_a_rank_that_is_slow() -> None:
    gang = Recorded(LONG_STEPS)
    [*gang.windows(100, Slow(3, by=0.5, begin=0.0))]
    steps = [step for step in gang.made[1:] if not step.is_alone]

    assert fmean(max(step.worked) == step.worked[3] for step in steps) > 0.95
    assert fmean(step.end - step.begin for step in steps) > 1.3 * gang.period


def test_a_gang_gets_slower_by_less_than_its_slow_rank_for_others_are_late_too() -> None:
    assert 0.0 < Gang(LONG_STEPS).slower(Slow(3, by=0.1, begin=0.0)) < 0.1


def test_no_step_gets_longer_for_a_rank_that_only_uses_more_beside_its_steps() -> None:
    usual, more = Recorded(LONG_STEPS), Recorded(LONG_STEPS)
    [*usual.windows(100)]
    [*more.windows(100, Slow(3, by=0.2, begin=0.0, beside=True))]

    assert [step.end for step in more.made] == [step.end for step in usual.made]
    assert all(m.worked[3] > u.worked[3] for m, u in zip(more.made, usual.made, strict=True) if not m.is_alone)
