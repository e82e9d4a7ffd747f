"""What users wrote with fields of a later Kubernetes, which healthd does not know: it stays as it is."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.core.api import (
    Job,
    JobManifest,
    JobSet,
    Pod,
    PodGang,
    PodManifest,
    StatefulSet,
    StatefulSetManifest,
    to_wire,
)
from healthd.core.recovery.gang import Root
from healthd.gangs.job import JobAdapter
from healthd.gangs.jobset import JobSetAdapter
from healthd.gangs.podgang import PodGangAdapter
from healthd.gangs.statefulset import StatefulSetAdapter
from tests.builders import a_job, a_pod
from tests.gangs.builders import a_hint, a_jobset, a_part, a_statefulset, an_empty_cluster

FUTURE = {"key": "nvidia.com/gpu", "operator": "Exists", "strength": {"least": 3}}
"""No version has such a field yet."""
OURS = "healthd.dev/reserved-for"


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


def with_future(obj: Any) -> dict[str, Any]:
    """The spec of *obj*, whose pods have that toleration."""
    spec: dict[str, Any] = to_wire(obj)["spec"]
    spec["template"]["spec"]["tolerations"] = [FUTURE]
    return spec


def of_template(spec: dict[str, Any]) -> list[Any]:
    """The tolerations in the pod template of *spec*, without the one of healthd."""
    found = spec["template"]["spec"]["tolerations"]
    assert [each["key"] for each in found] == [FUTURE["key"], OURS]
    return [each for each in found if each["key"] != OURS]


def root_of(root: Root | None) -> Root:
    """The root that was read."""
    assert root is not None
    return root


async def test_a_job_keeps_them(cluster: EmbeddedCluster) -> None:
    job = a_job(suspend=True)
    await cluster.create(JobManifest(metadata=job.metadata, spec=with_future(job)))
    for _ in range(2):
        root = root_of(JobAdapter().read_any(await cluster.get(Job, "train", "default")))
        await JobAdapter().start(cluster, root, a_hint())

    assert of_template((await cluster.get(JobManifest, "train", "default")).spec) == [FUTURE]


async def test_a_statefulset_and_its_launcher_keep_them(cluster: EmbeddedCluster) -> None:
    adapter, notes = StatefulSetAdapter(), {"healthd.dev/launcher": "mpirun"}
    launcher, workers = a_job("mpirun", suspend=True, ranks=1), a_statefulset(annotations=notes, replicas=1)
    held = {**launcher.metadata.annotations, "healthd.dev/stopped-by": "train-1"}
    meta = msgspec.structs.replace(launcher.metadata, annotations=held)
    await cluster.create(JobManifest(metadata=meta, spec=with_future(launcher)))
    await cluster.create(StatefulSetManifest(metadata=workers.metadata, spec=with_future(workers)))
    root = root_of(
        await adapter.find(cluster, adapter.read_any(await cluster.get(StatefulSet, "train", "default")).ref)
    )
    await adapter.start(cluster, root, a_hint())
    ready = {"status": {"observedGeneration": 99, "replicas": 1, "readyReplicas": 1}}
    await cluster.patch(StatefulSet, "train", ready, namespace="default", subresource="status")
    suspended = {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}}
    await cluster.patch(Job, "mpirun", suspended, namespace="default", subresource="status")
    await adapter.maintain(cluster, root_of(await adapter.find(cluster, root.ref)), [])

    assert of_template((await cluster.get(StatefulSetManifest, "train", "default")).spec) == [FUTURE]
    assert of_template((await cluster.get(JobManifest, "mpirun", "default")).spec) == [FUTURE]


async def test_a_jobset_keeps_them(cluster: EmbeddedCluster) -> None:
    await cluster.create(a_jobset(suspend=True, parts=[a_part(tolerations=[FUTURE])]))
    root = JobSetAdapter().read_any(await cluster.get(JobSet, "train", "default"))

    await JobSetAdapter().start(cluster, root, a_hint())

    (job,) = (await cluster.get(JobSet, "train", "default")).spec.replicated_jobs
    assert of_template(job["template"]["spec"]) == [FUTURE]


async def test_plain_pods_keep_them(cluster: EmbeddedCluster) -> None:
    pod = a_pod("rank-0", gang="train", annotations={"healthd.dev/restart": "enabled"})
    manifest = {**to_wire(pod)["spec"], "tolerations": [FUTURE]}
    made = await cluster.create(PodManifest(metadata=pod.metadata, spec=manifest))
    seen = await cluster.get(Pod, "rank-0", "default")
    adapter = PodGangAdapter()
    await adapter.discover(cluster, "default", "train", [seen])
    await adapter.stop(cluster, adapter.read_any(await cluster.get(PodGang, "train", "default")), "train-1")
    await adapter.start(cluster, adapter.read_any(await cluster.get(PodGang, "train", "default")), a_hint())

    again = await cluster.get(PodManifest, "rank-0", "default")
    assert again.metadata.uid != made.metadata.uid
    assert [each for each in again.spec["tolerations"] if each["key"] != OURS] == [FUTURE]


async def test_opening_healthds_gate_leaves_those_of_others_as_they_are(cluster: EmbeddedCluster) -> None:
    gate = {"name": "example.com/quota", "until": "paid"}
    pod = a_pod("rank-0", gang="train", annotations={"healthd.dev/restart": "enabled"})
    gated = {**to_wire(pod)["spec"], "schedulingGates": [gate, {"name": "healthd.dev/gang"}]}
    await cluster.create(PodManifest(metadata=pod.metadata, spec=gated))
    seen, adapter = [await cluster.get(Pod, "rank-0", "default")], PodGangAdapter()
    await adapter.discover(cluster, "default", "train", seen)

    await adapter.maintain(cluster, adapter.read_any(await cluster.get(PodGang, "train", "default")), seen)

    assert (await cluster.get(PodManifest, "rank-0", "default")).spec["schedulingGates"] == [gate]
