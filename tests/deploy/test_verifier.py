"""A gang on a claim, with the rights and policies that are shipped: one verifier pod, whichever controller leads."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from healthd.cli.commands.cluster.doctor import parse_target, read_chart
from healthd.cli.target.gang import gang_named
from healthd.clock import SystemClock
from healthd.cluster.port import Cluster
from healthd.controller.checkpoints.mounted import FileCheckpoints
from healthd.controller.checkpoints.verifier_pods import VerifierPods, image_of
from healthd.controller.daemon import ControllerDaemon, ControllerDependencies
from healthd.core.api import ChosenCheckpoint, RejectedCheckpoint
from healthd.core.api.model import Phase
from healthd.core.checkpoint.restart_cost import at_stake
from healthd.core.checkpoint.verification import LABEL_VERIFIER, VerificationReport, fitted
from healthd.core.config import Config, PrecheckPolicy
from healthd.core.report.doctor import examine
from healthd.gangs import ADAPTERS
from tests.checkpoints.builders import safetensors_bytes
from tests.deploy.accounts import SYSTEM, as_holder_of, token_of_agent, token_of_controller
from tests.deploy.test_installed import a_job, break_gpu, hold_free, reached, running
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

PATIENCE = 60
FOUND = VerificationReport(
    found=ChosenCheckpoint(path="/volume/llama/step_7", step=7, format="safetensors"),
    rejected=[RejectedCheckpoint(path="/volume/llama/step_8", step=8, reason="torn")],
)


def make_claim(installed: ControlPlane, namespace: str) -> None:
    """The claim `runs`, and a volume for it."""
    access = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {**access, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/nowhere"}}
    claim = {**access, "volumeName": namespace, "resources": {"requests": {"storage": "1Gi"}}}
    installed.api.create(
        "/api/v1/persistentvolumes",
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": namespace}, "spec": volume},
    )
    installed.api.create(
        f"/api/v1/namespaces/{namespace}/persistentvolumeclaims",
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "runs"}, "spec": claim},
    )


def a_job_on_a_claim(namespace: str) -> Json:
    job = a_job(namespace)
    job["metadata"]["annotations"]["healthd.dev/checkpoint"] = "pvc://runs/llama"
    spec = job["spec"]["template"]["spec"]
    spec["containers"][0]["volumeMounts"] = [{"name": "runs", "mountPath": "/mnt/runs"}]
    spec["volumes"] = [{"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}]
    return job


def a_controller(cluster: Cluster, name: str, at: Path, pod: str) -> ControllerDaemon:
    """A replica that takes itself for *pod*, and mounts no claim."""
    clock, config = SystemClock(), Config()

    async def own_image() -> str:
        return await image_of(cluster, SYSTEM, pod)

    checkpoints = VerifierPods(FileCheckpoints(at), cluster, clock, config.checkpoints, own_image)
    return ControllerDaemon(
        config,
        ControllerDependencies(
            identity=name,
            namespace=SYSTEM,
            cluster=cluster,
            clock=clock,
            adapters=ADAPTERS,
            checkpoints=checkpoints,
            jitter=random.random,
        ),
    )


def verifiers(installed: ControlPlane, namespace: str) -> list[Json]:
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={LABEL_VERIFIER}"
    found: list[Json] = installed.api.get(path)["items"]
    return found


async def until(what: str, holds: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, what, holds, limit=PATIENCE)


async def test_a_leader_that_dies_leaves_its_verifier_to_the_next(
    installed: ControlPlane, namespace: str, simulated_nodes: SimulatedNodes, tmp_path: Path
) -> None:
    _, bad, spare = simulated_nodes.add(3)
    hold_free(installed, spare)
    make_claim(installed, namespace)
    installed.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", a_job_on_a_claim(namespace))
    await until("the gang runs", lambda: len(running(installed, namespace)) == 2)
    own = installed.api.get(f"/api/v1/namespaces/{SYSTEM}/pods?labelSelector=app.kubernetes.io/component=controller")
    pod = own["items"][0]["metadata"]["name"]
    async with (
        as_holder_of(installed, token_of_agent(installed, bad)) as of_agent,
        as_holder_of(installed, token_of_controller(installed)) as of_controller,
        asyncio.timeout(2 * PATIENCE),
    ):
        first = asyncio.create_task(a_controller(of_controller, "first", tmp_path, pod).run())
        await break_gpu(of_agent, bad)
        await until("a verifier pod", lambda: verifiers(installed, namespace))
        (made,) = verifiers(installed, namespace)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first
        second = a_controller(of_controller, "second", tmp_path, pod)
        runs = asyncio.create_task(second.run())
        announce(installed, made, FOUND)
        recovery = await reached(of_controller, namespace, Phase.CONFIRMING)
        second.stop()
        await runs

    assert recovery.status.checkpoint is not None
    assert recovery.status.checkpoint.path == "/mnt/runs/llama/step_7"
    assert [refused.path for refused in recovery.status.rejected] == ["/mnt/runs/llama/step_8"]
    assert verifiers(installed, namespace) == []
    assert announced_once(installed, namespace, made["metadata"]["name"])


async def test_a_running_gang_has_an_event_about_what_is_wrong_with_its_saving(
    installed: ControlPlane, namespace: str, simulated_nodes: SimulatedNodes, tmp_path: Path
) -> None:
    simulated_nodes.add(2)
    (tmp_path / "step_7.safetensors").write_bytes(safetensors_bytes({"weights": 64}))
    (tmp_path / "step_8.safetensors").write_bytes(b"torn")
    job = a_job(namespace)
    job["metadata"]["annotations"]["healthd.dev/checkpoint"] = f"file://{tmp_path}"
    installed.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
    await until("the gang runs", lambda: len(running(installed, namespace)) == 2)
    async with as_holder_of(installed, token_of_controller(installed)) as cluster, asyncio.timeout(PATIENCE):
        files = FileCheckpoints(tmp_path)
        config = Config(precheck=PrecheckPolicy(every=timedelta(seconds=5)))
        daemon = ControllerDaemon(
            config,
            ControllerDependencies(
                identity="third",
                namespace=SYSTEM,
                cluster=cluster,
                clock=SystemClock(),
                adapters=ADAPTERS,
                checkpoints=files,
                jitter=random.random,
                looker=files,
            ),
        )
        runs = asyncio.create_task(daemon.run())
        events = f"/api/v1/namespaces/{namespace}/events?fieldSelector=reason=CheckpointRefused"
        await until("it is reported", lambda: installed.api.get(events)["items"])
        chart = await read_chart(cluster, parse_target("job/llama", namespace))
        gang = await gang_named(cluster, "job/llama", namespace)
        daemon.stop()
        await runs

    remarks = examine(dataclasses.replace(chart, now=SystemClock().now()))
    said = [remark.what for remark in remarks]
    assert "its newest checkpoint would be refused" in said
    assert any("a fault now would cost" in what for what in said)
    assert gang is not None
    stake = at_stake(gang, SystemClock().now())
    assert stake is not None
    assert (stake.newest_step, stake.refused) == (7, f"{tmp_path}/step_8.safetensors")


def announce(installed: ControlPlane, pod: Json, report: VerificationReport) -> None:
    """What a kubelet would: the container ended, and these were its last words."""
    meta = pod["metadata"]
    ended = {"exitCode": 0, "message": fitted(report).decode(), "reason": "Completed"}
    status = {"name": "verifier", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    body = {"phase": "Succeeded", "containerStatuses": [{**status, "state": {"terminated": ended}}]}
    installed.api.patch(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status", {"status": body})


def announced_once(installed: ControlPlane, namespace: str, pod: str) -> bool:
    """The scheduler placed one pod of that name, and no second one."""
    events = installed.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    return [event["reason"] for event in events if event["involvedObject"]["name"] == pod].count("Scheduled") == 1
