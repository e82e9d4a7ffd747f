"""Indexed Jobs as gangs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from healthd.cluster.embedded import EmbeddedCluster
from healthd.cluster.port import Conflict, Forbidden, Invalid
from healthd.core.api import ChosenCheckpoint, Condition, Job, JobStatus, Toleration
from healthd.core.recovery.gang import GangOptions, Root, RootOutcome, StartHint
from healthd.gangs.job import JobAdapter, read_job
from tests.builders import a_job
from tests.fakes import ManualClock, counting_uids

ADAPTER = JobAdapter()
ELASTIC = {"healthd.dev/restart": "enabled", "healthd.dev/min-nodes": "1"}
TWO = {"0": "a", "1": "b"}
SUSPENDED = Condition(type="Suspended", status="True")


def test_the_options_of_the_owner_are_read_from_its_annotations() -> None:
    notes = {
        "healthd.dev/restart": "enabled",
        "healthd.dev/checkpoint": "file:///data",
        "healthd.dev/checkpoint-format": "torch",
        "healthd.dev/max-no-advance": "5",
        "healthd.dev/min-nodes": "2",
    }

    assert read_job(a_job(annotations=notes)).options == GangOptions(
        restart=True, checkpoint="file:///data", checkpoint_format="torch", max_no_advance=5, min_nodes=2
    )


def test_progress_that_cannot_be_read_is_no_progress() -> None:
    assert read_job(a_job(annotations={"healthd.dev/progress": "{"})).progress.step == -1


@pytest.mark.parametrize(
    ("condition", "ending"),
    [
        ("Complete", RootOutcome.COMPLETE),
        ("SuccessCriteriaMet", RootOutcome.COMPLETE),
        ("Failed", RootOutcome.FAILED),
        ("FailureTarget", RootOutcome.FAILED),
        ("Suspended", RootOutcome.NOT_ENDED),
    ],
)
def test_a_job_ends_by_its_conditions(condition: str, ending: RootOutcome) -> None:
    job = a_job(status=JobStatus(conditions=[Condition(type=condition, status="True")]))

    assert read_job(job).ending is ending


@pytest.mark.parametrize(
    ("suspend", "status", "stopped"),
    [
        pytest.param(True, JobStatus(conditions=[SUSPENDED]), True, id="its controller says so"),
        pytest.param(True, JobStatus(conditions=[SUSPENDED], terminating=1), True, id="only finalizers keep a pod"),
        pytest.param(True, JobStatus(conditions=[SUSPENDED], active=1), False, id="a pod is active"),
        pytest.param(True, JobStatus(), False, id="its controller has not noticed yet"),
        pytest.param(False, JobStatus(conditions=[SUSPENDED]), False, id="it was resumed"),
    ],
)
def test_a_job_has_stopped_when_its_own_controller_makes_no_more_pods(
    suspend: bool, status: JobStatus, stopped: bool
) -> None:
    assert read_job(a_job(suspend=suspend, status=status)).stopped is stopped


async def stored(cluster: EmbeddedCluster, **fields: object) -> Root:
    """The root of a Job that is in the cluster."""
    return read_job(await cluster.create(a_job(**fields)))  # type: ignore[arg-type]


@pytest.fixture
def cluster() -> EmbeddedCluster:
    """An empty cluster in memory."""
    return EmbeddedCluster.open(None, clock=ManualClock(), new_uid=counting_uids())


async def test_stopping_suspends_and_says_by_whom_in_one_write(cluster: EmbeddedCluster) -> None:
    await ADAPTER.stop(cluster, await stored(cluster), "train-1")

    root = read_job(await cluster.get(Job, "train", "default"))
    assert root.suspended
    assert root.stopped_by == "train-1"


def a_hint(placement: dict[str, str], checkpoint: ChosenCheckpoint | None = None) -> StartHint:
    """The hint of attempt 3."""
    return StartHint(recovery="train-3", attempt=3, checkpoint=checkpoint or ChosenCheckpoint(), placement=placement)


async def test_starting_hands_over_the_hint_in_one_write(cluster: EmbeddedCluster) -> None:
    await ADAPTER.stop(cluster, await stored(cluster), "train-3")
    root = read_job(await cluster.get(Job, "train", "default"))

    hint = a_hint({"0": "node-a", "1": "node-b"}, ChosenCheckpoint(path="/data/step_7", step=7))
    await ADAPTER.start(cluster, root, hint)

    job = await cluster.get(Job, "train", "default")
    notes = job.spec.template.metadata.annotations
    assert (job.spec.suspend, read_job(job).stopped_by, read_job(job).attempt) == (False, "", 3)
    assert (notes["healthd.dev/resume-from"], notes["healthd.dev/resume-step"]) == ("/data/step_7", "7")
    assert notes["healthd.dev/attempt"] == "3"
    assert job.spec.template.metadata.labels["healthd.dev/restarted"] == job.metadata.uid
    assert read_job(job).placement == {"0": "node-a", "1": "node-b"}


class Before136:
    """An API server that keeps the template of a Job as it is once the Job has a start time."""

    def __init__(self, cluster: EmbeddedCluster, *, may_write_status: bool = True) -> None:
        self.cluster = cluster
        self.may_write_status = may_write_status

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    async def patch(self, kind: Any, name: str, patch: Any, **where: Any) -> Any:
        if where.get("subresource") == "status" and not self.may_write_status:
            raise Forbidden("jobs/status")
        job = await self.cluster.get(Job, name, where["namespace"])
        if "template" in patch.get("spec", {}) and job.status.start_time:
            raise Invalid("spec.template: field is immutable")
        return await self.cluster.patch(kind, name, patch, **where)


async def a_stopped_job_that_ran(cluster: EmbeddedCluster) -> Root:
    await ADAPTER.stop(cluster, await stored(cluster), "train-3")
    await cluster.patch(
        Job, "train", {"status": {"startTime": "2026-01-01T00:00:00Z"}}, namespace="default", subresource="status"
    )
    return read_job(await cluster.get(Job, "train", "default"))


async def test_before_1_36_a_job_that_ran_is_started_with_the_hint(cluster: EmbeddedCluster) -> None:
    root = await a_stopped_job_that_ran(cluster)

    await ADAPTER.start(Before136(cluster), root, a_hint({}, ChosenCheckpoint(path="/data/step_7", step=7)))

    job = await cluster.get(Job, "train", "default")
    assert (job.spec.suspend, template_of(job)["healthd.dev/resume-from"]) == (False, "/data/step_7")
    assert job.status.start_time is None


async def test_a_job_that_its_user_changes_in_between_is_not_started(cluster: EmbeddedCluster) -> None:
    root = await a_stopped_job_that_ran(cluster)
    await cluster.patch(Job, "train", {"metadata": {"labels": {"a": "b"}}}, namespace="default")

    with pytest.raises(Conflict):
        await ADAPTER.start(Before136(cluster), root, a_hint({}))
    assert (await cluster.get(Job, "train", "default")).status.start_time is not None


async def test_without_the_right_to_the_status_the_refusal_of_the_template_is_reported(
    cluster: EmbeddedCluster,
) -> None:
    root = await a_stopped_job_that_ran(cluster)

    with pytest.raises(Invalid, match="immutable"):
        await ADAPTER.start(Before136(cluster, may_write_status=False), root, a_hint({}))


async def test_a_fresh_start_takes_an_older_hint_away(cluster: EmbeddedCluster) -> None:
    stale = {"healthd.dev/resume-from": "/data/step_7", "healthd.dev/resume-step": "7"}
    root = await stored(cluster, suspend=True, template_annotations=stale)

    await ADAPTER.start(cluster, root, a_hint({}))

    notes = (await cluster.get(Job, "train", "default")).spec.template.metadata.annotations
    assert not notes.keys() & stale.keys()


def template_of(job: Job) -> dict[str, str]:
    return dict(job.spec.template.metadata.annotations)


HINT = {"healthd.dev/attempt": "2", "healthd.dev/resume-from": "/data/step_7", "healthd.dev/resume-step": "7"}


async def test_a_job_that_its_user_suspended_is_freed_of_the_hint_that_grows_old(cluster: EmbeddedCluster) -> None:
    root = dataclasses.replace(await stored(cluster, suspend=True, template_annotations=HINT), stopped=True)

    await ADAPTER.maintain(cluster, root, [])

    job = await cluster.get(Job, "train", "default")
    assert (job.spec.suspend, template_of(job)) == (True, {"healthd.dev/attempt": "2"})
    assert read_job(job).template_resumes_from == ""


@pytest.mark.parametrize("state", [{"stopped_by": "train-3"}, {"stopped": False}], ids=["stopped by us", "it may run"])
async def test_a_hint_that_may_still_be_needed_stays(cluster: EmbeddedCluster, state: dict[str, Any]) -> None:
    root = await stored(cluster, suspend=True, template_annotations=HINT)

    await ADAPTER.maintain(cluster, dataclasses.replace(root, **{"stopped": True, **state}), [])

    assert template_of(await cluster.get(Job, "train", "default")) == HINT


async def test_a_start_keeps_what_the_owner_tolerates(cluster: EmbeddedCluster) -> None:
    job = a_job(suspend=True)
    gpu = Toleration(key="nvidia.com/gpu", operator="Exists")
    pods = replace(job.spec.template, spec=replace(job.spec.template.spec, tolerations=[gpu]))
    await cluster.create(replace(job, spec=replace(job.spec, template=pods)))
    for _ in range(2):
        root = read_job(await cluster.get(Job, "train", "default"))
        await ADAPTER.start(cluster, root, a_hint({}))

    tolerated = (await cluster.get(Job, "train", "default")).spec.template.spec.tolerations
    assert [t.key for t in tolerated] == ["nvidia.com/gpu", "healthd.dev/reserved-for"]


async def test_a_shorter_placement_shrinks_the_gang(cluster: EmbeddedCluster) -> None:
    await ADAPTER.start(cluster, await stored(cluster, suspend=True, ranks=3, annotations=ELASTIC), a_hint(TWO))

    assert read_job(await cluster.get(Job, "train", "default")).world == 2


async def test_a_shorter_placement_changes_no_gang_whose_owner_did_not_allow_it(cluster: EmbeddedCluster) -> None:
    await ADAPTER.start(cluster, await stored(cluster, suspend=True, ranks=3), a_hint(TWO))

    assert read_job(await cluster.get(Job, "train", "default")).world == 3


async def test_a_longer_placement_grows_the_gang_to_what_it_was(cluster: EmbeddedCluster) -> None:
    two = dataclasses.replace(a_hint(TWO), own_size=3)
    await ADAPTER.start(cluster, await stored(cluster, suspend=True, ranks=3, annotations=ELASTIC), two)
    job = await cluster.get(Job, "train", "default")
    assert job.metadata.annotations["healthd.dev/original-size"] == "3"

    await ADAPTER.stop(cluster, read_job(job), "train-4")
    root = read_job(await cluster.get(Job, "train", "default"))
    await ADAPTER.start(cluster, root, a_hint({"0": "a", "1": "b", "2": "c"}))

    job = await cluster.get(Job, "train", "default")
    assert (job.spec.parallelism, job.spec.completions) == (3, 3)
    assert "healthd.dev/original-size" not in job.metadata.annotations


async def test_an_act_upon_a_root_that_has_changed_since_is_refused(cluster: EmbeddedCluster) -> None:
    root = await stored(cluster)
    await cluster.patch(Job, "train", {"metadata": {"labels": {"a": "b"}}}, namespace="default")

    with pytest.raises(Conflict):
        await ADAPTER.stop(cluster, root, "train-1")
    with pytest.raises(Conflict):
        await ADAPTER.start(cluster, root, a_hint({}))
