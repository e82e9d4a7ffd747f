"""Pods of others take a node of a gang while it is stopped: nothing holds it then."""

from __future__ import annotations

import asyncio

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.gangs import template
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("which", ["Job", "StatefulSet"])
async def test_gang_that_lost_a_node_to_another_pod_runs_on_a_second_spare(
    scenario: Scenario, other_stage: Scenario, replicas: Replicas, which: str
) -> None:
    await asyncio.gather(replicas.add(), scenario.play(which, spares=2))
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taker"}, **_whole_node(scenario)}
    other_stage.apply(waiting)

    scenario.break_gpu(scenario.node_of(rank=0))
    recovery = await scenario.until_phase(Phase.RECOVERED)

    taken = other_stage.get("pod/taker")["spec"]["nodeName"]
    pods = await scenario.until_running(1)
    assert list(recovery.status.stand_ins) == [taken]
    assert {*recovery.status.replacements.values(), *recovery.status.stand_ins.values()} == set(scenario.spares)
    assert {pod.spec.node_name for pod in pods} >= set(scenario.spares)
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert scenario.ranks.overlaps == []


async def test_gang_that_lost_a_node_and_has_no_spare_names_the_pod_there_and_runs_when_it_is_gone(
    scenario: Scenario, other_stage: Scenario, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(), scenario.play(spares=1))
    other_stage.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taker"}, **_whole_node(scenario)})

    scenario.break_gpu(scenario.node_of(rank=0))
    held = await scenario.until_phase(Phase.HELD)
    taken = other_stage.get("pod/taker")["spec"]["nodeName"]
    assert held.status.message == f"no spare for {taken}, which {other_stage.namespace}/taker took"

    other_stage.kubectl("delete", "pod", "taker", "--force", "--grace-period=0")
    await scenario.until_phase(Phase.RECOVERED)
    assert taken in {pod.spec.node_name for pod in await scenario.until_running(1)}
    assert scenario.ranks.overlaps == []


def _whole_node(scenario: Scenario) -> dict[str, object]:
    return {"spec": template(scenario.pod_spec)["spec"]}
