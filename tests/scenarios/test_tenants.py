"""Tenants against each other: what one writes in its own namespace does nothing to the gangs of another."""

from __future__ import annotations

import msgspec

from healthd.core.api import ChosenCheckpoint, Recovery, RecoveryStatus, TimelineEntry
from healthd.core.api.model import CauseKind, Phase
from tests.builders import a_cause, a_recovery
from tests.fakes import START
from tests.scenarios.scenario import Scenario
from tests.simulation.step_scheduler import at_once


def forged(scenario: Scenario, *, namespace: str, status: RecoveryStatus | None = None) -> Recovery:
    """
    A recovery that was made by hand in *namespace*, and has the name and the uid of the gang of the stage. One that
    names the namespace of that gang, too, is not read at all (`tests/cluster/test_decoding.py`).
    """
    gang = msgspec.structs.replace(scenario.root.ref, namespace=namespace)
    recovery = a_recovery("forged", namespace=namespace, cause=a_cause(CauseKind.SOFTWARE), status=status)
    return msgspec.structs.replace(recovery, spec=msgspec.structs.replace(recovery.spec, gang=gang))


async def test_a_recovery_of_another_namespace_does_not_stop_a_gang() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    before = scenario.places()

    at_once(scenario.ground_truth.create(forged(scenario, namespace="team-a")))
    await scenario.run_for(minutes=2)

    assert scenario.places() == before
    assert not scenario.root.suspended
    assert scenario.root.attempt == 0


async def test_a_recovery_of_another_namespace_that_claims_to_be_starting_chooses_no_checkpoint() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    mine = ChosenCheckpoint(path="/mine/step-9", step=9)
    status = RecoveryStatus(
        phase=Phase.STARTING,
        attempt=1,
        checkpoint=mine,
        timeline=[TimelineEntry(phase=Phase.STARTING, at=START)],
    )

    at_once(scenario.ground_truth.create(forged(scenario, namespace="team-a", status=status)))
    await scenario.run_for(minutes=2)

    assert scenario.root.attempt == 0
    assert scenario.recovery().status.phase is Phase.SUPERSEDED
    assert "no Job train in team-a" in scenario.recovery().status.message


async def test_a_recovery_of_another_namespace_does_not_stand_before_a_true_one() -> None:
    scenario = Scenario(ranks=2, spares=1)
    await scenario.run_for(minutes=1)
    at_once(scenario.ground_truth.create(forged(scenario, namespace="team-a")))

    scenario.fault("node-1")
    await scenario.run_for(minutes=5)

    own = [each for each in scenario.recoveries() if each.metadata.namespace == "default"]
    assert [each.status.phase for each in own] == [Phase.RECOVERED]
