"""Somebody deletes recoveries by hand, under a controller that lives on: each goes on from where it was."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.core.api import ObjectMeta, Recovery
from healthd.core.api.model import Phase
from tests.scenarios.scenario import Scenario

WAY = (Phase.STOPPING, Phase.FENCING, Phase.CHOOSING, Phase.RESERVING, Phase.STARTING, Phase.CONFIRMING)


class SomebodyDeletes:
    """The cluster of a controller: as soon as a recovery is recorded to be in *phase*, it is deleted, once."""

    def __init__(self, scenario: Scenario, phase: Phase) -> None:
        self._stage = scenario
        self._cluster: Any = scenario.ground_truth.seen_by("controller")
        self._phase = phase
        self.is_done = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    async def patch(self, kind: type[Any], name: str, *args: Any, **options: Any) -> Any:
        """A write of the controller."""
        written = await self._cluster.patch(kind, name, *args, **options)
        if kind is Recovery and written.status.phase is self._phase and not self.is_done:
            self.is_done = True
            self._stage.delete_recoveries()
        return written


def a_stage(spares: int = 1) -> Scenario:
    return Scenario(ranks=2, spares=spares)


@pytest.mark.parametrize("phase", WAY)
async def test_a_gang_is_restarted_once_whose_recovery_is_deleted_in_any_phase(phase: Phase) -> None:
    scenario = a_stage()
    somebody = SomebodyDeletes(scenario, phase)
    scenario.add_loop("controller", scenario.new_controller("controller", somebody, scenario.ground_truth))
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert somebody.is_done
    assert recovery.metadata.name.endswith("-1")
    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.root.attempt == 1
    assert len(scenario.recoveries()) == 1


async def test_a_gang_is_restarted_though_one_of_its_earlier_recoveries_was_deleted() -> None:
    """The name of the next recovery is not that of one that is left."""
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    for _ in range(2):
        scenario.crash(0)
        await scenario.settle()
        scenario.suspend()
        await scenario.run_until(Phase.SUPERSEDED)
        scenario.resume()
        await scenario.run_for(minutes=1)
    oldest = min(scenario.recoveries(), key=lambda each: each.metadata.name)
    await scenario.ground_truth.delete(Recovery, oldest.metadata.name, namespace=oldest.metadata.namespace)
    await scenario.run_for(minutes=1)
    scenario.crash(0)
    await scenario.run_for(minutes=5)

    assert sorted(each.status.phase for each in scenario.recoveries()) == [Phase.RECOVERED, Phase.SUPERSEDED]
    assert scenario.root.attempt == 1


async def test_people_are_shown_that_it_came_back_and_how_to_end_it() -> None:
    scenario, shown = a_stage(spares=0), []
    scenario.add_loop("controller", scenario.new_controller("controller", announce=lambda *event: shown.append(event)))
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    recovery = await scenario.run_until(Phase.HELD)
    scenario.delete_recoveries()
    await scenario.run_for(minutes=1)
    ((about, _, _, message),) = [event for event in shown if event[2] == "MadeAgain"]

    assert (about.kind, about.name) == ("Recovery", recovery.metadata.name)
    assert "healthd.dev/restart" in message


async def test_a_gang_is_restarted_once_whose_recovery_is_deleted_every_few_seconds() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    for _ in range(30):
        await scenario.run_for(seconds=4)
        scenario.delete_recoveries()
    await scenario.run_for(minutes=5)

    assert scenario.places() == {"0": "node-0", "1": "node-2"}
    assert scenario.root.attempt == 1


async def test_a_held_recovery_that_is_deleted_still_waits_for_its_spare() -> None:
    scenario = a_stage(spares=0)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.HELD)
    scenario.delete_recoveries()
    await scenario.run_for(minutes=1)
    held = scenario.recovery().status.phase
    scenario.repair("node-1")
    await scenario.run_until(Phase.RECOVERED)

    assert held is Phase.HELD
    assert scenario.places() == {"0": "node-0", "1": "node-1"}


async def test_the_proof_that_an_old_pod_may_still_run_is_not_lost() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    scenario.kill_kubelet("node-1")
    scenario.fault("node-1")
    await scenario.run_until(Phase.HELD, at_most=timedelta(minutes=30))
    before = scenario.recovery().status.pods
    scenario.delete_recoveries()
    await scenario.run_for(minutes=5)

    assert scenario.root.suspended
    assert [pod.uid for pod in scenario.recovery().status.pods] == [pod.uid for pod in before]


async def test_the_spare_of_a_gang_that_is_deleted_with_its_recovery_is_given_back() -> None:
    scenario = a_stage()
    scenario.add_loop(
        "controller",
        scenario.new_controller("controller", SomebodyDeletes(scenario, Phase.STARTING), scenario.ground_truth),
    )
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_for(seconds=4)
    scenario.delete_recoveries()
    scenario.delete()
    await scenario.run_for(minutes=5)

    assert scenario.recoveries() == []
    assert scenario.pool() == ["node-2"]
    assert scenario.pods() == []


async def test_a_gang_that_its_user_suspends_after_the_deletion_stays_so() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.CONFIRMING)
    scenario.delete_recoveries()
    scenario.suspend()
    await scenario.run_for(minutes=5)

    assert scenario.root.suspended
    assert scenario.processes() == []


async def test_a_recovery_that_is_over_stays_deleted() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.RECOVERED)
    scenario.delete_recoveries()
    await scenario.run_for(minutes=5)

    assert scenario.recoveries() == []
    assert scenario.root.attempt == 1


async def test_where_restarts_were_switched_off_a_deleted_recovery_stays_deleted() -> None:
    scenario = a_stage(spares=0)
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    await scenario.run_until(Phase.HELD)
    scenario.patch_job({"metadata": {"annotations": {"healthd.dev/restart": None}}})
    scenario.delete_recoveries()
    await scenario.run_for(minutes=5)

    assert scenario.recoveries() == []
    assert scenario.root.suspended


async def test_a_deleted_recovery_does_not_come_back_beside_the_next_one_of_another_controller() -> None:
    scenario = a_stage()
    await scenario.run_for(minutes=1)
    scenario.fault("node-1")
    deleted = await scenario.run_until(Phase.CONFIRMING)
    scenario.delete_recoveries()
    later = replace(deleted.spec, first_attempt=deleted.status.attempt + 1)
    meta = ObjectMeta(name=f"{deleted.metadata.name}-later", namespace=deleted.metadata.namespace)
    await scenario.ground_truth.create(Recovery(metadata=meta, spec=later))
    await scenario.run_for(minutes=5)

    assert [each.metadata.name for each in scenario.recoveries()] == [meta.name]
