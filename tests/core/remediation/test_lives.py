"""The lives of many nodes, drawn from seeds: what must never happen does not, and planted bugs are noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from healthd.core.remediation.decide import decide
from healthd.core.remediation.situation import CheckState, Decision, NodeSituation, PersonsWord
from healthd.core.remediation.taking_over import COUNTED
from tests.core.remediation.lives import live

SEEDS = range(1, 201)


@pytest.mark.slow
def test_no_schedule_breaks_an_invariant() -> None:
    outcomes = [live(seed) for seed in SEEDS]

    assert [(each.seed, each.broken) for each in outcomes if each.broken] == []
    assert sum(each.returned for each in outcomes) > 100
    assert sum(each.requests for each in outcomes) > 500


def forgetful(s: NodeSituation) -> NodeSituation:
    attempts = [] if s.attempt is None else s.status.attempts[-1:]
    return replace(s, status=msgspec.structs.replace(s.status, attempts=attempts))


def bribed(s: NodeSituation) -> NodeSituation:
    known = s.check.state is not CheckState.ABSENT
    return replace(s, check=replace(s.check, state=CheckState.PASSED)) if known else s


def greedy(s: NodeSituation) -> NodeSituation:
    names = frozenset(name for each in s.slot_sets for name in each.names)
    return replace(s, slots_held=names) if s.status.phase in COUNTED else s


MUTANTS: dict[str, Callable[[NodeSituation], NodeSituation]] = {
    "twice": forgetful,
    "without a check": bribed,
    "a person's word": lambda s: replace(s, word=PersonsWord.NOTHING),
    "runs": lambda s: replace(s, occupants=()),
    "owns it": lambda s: replace(s, other_remediator=""),
    "under a rung": greedy,
    "in a week": lambda s: replace(s, policy=msgspec.structs.replace(s.policy, attempts_per_week=32)),
}


@pytest.mark.slow
@pytest.mark.parametrize("sees", MUTANTS)
def test_a_planted_bug_is_noticed(sees: str) -> None:
    def decided(s: NodeSituation) -> Decision:
        return decide(MUTANTS[sees](s))

    assert any(sees in live(seed, decided).broken for seed in range(1, 101))
