"""Agent and controller with the accounts, rights and policies that are shipped: they are enough for a recovery."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import pytest

from healthd.agent.agent import Agent
from healthd.agent.dependencies import AgentDependencies
from healthd.agent.judge import NodeFacts
from healthd.clock import SystemClock
from healthd.cluster.port import Cluster
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.core.api import ANNOTATION_ATTEMPT, LABEL_SPARE, Node, Recovery
from healthd.core.api.model import KernelRecord, Phase
from healthd.core.config import Config, QuarantinePolicy
from healthd.core.diagnosis.readings import RecordBatch
from healthd.gangs import ADAPTERS
from healthd.telemetry.metrics import Metrics
from tests.deploy.accounts import SYSTEM, as_holder_of, token_of_agent, token_of_controller
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

OFF_THE_BUS = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
PATIENCE = 60


def a_job(namespace: str) -> Json:
    rank = {"name": "rank", "image": "localhost/none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "llama", "namespace": namespace, "annotations": {"healthd.dev/restart": "enabled"}},
        "spec": {
            "completions": 2,
            "parallelism": 2,
            "completionMode": "Indexed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [rank]}},
        },
    }


async def test_a_job_is_moved_off_a_broken_node_with_the_rights_that_are_shipped(
    installed: ControlPlane, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    pods = await recover_a_job(installed, namespace, simulated_nodes)

    assert {pod["metadata"]["annotations"][ANNOTATION_ATTEMPT] for pod in pods} == {"1"}


async def recover_a_job(installed: ControlPlane, namespace: str, simulated_nodes: SimulatedNodes) -> list[Json]:
    """A node under a Job of two breaks: the pods of its next attempt, which run on the other node and on the spare."""
    good, bad, spare = simulated_nodes.add(3)
    hold_free(installed, spare)
    installed.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", a_job(namespace))
    await asyncio.to_thread(
        wait_until, "the gang runs", lambda: len(running(installed, namespace)) == 2, limit=PATIENCE
    )
    async with (
        as_holder_of(installed, token_of_agent(installed, bad)) as of_agent,
        as_holder_of(installed, token_of_controller(installed)) as of_controller,
        asyncio.timeout(PATIENCE),
    ):
        controller = a_controller(of_controller)
        runs = asyncio.create_task(controller.run())
        await break_gpu(of_agent, bad)
        recovery = await reached(of_controller, namespace, Phase.CONFIRMING)
        pods = running(installed, namespace)
        claimed = await of_controller.get(Node, spare)
        await asyncio.to_thread(
            wait_until,
            "the story as events",
            lambda: reported(installed, namespace) >= {"Recovery", "Job"},
            limit=PATIENCE,
        )
        controller.stop()
        await runs
    assert {pod["spec"]["nodeName"] for pod in pods} == {good, spare}
    assert recovery.status.hint is not None
    assert recovery.status.hint.reserved_for in [taint.value for taint in claimed.spec.taints]
    return pods


def reported(installed: ControlPlane, namespace: str) -> set[str]:
    """The kinds of objects that healthd made events about."""
    events = installed.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    return {one["involvedObject"]["kind"] for one in events if "healthd" in one["source"].get("component", "")}


def hold_free(installed: ControlPlane, node: str) -> None:
    taint = {"key": LABEL_SPARE, "effect": "NoSchedule"}
    body = {"metadata": {"labels": {LABEL_SPARE: "true"}}, "spec": {"taints": [taint]}}
    installed.api.patch(f"/api/v1/nodes/{node}", body)


def running(installed: ControlPlane, namespace: str) -> list[Json]:
    pods: list[Json] = installed.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


def a_controller(cluster: Cluster) -> ControllerDaemon:
    return ControllerDaemon(
        Config(),
        ControllerDependencies(
            identity="a test",
            namespace=SYSTEM,
            cluster=cluster,
            clock=SystemClock(),
            adapters=ADAPTERS,
            checkpoints=FileCheckpoints(),
            jitter=random.random,
        ),
    )


async def break_gpu(cluster: Cluster, node: str) -> None:
    """The agent of *node* reads in its kernel log that a GPU is lost."""
    clock = SystemClock()
    agent = Agent(
        AgentDependencies(
            node=NodeFacts(name=node, boot_id="boot-1"),
            cluster=cluster,
            clock=clock,
            metrics=Metrics(),
            quarantine=QuarantinePolicy(),
        )
    )
    await agent.load(clock.now())
    record = KernelRecord(sequence=1, at=clock.now(), text=OFF_THE_BUS, boot_id="boot-1")
    agent.state.ingest_records(RecordBatch(records=[record], last_sequence=1), clock.now())
    await agent.cycle(clock.now())


async def reached(cluster: Cluster, namespace: str, phase: Phase) -> Recovery:
    """The recovery, once it is in *phase*."""
    listed = await cluster.list(Recovery, namespace=namespace)
    found = [one for one in listed.items if one.status.phase is phase]
    async with aclosing(cluster.watch(Recovery, since=listed.resource_version, namespace=namespace)) as events:  # type: ignore[type-var]
        while not found:
            event = await anext(events)
            found = [event.obj] if event.obj is not None and event.obj.status.phase is phase else []
    return found[0]
