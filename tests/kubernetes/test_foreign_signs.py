"""Nodes that somebody else calls bad, and pods whose end is not reported: nothing starts before there is proof."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from healthd.clock import SystemClock
from healthd.core.api import ANNOTATION_FENCE_OVERRIDE, ANNOTATION_POWERED_OFF
from healthd.core.api.model import Phase
from tests.kubernetes.replicas import Replicas
from tests.kubernetes.scenario import Scenario
from tests.lab.kubernetes import HAS_MUTATING_POLICIES

pytestmark = [pytest.mark.lab, pytest.mark.slow]

SOON = {"off": ["node-unreachable"], "rows": ["condition Ready=Unknown after 1s -> restart"]}
"""A minute of silence is right for a cluster, and long for a test."""


async def recovered_once(scenario: Scenario, bad: str) -> None:
    """The gang runs again after one restart, away from the *bad* node."""
    await scenario.until_phase(Phase.RECOVERED)
    pods = await scenario.until_running(1)
    assert bad not in {pod.spec.node_name for pod in pods}
    assert len(scenario.recoveries()) == 1
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0, 1)}


async def stopped_but_for(scenario: Scenario, bad: str) -> None:
    """All members have ended but the one on the *bad* node, where nothing is reported."""

    def alone() -> bool:
        return [pod.spec.node_name for pod in scenario.living()] == [bad]

    await scenario.until(f"all to end but the pod on {bad}", alone)


def condition(scenario: Scenario, node: str, kind: str, status: str) -> None:
    now = SystemClock().now().strftime("%Y-%m-%dT%H:%M:%SZ")
    says = {"type": kind, "status": status, "reason": "Told", "message": "by a test", "lastTransitionTime": now}
    body = {"status": {"conditions": [says]}}
    strategic = "application/strategic-merge-patch+json"
    scenario.control_plane.api.call("PATCH", f"/api/v1/nodes/{node}/status", body, kind=strategic)


@pytest.mark.skipif(
    not HAS_MUTATING_POLICIES,
    reason="only a cordon keeps pods off there; test_before_1_36.py has what happens",
)
async def test_gang_leaves_a_node_that_another_detector_calls_broken(scenario: Scenario, replicas: Replicas) -> None:
    await asyncio.gather(replicas.add(), scenario.play())
    bad = scenario.node_of(rank=1)

    condition(scenario, bad, "CperHardwareErrorFatal", "True")

    await recovered_once(scenario, bad)
    assert not scenario.node(bad).spec.unschedulable


async def test_gang_leaves_a_node_without_reports_when_its_agent_sees_the_last_process_end(
    scenario: Scenario, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(foreign=SOON), scenario.play())
    bad = scenario.node_of(rank=1)
    scenario.kill_kubelet(bad)
    await stopped_but_for(scenario, bad)

    scenario.end_processes(bad)

    await recovered_once(scenario, bad)


async def test_gang_leaves_a_node_that_was_powered_off(scenario: Scenario, replicas: Replicas) -> None:
    await asyncio.gather(replicas.add(foreign=SOON), scenario.play())
    bad = scenario.node_of(rank=1)
    scenario.kill_kubelet(bad)
    await stopped_but_for(scenario, bad)

    scenario.control_plane.kubectl(
        "annotate", "node", bad, f"{ANNOTATION_POWERED_OFF}={SystemClock().now().isoformat()}"
    )

    await recovered_once(scenario, bad)


def reboots(scenario: Scenario, node: str) -> None:
    scenario.simulated.reboot(node)


def ends(scenario: Scenario, node: str) -> None:
    scenario.end_processes(node)


async def test_gang_does_not_wait_for_the_kubelet_of_a_node_that_has_booted(
    scenario: Scenario, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(foreign=SOON), scenario.play())
    bad = scenario.node_of(rank=1)
    scenario.kill_kubelet(bad)
    await stopped_but_for(scenario, bad)
    await scenario.until(
        "the boot to be on record", lambda: all(p.boot_id for p in scenario.recoveries()[0].status.pods)
    )

    reboots(scenario, bad)

    await recovered_once(scenario, bad)
    assert f"{bad} has booted since" in {pod.proof for pod in scenario.recoveries()[0].status.pods}


@pytest.mark.parametrize(("which", "proves"), [("Job", reboots), ("plain pods", ends)])
async def test_pods_that_an_out_of_service_taint_removes_have_not_ended_for_that(
    scenario: Scenario, replicas: Replicas, which: str, proves: Callable[[Scenario, str], None]
) -> None:
    await asyncio.gather(replicas.add(foreign=SOON), scenario.play(which))
    bad = scenario.node_of(rank=1)
    scenario.kill_kubelet(bad)
    await stopped_but_for(scenario, bad)
    scenario.control_plane.kubectl("taint", "node", bad, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
    await scenario.until("the pod object to go", lambda: not scenario.living())

    held = await scenario.until_phase(Phase.HELD)
    assert "no proof" in held.status.message
    assert set(map(tuple, scenario.ranks.starts.values())) == {(0,)}

    proves(scenario, bad)
    await recovered_once(scenario, bad)


async def test_node_that_was_deleted_proves_nothing_until_a_person_answers_for_it(
    scenario: Scenario, replicas: Replicas
) -> None:
    await asyncio.gather(replicas.add(foreign=SOON), scenario.play())
    bad = scenario.node_of(rank=1)
    scenario.kill_kubelet(bad)
    scenario.simulated.remove([bad])
    await stopped_but_for(scenario, bad)
    scenario.kubectl("delete", "pods", "--field-selector", f"spec.nodeName={bad}", "--force", "--grace-period=0")

    held = await scenario.until_phase(Phase.HELD)
    assert "no proof" in held.status.message
    word = {"metadata": {"annotations": {ANNOTATION_FENCE_OVERRIDE: f"{bad}: it lies on my table"}}}
    scenario.kubectl("patch", "recovery", held.metadata.name, "--type=merge", "-p", json.dumps(word))

    await recovered_once(scenario, bad)
