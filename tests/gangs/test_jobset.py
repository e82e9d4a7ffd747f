"""JobSets as gangs."""

from __future__ import annotations

from typing import Any

import pytest

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict
from healthd.core.api import Condition, JobSet, JobSetStatus, OwnerReference, ReplicatedJobStatus
from healthd.core.recovery.gang import GangView, Root, RootOutcome
from healthd.core.recovery.members import index_of, members
from healthd.gangs.jobset import JobSetAdapter
from tests.builders import a_pod
from tests.fakes import START
from tests.gangs.builders import A_STEP, a_hint, a_jobset, a_part, an_empty_cluster

ADAPTER = JobSetAdapter()
SUSPENDED = Condition(type="Suspended", status="True")
RESUMED = Condition(type="Suspended", status="False", last_transition_time=START)


def read(jobset: JobSet) -> Root:
    """The root of a JobSet that is one."""
    root = ADAPTER.read(jobset)
    assert root is not None
    return root


def test_a_jobset_without_annotations_of_healthd_is_no_root() -> None:
    assert ADAPTER.read(a_jobset(annotations={})) is None


def test_a_jobset_that_a_trainjob_made_is_no_root() -> None:
    owner = OwnerReference(kind="TrainJob", name="train", uid="uid-0", controller=True)

    assert ADAPTER.read(a_jobset(owner_references=[owner])) is None


def test_the_members_of_all_its_jobs_are_the_gang() -> None:
    parts = [a_part("leader", pods=1), a_part("workers", replicas=2, pods=2)]

    root = read(a_jobset(parts=parts))

    assert root.world == 5
    assert root.seats == ("leader-0-0", "workers-0-0", "workers-0-1", "workers-1-0", "workers-1-1")


def test_a_member_is_identified_by_its_job_and_its_index_there() -> None:
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "workers", "jobset.sigs.k8s.io/job-index": "1"}

    assert index_of(a_pod(index=0, labels=labels)) == "workers-1-0"


def test_the_members_of_a_job_without_indexes_are_not_distinguished() -> None:
    assert read(a_jobset(parts=[a_part(completionMode="NonIndexed")])).seats == ()


def test_its_size_is_fixed_whatever_its_owner_asks_for() -> None:
    notes = {"healthd.dev/restart": "enabled", "healthd.dev/min-nodes": "1"}

    assert read(a_jobset(annotations=notes)).fewest is None


@pytest.mark.parametrize(
    ("suspend", "status", "stopped"),
    [
        pytest.param(True, JobSetStatus(conditions=[SUSPENDED]), True, id="its controller says so"),
        pytest.param(True, JobSetStatus(), False, id="its controller has not noticed yet"),
        pytest.param(False, JobSetStatus(conditions=[SUSPENDED]), False, id="it was resumed"),
        pytest.param(
            True,
            JobSetStatus(
                conditions=[SUSPENDED], replicated_jobs_status=[ReplicatedJobStatus(name="workers", active=1)]
            ),
            False,
            id="one of its jobs is active",
        ),
    ],
)
def test_a_jobset_has_stopped_when_none_of_its_jobs_is_active(
    suspend: bool, status: JobSetStatus, stopped: bool
) -> None:
    assert read(a_jobset(suspend=suspend, status=status)).stopped is stopped


@pytest.mark.parametrize(
    ("condition", "ending"),
    [
        ("Completed", RootOutcome.COMPLETE),
        ("Failed", RootOutcome.FAILED),
        ("StartupPolicyCompleted", RootOutcome.NOT_ENDED),
    ],
)
def test_a_jobset_ends_by_its_conditions(condition: str, ending: RootOutcome) -> None:
    status = JobSetStatus(conditions=[Condition(type=condition, status="True")])

    assert read(a_jobset(status=status)).ending is ending


def test_a_jobset_that_was_resumed_has_begun_when_its_controller_says_so() -> None:
    not_yet = read(a_jobset(status=JobSetStatus(conditions=[SUSPENDED])))
    going = read(a_jobset(status=JobSetStatus(conditions=[RESUMED])))

    assert (not_yet.has_begun, going.has_begun, going.started_at) == (False, True, START)


def test_pods_from_before_its_own_restart_are_no_members_any_more() -> None:
    root = read(a_jobset(status=JobSetStatus(restarts=1)))
    old, new = (a_pod(f"pod-{i}", labels={"jobset.sigs.k8s.io/restart-attempt": str(i)}) for i in (0, 1))

    assert members(GangView(root=root, pods=(old, new))) == (new,)


def test_a_pod_of_a_jobset_that_had_the_name_before_is_identified_by_the_uid() -> None:
    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": "uid-old"}
    pod = a_pod(labels=labels)

    assert (ADAPTER.root_name(pod), ADAPTER.root_uid(pod)) == ("train", "uid-old")


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return an_empty_cluster()


async def stored(cluster: EmbeddedCluster, **fields: Any) -> Root:
    """The root of a JobSet that is in the cluster."""
    return read(await cluster.create(a_jobset(**fields)))


async def now(cluster: EmbeddedCluster) -> JobSet:
    """The JobSet as it stands."""
    return await cluster.get(JobSet, "train", "default")


async def test_stopping_suspends_and_says_by_whom_in_one_write(cluster: EmbeddedCluster) -> None:
    await ADAPTER.stop(cluster, await stored(cluster), "train-1")

    root = read(await now(cluster))
    assert (root.suspended, root.stopped_by, root.edited_since_stop) == (True, "train-1", False)


async def test_what_its_user_changes_after_the_stop_is_seen(cluster: EmbeddedCluster) -> None:
    await ADAPTER.stop(cluster, await stored(cluster), "train-1")
    await cluster.patch(JobSet, "train", {"spec": {"replicatedJobs": [a_part(pods=3)]}}, namespace="default")

    assert read(await now(cluster)).edited_since_stop


async def test_starting_sets_the_hint_on_the_pods_of_every_job(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster, suspend=True, parts=[a_part("leader", pods=1), a_part("workers")])

    await ADAPTER.start(cluster, root, a_hint(checkpoint=A_STEP))

    jobset = await now(cluster)
    templates = [job["template"]["spec"]["template"]["metadata"] for job in jobset.spec.replicated_jobs]
    reported = [template["annotations"] for template in templates]
    assert [template["labels"] for template in templates] == [
        {"app": "train", "healthd.dev/restarted": root.ref.uid}
    ] * 2
    assert (jobset.spec.suspend, read(jobset).attempt, len(reported)) == (False, 3, 2)
    assert all(notes["healthd.dev/resume-from"] == "/data/step_7" for notes in reported)
    assert all(notes["healthd.dev/attempt"] == "3" for notes in reported)


async def test_starting_keeps_everything_that_healthd_does_not_know(cluster: EmbeddedCluster) -> None:
    part = a_part(dependsOn=[{"name": "initializer"}], podFailurePolicy={"rules": []})
    root = await stored(cluster, suspend=True, parts=[part])

    await ADAPTER.start(cluster, root, a_hint(checkpoint=A_STEP))

    (job,) = (await now(cluster)).spec.replicated_jobs
    spec = job["template"]["spec"]
    assert (spec["dependsOn"], spec["podFailurePolicy"]) == ([{"name": "initializer"}], {"rules": []})
    assert spec["template"]["spec"]["containers"] == part["template"]["spec"]["template"]["spec"]["containers"]
    assert job["template"]["metadata"] == part["template"]["metadata"]


async def test_starting_keeps_how_long_its_owner_tolerates_what(cluster: EmbeddedCluster) -> None:
    gone = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 30}
    root = await stored(cluster, suspend=True, parts=[a_part(tolerations=[gone])])

    await ADAPTER.start(cluster, root, a_hint())

    (job,) = (await now(cluster)).spec.replicated_jobs
    first, ours = job["template"]["spec"]["template"]["spec"]["tolerations"]
    assert (first, ours["key"]) == (gone, "healthd.dev/reserved-for")


async def test_a_fresh_start_empties_an_older_hint_because_a_key_cannot_be_taken_away(
    cluster: EmbeddedCluster,
) -> None:
    stale = {"healthd.dev/resume-from": "/data/step_7", "healthd.dev/resume-step": "7"}
    root = await stored(cluster, suspend=True, parts=[a_part(template_annotations=stale)])

    await ADAPTER.start(cluster, root, a_hint())

    (job,) = (await now(cluster)).spec.replicated_jobs
    notes = job["template"]["spec"]["template"]["metadata"]["annotations"]
    assert (notes["healthd.dev/resume-from"], notes["healthd.dev/resume-step"]) == ("", "")


async def test_an_act_upon_a_jobset_that_has_changed_since_is_refused(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster)
    await cluster.patch(JobSet, "train", {"metadata": {"labels": {"a": "b"}}}, namespace="default")

    with pytest.raises(Conflict):
        await ADAPTER.stop(cluster, root, "train-1")
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint())
