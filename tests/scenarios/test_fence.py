"""A gang is started again only when its old ranks can no longer write."""

from __future__ import annotations

from datetime import timedelta

from healthd.core.api import Pod
from healthd.core.api.model import Phase
from healthd.core.config import RecoveryPolicy
from tests.scenarios.stage import Stage
from tests.simulation.turns import at_once


async def a_lost_node(stage: Stage) -> None:
    """The kubelet of node-1 dies, and the cluster gives up its pod while the rank runs on."""
    await stage.run_for(minutes=2)
    stage.kill_kubelet("node-1")
    await stage.run_for(minutes=1)
    name = next(pod.metadata.name for pod in stage.pods() if pod.spec.node_name == "node-1")
    failed = {"status": {"phase": "Failed"}}
    at_once(stage.truth.patch(Pod, name, failed, namespace="default", subresource="status"))
    at_once(stage.truth.delete(Pod, name, namespace="default", grace_seconds=0))


async def test_a_pod_that_was_only_called_failed_holds_the_gang() -> None:
    stage = Stage()
    await a_lost_node(stage)
    held = await stage.run_until(Phase.HELD)
    await stage.run_for(hours=1)

    assert "can no longer write" in held.status.message
    assert [process.node for process in stage.processes()] == ["node-1"]


async def a_dead_machine(stage: Stage) -> None:
    """The kubelet of node-1 dies, and then its GPU: nobody will ever say that its pod ended."""
    await stage.run_for(minutes=2)
    stage.kill_kubelet("node-1")
    stage.fault("node-1")


async def test_a_pod_that_does_not_end_holds_the_gang_and_is_told() -> None:
    stage = Stage()
    await a_dead_machine(stage)
    held = await stage.run_until(Phase.HELD)
    await stage.run_for(hours=1)

    assert "can no longer write" in held.status.message
    assert [process.node for process in stage.processes()] == ["node-1"]


async def test_a_pod_that_ends_late_is_all_that_the_gang_waits_for() -> None:
    stage = Stage()
    await a_dead_machine(stage)
    await stage.run_until(Phase.HELD)
    stage.revive_kubelet("node-1")

    await stage.run_until(Phase.RECOVERED)


async def test_a_reboot_of_the_node_is_proof_and_the_gang_goes_on() -> None:
    stage = Stage()
    await a_lost_node(stage)
    await stage.run_until(Phase.HELD)
    stage.reboot("node-1")
    recovery = await stage.run_until(Phase.RECOVERED)

    assert "node-1 has booted since" in [pod.proof for pod in recovery.status.pods]


async def test_a_kubelet_that_comes_back_and_reports_the_end_is_proof() -> None:
    stage = Stage()
    await a_lost_node(stage)
    await stage.run_until(Phase.HELD)
    stage.revive_kubelet("node-1")

    await stage.run_until(Phase.RECOVERED)


async def test_an_owner_who_allows_it_goes_on_after_the_time_out() -> None:
    stage = Stage(recovery=RecoveryPolicy(fence_timeout=timedelta(minutes=5)))
    stage.watchdog.may_overlap = True
    await a_lost_node(stage)
    recovery = await stage.run_until(Phase.CONFIRMING)

    assert any(pod.proof.startswith("none: fence_timeout") for pod in recovery.status.pods)
    assert stage.root.attempt == 1
