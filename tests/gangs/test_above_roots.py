"""Who makes roots and pods above healthd: trials of Katib, tasks of Airflow. The shapes are those that they write."""

from __future__ import annotations

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import ObjectMeta, OwnerReference, Pod, PodGang
from healthd.gangs.job import JobAdapter
from healthd.gangs.podgang import PodGangAdapter
from tests.builders import a_job, a_pod
from tests.gangs.builders import an_empty_cluster
from tests.gangs.described import adapter_of, an_object
from tests.gangs.roots import roots_of

ENABLED = {"healthd.dev/restart": "enabled", "healthd.dev/checkpoint": "pvc://runs/random-4tmwkk8q"}
TRIAL = OwnerReference(
    api_version="kubeflow.org/v1beta1",
    kind="Trial",
    name="random-4tmwkk8q",
    uid="5b1a5f0e-trial",
    controller=True,
    block_owner_deletion=True,
)
OF_A_TASK = {
    "airflow_kpo_in_cluster": "True",
    "airflow_version": "2.10.3",
    "dag_id": "train_llama",
    "kubernetes_pod_operator": "True",
    "run_id": "manual__2026-11-20T0100000000-da4d1ce7b",
    "task_id": "rank_0",
    "try_number": "1",
}
"""The labels that a KubernetesPodOperator writes on its pod."""
OF_A_WORKER = {
    "airflow-worker": "17",
    "dag_id": "train_llama",
    "kubernetes_executor": "True",
    "run_id": "manual__2026-11-20T0100000000-da4d1ce7b",
    "task_id": "rank_0",
    "try_number": "1",
}
"""And the KubernetesExecutor on that in which it runs a task."""


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


def of_trial(meta: ObjectMeta, **owner: str) -> ObjectMeta:
    """The same object, made by a trial of Katib."""
    made = msgspec.structs.replace(TRIAL, **owner)
    return msgspec.structs.replace(meta, owner_references=[made])


async def a_task_pod(
    cluster: EmbeddedCluster, labels: dict[str, str], annotations: dict[str, str], name: str = "rank-0-8kq2v1zd"
) -> Pod:
    """A pod that Airflow has made: nothing owns it, and its name ends with a word that the next one has not."""
    pod = a_pod(name, gang="train", annotations=annotations)
    meta = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, **labels})
    return await cluster.create(msgspec.structs.replace(pod, metadata=meta))


async def discovered(cluster: EmbeddedCluster, pod: Pod) -> tuple[str, ...]:
    """Why the gang of *pod* is left alone."""
    adapter = PodGangAdapter()
    await adapter.discover(cluster, "default", "train", [pod])
    (root,) = await roots_of(adapter, cluster)
    return root.invalid


def test_the_job_of_a_trial_is_the_root() -> None:
    job = a_job(annotations=ENABLED)
    root = JobAdapter().read(msgspec.structs.replace(job, metadata=of_trial(job.metadata)))

    assert root is not None
    assert (root.options.restart, root.invalid) == (True, ())


@pytest.mark.parametrize("kind", ["PyTorchJob", "TFJob", "MPIJob", "TrainJob", "RayJob"])
def test_so_is_a_job_of_another_kind_that_a_trial_has_made(kind: str) -> None:
    root = adapter_of(kind).read(an_object(kind, owner=TRIAL))

    assert root is not None
    assert root.options.restart


def test_a_trial_that_asks_for_nothing_is_no_gang() -> None:
    job = a_job(annotations={})

    assert JobAdapter().read(msgspec.structs.replace(job, metadata=of_trial(job.metadata))) is None


@pytest.mark.parametrize("owner", [{"kind": "Experiment"}, {"api_version": "example.com/v1"}, {"kind": "Workflow"}])
def test_what_another_controller_has_made_is_no_root(owner: dict[str, str]) -> None:
    job = a_job(annotations=ENABLED)

    assert JobAdapter().read(msgspec.structs.replace(job, metadata=of_trial(job.metadata, **owner))) is None


@pytest.mark.parametrize("labels", [OF_A_TASK, OF_A_WORKER])
async def test_pods_of_airflow_that_healthd_would_make_again_are_left_alone(
    cluster: EmbeddedCluster, labels: dict[str, str]
) -> None:
    (why,) = await discovered(cluster, await a_task_pod(cluster, labels, ENABLED))

    assert why == (
        "Airflow makes its pods, and makes them again when a task is tried again: "
        "add the annotation healthd.dev/recreate: owner, and retries to the task"
    )


async def test_those_that_airflow_makes_again_are_a_gang(cluster: EmbeddedCluster) -> None:
    pod = await a_task_pod(cluster, OF_A_TASK, {**ENABLED, "healthd.dev/recreate": "owner"})

    assert await discovered(cluster, pod) == ()


async def test_a_pod_of_airflow_without_the_label_of_a_gang_is_none(cluster: EmbeddedCluster) -> None:
    pod = a_pod("rank-0-8kq2v1zd", annotations=ENABLED)
    meta = msgspec.structs.replace(pod.metadata, labels=OF_A_TASK)
    await cluster.create(msgspec.structs.replace(pod, metadata=meta))

    assert PodGangAdapter().root_name(msgspec.structs.replace(pod, metadata=meta)) is None
    assert (await cluster.list(PodGang)).items == []
