"""Pods that real controllers make for a gang know where to resume, and run where they should."""

from __future__ import annotations

import copy

import msgspec
import pytest

from healthd.core.api import LABEL_RESTARTED, TAINT_RESERVED, Job, PodHint
from healthd.core.recovery.gang import Root
from healthd.gangs.job import JobAdapter, read_job
from tests.deploy.accounts import as_holder_of, token_of_controller
from tests.deploy.gang_pods import HINT, HINTED, NAME, create, env_of, gets_hint, mutate, required
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

TEMPLATE: Json = {
    "metadata": {"labels": {"app": NAME}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "rank", "image": "localhost/none"}]},
}
A_JOB: Json = {"suspend": True, "template": TEMPLATE}
KINDS: dict[str, tuple[str, str, Json, Json]] = {
    "Job": ("batch/v1", "jobs", A_JOB, {"suspend": False}),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        "jobsets",
        {"suspend": True, "replicatedJobs": [{"name": "ranks", "template": {"spec": {"template": TEMPLATE}}}]},
        {"suspend": False},
    ),
    "StatefulSet": (
        "apps/v1",
        "statefulsets",
        {
            "replicas": 0,
            "serviceName": NAME,
            "selector": {"matchLabels": {"app": NAME}},
            "template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Always"}},
        },
        {"replicas": 1},
    ),
}
"""Of each kind: where it is found, a stopped gang of one pod, and how it is started."""


def marked(spec: Json, uid: str) -> Json:
    """The part of a stopped root's *spec*, as it is stored, that changes when healthd marks the templates in it."""
    labels = {"app": NAME, LABEL_RESTARTED: uid}
    if "template" in spec:
        return {"template": {"metadata": {"labels": labels}}}
    jobs = copy.deepcopy(spec["replicatedJobs"])  # a merge patch replaces the whole list
    for job in jobs:
        job["template"]["spec"]["template"]["metadata"]["labels"] = labels
    return {"replicatedJobs": jobs}


@pytest.mark.parametrize("kind", KINDS)
def test_a_pod_of_every_kind_with_a_marked_template_gets_the_hint(
    installed: ControlPlane, namespace: str, somewhere: str, jobset_controller: None, kind: str
) -> None:
    version, plural, stopped, start = KINDS[kind]
    path = f"/apis/{version}/namespaces/{namespace}/{plural}"
    root = installed.api.create(
        path, {"apiVersion": version, "kind": kind, "metadata": {"name": NAME}, "spec": stopped}
    )
    uid = root["metadata"]["uid"]
    mutate(installed, namespace, HINT, kind=kind, uid=uid)
    marks = {LABEL_RESTARTED: uid}
    wait_until("a hint at work", lambda: gets_hint(create(installed, namespace, labels=marks)), limit=30)
    installed.api.patch(f"{path}/{NAME}", {"spec": marked(root["spec"], uid)})

    installed.api.patch(f"{path}/{NAME}", {"spec": start})
    (pod,) = running(installed, namespace, 1)

    assert env_of(pod["spec"]["containers"][0]).items() >= HINTED.items()
    assert pod["metadata"]["annotations"]["healthd.dev/attempt"] == str(HINT.attempt)
    assert required(pod["spec"])


@pytest.fixture(scope="module")
def somewhere(simulated_nodes: SimulatedNodes) -> str:
    """Somewhere to run."""
    return simulated_nodes.add(1, gpus=0)[0]


def test_a_real_job_that_is_resumed_runs_with_its_hint_on_the_spare(
    installed: ControlPlane, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    first, second, spare = simulated_nodes.add(3)
    reserve(installed, spare, "llama-0af1")
    job = installed.api.create(f"/apis/batch/v1/namespaces/{namespace}/jobs", AN_INDEXED_JOB)
    before = running(installed, namespace, 2)
    suspend(installed, namespace, True)
    running(installed, namespace, 0)
    hint = PodHint(attempt=1, resume_from="/ckpt/1", reserved_for="llama-0af1", avoid=[first], prefer=[second, spare])
    mutate(installed, namespace, hint, kind="Job", uid=job["metadata"]["uid"])
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{NAME}"
    wait_until("the Job stopped", lambda: stored_job(installed, path).stopped, limit=30)
    installed.api.patch(path, {"spec": marked(AN_INDEXED_JOB["spec"], job["metadata"]["uid"])})

    suspend(installed, namespace, False)
    after = running(installed, namespace, 2)

    assert {pod["spec"]["nodeName"] for pod in before} == {first, second}
    assert {pod["spec"]["nodeName"] for pod in after} == {second, spare}
    assert [env_of(pod["spec"]["containers"][0]) | HINTED for pod in after] == [
        {**HINTED, "JOB_COMPLETION_INDEX": ""},
        {**HINTED, "JOB_COMPLETION_INDEX": ""},
    ]
    assert {pod["metadata"]["annotations"]["healthd.dev/attempt"] for pod in after} == {"1"}


async def test_a_job_that_its_user_suspended_long_after_its_recovery_gets_no_old_checkpoint(
    installed: ControlPlane, namespace: str, simulated_nodes: SimulatedNodes
) -> None:
    simulated_nodes.add(2)
    token = token_of_controller(installed)
    notes = {"healthd.dev/attempt": "1", "healthd.dev/resume-from": "/ckpt/1", "healthd.dev/resume-step": "1"}
    spec = AN_INDEXED_JOB["spec"]
    reported = {**spec, "template": {**spec["template"], "metadata": {"annotations": notes}}}
    enabled = {"name": NAME, "annotations": {"healthd.dev/restart": "enabled"}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    installed.api.create(path, {**AN_INDEXED_JOB, "metadata": enabled, "spec": reported})
    running(installed, namespace, 2)
    suspend(installed, namespace, True)
    running(installed, namespace, 0)
    wait_until("the Job stopped", lambda: stored_job(installed, f"{path}/{NAME}").stopped, limit=30)

    async with as_holder_of(installed, token) as cluster:
        await JobAdapter().maintain(cluster, read_job(await cluster.get(Job, NAME, namespace)), [])
    suspend(installed, namespace, False)
    after = running(installed, namespace, 2)

    assert [pod["metadata"]["annotations"]["healthd.dev/attempt"] for pod in after] == ["1", "1"]
    assert ["healthd.dev/resume-from" in pod["metadata"]["annotations"] for pod in after] == [False, False]


def stored_job(installed: ControlPlane, path: str) -> Root:
    return read_job(msgspec.convert(installed.api.get(path), Job))


AN_INDEXED_JOB: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": NAME},
    "spec": {
        "completions": 2,
        "parallelism": 2,
        "completionMode": "Indexed",
        "template": {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "rank", "image": "localhost/none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
                ],
            },
        },
    },
}


def reserve(installed: ControlPlane, node: str, value: str) -> None:
    taint = {"key": TAINT_RESERVED, "value": value, "effect": "NoSchedule"}
    installed.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})


def suspend(installed: ControlPlane, namespace: str, suspended: bool) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{NAME}"
    installed.api.patch(path, {"spec": {"suspend": suspended}})


def running(installed: ControlPlane, namespace: str, count: int) -> list[Json]:
    """The running pods, once there are *count* of them and no others that may still run."""
    seen: list[Json] = []

    def settled() -> bool:
        pods = installed.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        seen[:] = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        phases = [pod["status"].get("phase") for pod in seen]
        return phases == ["Running"] * count

    wait_until(f"{count} running pods", settled, limit=60)
    return seen
