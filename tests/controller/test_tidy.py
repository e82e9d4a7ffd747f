"""What is given back when nobody needs it any more, and what is kept for those who do."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.controller.tidy import needs_hint
from healthd.core.gang import Ending, Root
from healthd.core.model import Phase
from healthd.core.objects import HINT_CURRENT, LABEL_HINT, Attempt, ChosenCheckpoint, Recovery
from healthd.core.policy import RecoveryPolicy
from tests.core.gangs import a_recovery_in, a_root
from tests.scenarios.stage import Stage

FIRST = [Attempt(number=1, checkpoint=ChosenCheckpoint())]


def current(stage: Stage) -> list[str]:
    """The recoveries whose hint new pods carry."""
    return [each.metadata.name for each in stage.recoveries() if each.metadata.labels.get(LABEL_HINT) == HINT_CURRENT]


async def test_pods_carry_the_hint_of_the_recovery_that_started_them() -> None:
    stage = Stage()
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)

    assert current(stage) == [stage.recovery().metadata.name]


async def test_the_hint_of_an_earlier_recovery_is_taken_away() -> None:
    stage = Stage(spares=2)
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)
    await stage.run_for(minutes=15)
    stage.fault("node-0")
    await stage.run_for(minutes=5)

    assert [recovery.status.phase for recovery in stage.recoveries()] == [Phase.RECOVERED, Phase.RECOVERED]
    assert current(stage) == [stage.recoveries()[-1].metadata.name]


async def test_a_gang_that_is_gone_has_no_hint() -> None:
    stage = Stage()
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)
    stage.delete()
    await stage.run_for(minutes=2)

    assert current(stage) == []


async def test_the_oldest_recoveries_of_a_gang_are_forgotten() -> None:
    stage = Stage(spares=3, budget=4, recovery=RecoveryPolicy(keep=2))
    await stage.run_for(minutes=1)
    for node in ("node-0", "node-1", "node-2"):
        stage.fault(node)
        await stage.run_for(minutes=15)

    assert [recovery.spec.first_attempt for recovery in stage.recoveries()] == [2, 3]


async def test_the_story_of_a_gang_outlives_it_for_a_while() -> None:
    stage = Stage(recovery=RecoveryPolicy(keep_for=timedelta(hours=2)))
    await stage.run_for(minutes=1)
    stage.fault("node-1")
    await stage.run_until(Phase.RECOVERED)
    stage.delete()
    await stage.run_for(hours=1)
    assert len(stage.recoveries()) == 1

    await stage.run_for(hours=2)

    assert stage.recoveries() == []


@pytest.mark.parametrize(
    ("recovery", "root", "needed"),
    [
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), a_root(attempt=1), True),
        (a_recovery_in(Phase.SUPERSEDED, attempts=FIRST), a_root(attempt=1), True),
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), a_root(attempt=2), False),
        (a_recovery_in(Phase.STARTING, attempts=FIRST), a_root(attempt=0), True),
        (a_recovery_in(Phase.RESERVING), a_root(attempt=0), False),
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), a_root(attempt=1, ending=Ending.COMPLETE), False),
        (a_recovery_in(Phase.RECOVERED, attempts=FIRST), None, False),
    ],
    ids=["it-runs", "superseded-and-runs", "another-runs", "about-to-start", "not-yet", "finished", "gone"],
)
def test_a_hint_is_needed_while_its_attempt_runs(recovery: Recovery, root: Root | None, needed: bool) -> None:
    assert needs_hint(recovery, root) == needed
