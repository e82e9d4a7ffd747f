"""Gangs in a queue of Kueue: what their Workload says, and that it alone is written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict, Forbidden
from healthd.core.api import Job, OwnerReference, Pod, Workload
from healthd.core.recovery.gang import Root
from healthd.gangs.held import HeldAdapter
from healthd.gangs.kinds import ALL
from tests.builders import a_job, a_pod
from tests.gangs.builders import A_STEP, ENABLED, a_hint, a_jobset, a_part, an_empty_cluster
from tests.gangs.described import an_object
from tests.gangs.kueue import EVICTED, GIVEN_BACK, QUEUE, STOPPED, WAITS, a_workload, queued


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


async def root_of(cluster: EmbeddedCluster, job: Job) -> Root:
    """As healthd reads it now."""
    adapter = ALL["Job"]
    read = adapter.read(await cluster.get(Job, job.metadata.name, job.metadata.namespace))
    assert read
    return await adapter.complete(cluster, read)


async def test_an_admitted_gang_is_guarded_and_known_by_the_label_of_its_pods(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job)

    root = await root_of(cluster, job)

    assert (root.invalid, root.suspended, root.unadmitted, root.queue) == ((), False, "", "lq")
    assert root.hint_labels == {"healthd.dev/gang": job.metadata.name}


async def test_it_is_stopped_and_started_by_its_workload_alone(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job)
    adapter = ALL["Job"]

    await adapter.stop(cluster, await root_of(cluster, job), "train-3")
    stopped = await root_of(cluster, job)
    untouched = await cluster.get(Job, job.metadata.name, job.metadata.namespace)
    lost = {"status": {"conditions": [{"type": "QuotaReserved", "status": "False"}]}}
    await cluster.patch(Workload, "job-train", lost, namespace=job.metadata.namespace, subresource="status")
    await adapter.start(cluster, await root_of(cluster, job), a_hint(checkpoint=A_STEP))
    started = await root_of(cluster, job)

    assert (stopped.suspended, stopped.stopped_by, stopped.edited_since_stop) == (True, "train-3", False)
    assert untouched == job
    workload = await cluster.get(Workload, "job-train", job.metadata.namespace)
    assert (workload.spec.active, workload.metadata.annotations) == (True, {})
    now = await cluster.get(Job, job.metadata.name, job.metadata.namespace)
    assert (started.attempt, now.spec) == (3, job.spec)


@pytest.mark.parametrize(("conditions", "holds"), [(STOPPED, True), (GIVEN_BACK, False)])
async def test_a_stopped_gang_says_whether_it_has_given_its_quota_back(
    cluster: EmbeddedCluster, conditions: dict[str, Any], holds: bool
) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job, conditions, active=False, marked="train-3")

    assert (await root_of(cluster, job)).holds_quota is holds


async def test_a_start_that_was_cut_off_between_its_writes_is_made_whole(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job, GIVEN_BACK, active=False, marked="train-3")
    await cluster.patch(
        Job, job.metadata.name, {"metadata": {"annotations": {"healthd.dev/attempt": "3"}}}, namespace="default"
    )

    await ALL["Job"].start(cluster, await root_of(cluster, job), a_hint())

    root = await root_of(cluster, job)
    assert (root.attempt, root.stopped_by, root.unadmitted) == (3, "", "it waits in Kueue's queue 'lq'" + WAITED)


WAITED = ": Preempted to accommodate a workload"


async def test_a_write_between_look_and_stop_is_a_conflict(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job)
    seen = await root_of(cluster, job)
    off = {"metadata": {"annotations": {"healthd.dev/restart": "disabled"}}}
    await cluster.patch(Job, job.metadata.name, off, namespace="default")

    with pytest.raises(Conflict):
        await ALL["Job"].stop(cluster, seen, "train-3")


async def test_what_kueue_has_evicted_is_its_own_affair(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job, EVICTED)

    root = await root_of(cluster, job)

    assert root.unadmitted == "Kueue has evicted it (Preempted): a workload of higher priority"
    assert (root.suspended, root.stopped_by, root.evicted, root.invalid) == (True, "", True, ())


async def test_one_that_waits_for_quota_says_for_what(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job, WAITS)

    root = await root_of(cluster, job)

    assert (root.unadmitted, root.evicted) == ("it waits in Kueue's queue 'lq': insufficient unused quota", False)


async def test_one_that_its_user_has_deactivated_stays_so(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job, GIVEN_BACK, active=False)

    root = await root_of(cluster, job)

    assert (root.suspended, root.stopped_by, root.unadmitted) == (True, "", "")


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        ({"pods": {}}, "do not all carry the label healthd.dev/gang: llama"),
        ({"pods": {"healthd.dev/gang": "other"}}, "do not all carry the label healthd.dev/gang: llama"),
        ({"status": {"clusterName": "far"}}, "MultiKueue"),
        ({"labels": {"kueue.x-k8s.io/multikueue-origin": "home"}}, "MultiKueue"),
        (
            {"status": {"admission": {"podSetAssignments": [{"topologyAssignment": {"levels": ["hostname"]}}]}}},
            "replaces a node that fails by itself",
        ),
        ({"marked": "x" * 300, "active": False}, "healthd.dev/stopped-by on its Workload"),
    ],
)
async def test_what_cannot_be_restarted_is_left_alone_with_the_reason(
    cluster: EmbeddedCluster, workload: dict[str, Any], why: str
) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job, **workload)

    (said,) = (await root_of(cluster, job)).invalid

    assert why.replace("llama", job.metadata.name) in said


async def test_a_gang_that_runs_without_a_workload_is_left_alone(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)

    (said,) = (await root_of(cluster, job)).invalid

    assert said == "it is in Kueue's queue 'lq', and no Workload is there for it, where one should be"


async def test_a_gang_with_two_workloads_is_left_alone(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    await a_workload(cluster, job)
    await a_workload(cluster, job, name="another")

    (said,) = (await root_of(cluster, job)).invalid

    assert "2 Workloads" in said


async def test_one_that_kueue_has_not_seen_yet_only_waits(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster, spec=msgspec.structs.replace(a_job().spec, suspend=True))

    root = await root_of(cluster, job)

    assert (root.invalid, root.unadmitted) == ((), "Kueue has no Workload for it in queue 'lq'")


async def test_without_rights_to_workloads_nothing_is_done_and_said_why(cluster: EmbeddedCluster) -> None:
    job = await queued(cluster)
    adapter = ALL["Job"]
    read = adapter.read(job)
    assert read

    class Refusing:
        get = cluster.get

        async def list(self, *_: Any, **__: Any) -> Any:
            raise Forbidden("the controller cannot list workloads")

    (said,) = (await adapter.complete(Refusing(), read)).invalid

    assert said == (
        "it is in Kueue's queue 'lq', and healthd cannot read its Workload: Kueue is not there, or the rights of "
        "deploy/components/kueue"
    )


async def test_a_gang_in_no_queue_is_as_its_kind_has_it(cluster: EmbeddedCluster) -> None:
    job = await cluster.create(a_job(annotations=ENABLED))
    adapter = ALL["Job"]
    assert isinstance(adapter, HeldAdapter)

    assert await root_of(cluster, job) == adapter.inner.read(job)


@pytest.mark.parametrize("managed_by", ["kueue.x-k8s.io/multikueue", "example.com/other"])
async def test_a_job_of_another_controller_is_left_alone(cluster: EmbeddedCluster, managed_by: str) -> None:
    job = await queued(cluster, spec=msgspec.structs.replace(a_job().spec, managed_by=managed_by))
    await a_workload(cluster, job)

    (said,) = (await root_of(cluster, job)).invalid

    assert managed_by in said


async def test_the_pod_that_submits_a_rayjob_is_no_member_and_needs_no_label(cluster: EmbeddedCluster) -> None:
    job = await cluster.create(an_object("RayJob", labels=QUEUE))
    await a_workload(cluster, job, unlabelled="submitter")
    read = ALL["RayJob"].read(job)
    assert read

    assert (await ALL["RayJob"].complete(cluster, read)).invalid == ()


@pytest.mark.parametrize(("labels", "said"), [({}, ["the JobSet that it made is in Kueue's queue 'lq'"]), (QUEUE, [])])
async def test_a_trainjob_whose_jobset_alone_is_in_a_queue_is_left_alone(
    cluster: EmbeddedCluster, labels: dict[str, str], said: list[str]
) -> None:
    job = await cluster.create(an_object("TrainJob", labels=labels))
    await a_workload(cluster, job)
    owner = OwnerReference(kind="TrainJob", name="train", uid=job.metadata.uid, controller=True)
    jobset = a_jobset(annotations={}, labels=QUEUE, parts=[a_part("node", pods=4)], owner_references=[owner])
    await cluster.create(jobset)
    read = ALL["TrainJob"].read(job)
    assert read

    invalid = (await ALL["TrainJob"].complete(cluster, read)).invalid

    assert [why.partition(", and ")[0] for why in invalid] == said


async def test_workers_of_an_mpijob_that_failed_are_deleted_before_it_starts_in_its_queue(
    cluster: EmbeddedCluster,
) -> None:
    job = await cluster.create(an_object("MPIJob", labels=QUEUE))
    await a_workload(cluster, job, GIVEN_BACK, active=False, marked="train-3")
    labels = {"training.kubeflow.org/job-name": "train"}
    await cluster.create(a_pod("train-worker-0", owner=job, labels=labels))
    failed = {"status": {"phase": "Failed"}}
    await cluster.patch(Pod, "train-worker-0", failed, namespace="default", subresource="status")
    read = ALL["MPIJob"].read(job)
    assert read

    await ALL["MPIJob"].start(cluster, await ALL["MPIJob"].complete(cluster, read), a_hint())

    assert (await cluster.list(Pod)).items == []
