"""A pod whose end is proven, on a node whose kubelet is dead: its object goes, its Job does not fail, and goes on."""

from __future__ import annotations

import pytest

from healthd.cluster.port import Cluster
from healthd.controller.act import perform
from healthd.controller.rebuilds import Rebuilds
from healthd.core.api import Job, Pod
from healthd.core.recovery.actions import RemovePods
from healthd.core.recovery.gang import GangView
from healthd.gangs import ADAPTERS
from tests.builders import a_recovery
from tests.deploy.accounts import as_holder_of, token_of_controller
from tests.lab.api import Json
from tests.lab.control_plane import ControlPlane
from tests.lab.programs import wait_until
from tests.lab.simulated import SimulatedNodes

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NAME = "llama"
DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
REPLACEMENTS: dict[str, Json] = {
    "any pod that is deleted": {},
    "only pods that failed": {"podReplacementPolicy": "Failed"},
    "only pods that failed, and counts no disruption": {"podFailurePolicy": DISRUPTIONS},
}
"""What a Job makes new pods for."""


@pytest.fixture(scope="module")
def nodes(simulated_nodes: SimulatedNodes) -> list[str]:
    """Somewhere to run, for the controller's pods too."""
    return simulated_nodes.add(4)


@pytest.mark.parametrize(
    ("which", "begun_before_the_stop"),
    [
        ("any pod that is deleted", False),
        ("only pods that failed", False),
        ("only pods that failed", True),
        ("only pods that failed, and counts no disruption", True),
    ],
)
async def test_a_stopped_job_lets_go_of_the_pod_of_a_dead_node_and_runs_again(
    installed: ControlPlane,
    namespace: str,
    simulated_nodes: SimulatedNodes,
    nodes: list[str],
    which: str,
    begun_before_the_stop: bool,
) -> None:
    token = token_of_controller(installed)
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    installed.api.create(path, a_job(**REPLACEMENTS[which]))
    lost, *_ = running(installed, namespace, 2)
    bad = lost["spec"]["nodeName"]
    simulated_nodes.kill_kubelet(bad)
    if begun_before_the_stop:
        installed.api.delete(f"/api/v1/namespaces/{namespace}/pods/{name_of(lost)}")
    suspend(installed, namespace, True)
    wait_until("the dead node's pod alone is left", lambda: names(installed, namespace) == [name_of(lost)], limit=60)

    async with as_holder_of(installed, token) as cluster:
        await remove(cluster, namespace, name_of(lost))
    wait_until("no pod is left", lambda: names(installed, namespace) == [], limit=60)
    installed.api.patch(f"/api/v1/nodes/{bad}", {"spec": {"unschedulable": True}})
    suspend(installed, namespace, False)
    after = running(installed, namespace, 2)

    assert bad not in [pod["spec"]["nodeName"] for pod in after]
    wait_until("the job to say that it runs", lambda: true_conditions(status_of(installed, path)) == [], limit=60)
    assert status_of(installed, path).get("failed", 0) == 0
    simulated_nodes.start_kubelet(bad)
    installed.api.patch(f"/api/v1/nodes/{bad}", {"spec": {"unschedulable": None}})


def status_of(installed: ControlPlane, jobs: str) -> Json:
    status: Json = installed.api.get(f"{jobs}/{NAME}")["status"]
    return status


def true_conditions(status: Json) -> list[str]:
    return [one["type"] for one in status["conditions"] if one["status"] == "True"]


async def remove(cluster: Cluster, namespace: str, name: str) -> None:
    """As a recovery does it whose fence is open."""
    adapter = ADAPTERS["Job"]
    job = await cluster.get(Job, NAME, namespace)
    pod = await cluster.get(Pod, name, namespace)
    recovery = await cluster.create(a_recovery(gang=job, namespace=namespace))
    view = GangView(root=adapter.read(job), pods=(pod,))
    rebuilds = Rebuilds(cluster, ADAPTERS, "")
    await perform(cluster, RemovePods((name,)), recovery=recovery, view=view, adapter=adapter, rebuilds=rebuilds)


def a_job(**more: object) -> Json:
    """One failure that is counted is its end."""
    container = {"name": "rank", "image": "localhost/none", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    spec = {
        "completions": 2,
        "parallelism": 2,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        **more,
    }
    meta = {"name": NAME, "annotations": {"healthd.dev/restart": "enabled"}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def suspend(installed: ControlPlane, namespace: str, suspended: bool) -> None:
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{NAME}"
    installed.api.patch(path, {"spec": {"suspend": suspended}})


def name_of(pod: Json) -> str:
    return str(pod["metadata"]["name"])


def names(installed: ControlPlane, namespace: str) -> list[str]:
    return [name_of(pod) for pod in installed.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]]


def running(installed: ControlPlane, namespace: str, count: int) -> list[Json]:
    """The pods, once *count* of them run and there are no others."""
    seen: list[Json] = []

    def all_run() -> bool:
        seen[:] = installed.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return [pod["status"].get("phase") for pod in seen] == ["Running"] * count

    wait_until(f"{count} running pods", all_run, limit=60)
    return seen
