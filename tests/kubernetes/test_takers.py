"""Pods of others take a node of a gang while it is stopped: nobody holds it then."""

from __future__ import annotations

import asyncio

import pytest

from healthd.core.api.model import Phase
from tests.kubernetes.gangs import template
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.stage import Stage

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("which", ["Job", "StatefulSet"])
async def test_gang_that_lost_a_node_to_another_pod_runs_on_a_second_spare(
    stage: Stage, other_stage: Stage, replicas: Replicas, which: str
) -> None:
    await asyncio.gather(replicas.add(), stage.play(which, spares=2))
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taker"}, **_whole_node(stage)}
    other_stage.apply(waiting)

    stage.break_gpu(stage.node_of(rank=0))
    recovery = await stage.until_phase(Phase.RECOVERED)

    taken = other_stage.get("pod/taker")["spec"]["nodeName"]
    pods = await stage.until_running(1)
    assert list(recovery.status.stand_ins) == [taken]
    assert {*recovery.status.replacements.values(), *recovery.status.stand_ins.values()} == set(stage.spares)
    assert {pod.spec.node_name for pod in pods} >= set(stage.spares)
    assert [attempt.number for attempt in recovery.status.attempts] == [1]
    assert stage.ranks.overlaps == []


async def test_gang_that_lost_a_node_and_has_no_spare_says_who_has_it_and_runs_when_he_is_gone(
    stage: Stage, other_stage: Stage, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(), stage.play(spares=1))
    other_stage.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "taker"}, **_whole_node(stage)})

    stage.break_gpu(stage.node_of(rank=0))
    held = await stage.until_phase(Phase.HELD)
    taken = other_stage.get("pod/taker")["spec"]["nodeName"]
    assert held.status.message == f"no spare for {taken}, which {other_stage.namespace}/taker took"

    other_stage.kubectl("delete", "pod", "taker", "--force", "--grace-period=0")
    await stage.until_phase(Phase.RECOVERED)
    assert taken in {pod.spec.node_name for pod in await stage.until_running(1)}
    assert stage.ranks.overlaps == []


def _whole_node(stage: Stage) -> dict[str, object]:
    return {"spec": template(stage.pod_spec)["spec"]}
