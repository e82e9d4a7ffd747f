"""Real jobs, recorded on a busy machine by `tests.core.hang.record`: healthy for a while, then one rank is stopped."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.core.hang.samples import SIGNALS, Usage
from healthd.core.hang.silence import GangRhythm, Silence
from tests.fakes import START

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))


def play(path: Path) -> tuple[int, list[Silence | None]]:
    """The second in which a rank was stopped, and what was seen in each second."""
    recorded = json.loads(path.read_text())
    gang, used = GangRhythm(), [Usage(), Usage()]
    seen: list[Silence | None] = []
    for second, sample in enumerate(recorded["samples"]):
        for rank, (*growth, states) in enumerate(sample):
            whole = [*growth, *[0.0] * (len(SIGNALS) - len(growth))]  # with signals that were not sampled then
            used[rank] = Usage._make([*(a + b for a, b in zip(used[rank][:-1], whole, strict=True)), states])
        usages = {str(rank): usage for rank, usage in enumerate(used)}
        seen.append(gang.observe(usages, START + timedelta(seconds=second)))
    return recorded["stopped_after"], seen


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.stem))
def test_the_hang_of_a_real_job_is_seen_in_time_and_nothing_before_it(path: Path) -> None:
    stopped_after, seen = play(path)

    first = next(second for second, silence in enumerate(seen) if silence is not None)
    assert stopped_after < first <= stopped_after + 15


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: str(path.stem))
def test_the_stopped_rank_of_a_real_job_is_shown(path: Path) -> None:
    _, seen = play(path)

    silence = seen[-1]
    assert silence is not None
    assert [("T" in member.states) for member in silence.members] == [False, True]
