"""A gang is started again only when its old ranks can no longer write."""

from __future__ import annotations

from datetime import timedelta

import pytest

from healthd.core.api import Pod
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from tests.scenarios.scenario import Scenario
from tests.simulation.step_scheduler import at_once


async def a_lost_node(scenario: Scenario) -> None:
    """The kubelet of node-1 dies, and the cluster gives up its pod while the rank runs on."""
    await scenario.run_for(minutes=2)
    scenario.kill_kubelet("node-1")
    await scenario.run_for(minutes=1)
    name = next(pod.metadata.name for pod in scenario.pods() if pod.spec.node_name == "node-1")
    failed = {"status": {"phase": "Failed"}}
    at_once(scenario.ground_truth.patch(Pod, name, failed, namespace="default", subresource="status"))
    at_once(scenario.ground_truth.delete(Pod, name, namespace="default", grace_seconds=0))


@pytest.mark.slow
async def test_a_pod_that_was_only_called_failed_holds_the_gang() -> None:
    scenario = Scenario()
    await a_lost_node(scenario)
    held = await scenario.run_until(Phase.HELD)
    await scenario.run_for(hours=1)

    assert "can no longer write" in held.status.message
    assert [process.node for process in scenario.processes()] == ["node-1"]


async def a_dead_machine(scenario: Scenario) -> None:
    """The kubelet of node-1 dies, and then its GPU: nothing will ever say that its pod ended."""
    await scenario.run_for(minutes=2)
    scenario.kill_kubelet("node-1")
    scenario.fault("node-1")


@pytest.mark.slow
async def test_a_pod_that_does_not_end_holds_the_gang_and_is_reported() -> None:
    scenario = Scenario()
    await a_dead_machine(scenario)
    held = await scenario.run_until(Phase.HELD)
    await scenario.run_for(hours=1)

    assert "can no longer write" in held.status.message
    assert [process.node for process in scenario.processes()] == ["node-1"]


async def test_a_pod_that_ends_late_is_all_that_the_gang_waits_for() -> None:
    scenario = Scenario()
    await a_dead_machine(scenario)
    await scenario.run_until(Phase.HELD)
    scenario.revive_kubelet("node-1")

    await scenario.run_until(Phase.RECOVERED)


@pytest.mark.slow
async def test_a_reboot_of_the_node_is_proof_and_the_gang_goes_on() -> None:
    scenario = Scenario()
    await a_lost_node(scenario)
    await scenario.run_until(Phase.HELD)
    scenario.reboot("node-1")
    recovery = await scenario.run_until(Phase.RECOVERED)

    assert "node-1 has booted since" in [pod.proof for pod in recovery.status.pods]


async def test_a_kubelet_that_comes_back_and_reports_the_end_is_proof() -> None:
    scenario = Scenario()
    await a_lost_node(scenario)
    await scenario.run_until(Phase.HELD)
    scenario.revive_kubelet("node-1")

    await scenario.run_until(Phase.RECOVERED)


async def test_an_owner_who_allows_it_goes_on_after_the_time_out() -> None:
    scenario = Scenario(recovery=RecoveryPolicy(fence_timeout=timedelta(minutes=5)))
    scenario.watchdog.may_overlap = True
    await a_lost_node(scenario)
    recovery = await scenario.run_until(Phase.CONFIRMING)

    assert any(pod.proof.startswith("none: fence_timeout") for pod in recovery.status.pods)
    assert scenario.root.attempt == 1
