"""What an Indexed Job needs next, as on Kubernetes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_RESUME_FROM,
    FINALIZER_FENCE,
    Condition,
    ContainerState,
    ContainerStatus,
    EnvVar,
    Job,
    JobStatus,
    Pod,
    PodStatus,
    Terminated,
)
from healthd.local.jobs.plan import Drawn, JobPlan, decide
from healthd.local.jobs.template import FINALIZER_TRACKING
from tests.builders import A_CONTAINER, a_job, a_pod
from tests.fakes import START

LATER = START + timedelta(seconds=5)
MANY = 1000
"""A backoffLimit that does not matter."""


def the_job(status: JobStatus | None = None, **fields: Any) -> Job:
    return a_job(uid="uid-train", status=status or JobStatus(start_time=START), backoff_limit=MANY, **fields)


def member(
    index: int,
    phase: str = "Running",
    *,
    at: datetime = START,
    made: datetime | None = None,
    tracked: bool = True,
    **fields: Any,
) -> Pod:
    """A pod of the job, ended (where its phase says so) at *at*, and made then or at *made*."""
    code = {"Succeeded": 0, "Failed": 1}.get(phase)
    end = None if code is None else Terminated(exit_code=code, finished_at=at)
    status = PodStatus(
        phase=phase,
        container_statuses=[ContainerStatus(name="main", state=ContainerState(terminated=end))],
        conditions=[Condition(type="Ready", status="True")] if phase == "Running" else [],
    )
    container = msgspec.structs.replace(A_CONTAINER, env=[EnvVar(name="MASTER_PORT", value="29501")])
    defaults: dict[str, Any] = {"name": f"train-{index}-old", "node": f"slot-{index}", "container": container}
    finalizers = [FINALIZER_TRACKING] if tracked else []
    return a_pod(
        index=index, status=status, finalizers=finalizers, creation_timestamp=made or at, **{**defaults, **fields}
    )


def planned(job: Job, pods: Sequence[Pod] = (), now: datetime = LATER) -> JobPlan:
    numbers = itertools.count()
    ports = itertools.count(30000)
    return decide(job, pods, now, Drawn(new_suffix=lambda: f"new{next(numbers)}", free_port=lambda: next(ports)))


def names(pods: Sequence[Pod]) -> list[str]:
    return [pod.metadata.name for pod in pods]


def conditions(plan: JobPlan) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in plan.status.conditions}


def env(pod: Pod, name: str) -> str:
    return {variable.name: variable.value for variable in pod.spec.containers[0].env}[name]


def test_a_new_job_gets_one_pod_per_index() -> None:
    plan = planned(the_job(JobStatus(), ranks=3))

    assert names(plan.create) == ["train-0-new0", "train-1-new1", "train-2-new2"]
    assert (plan.status.active, plan.status.ready, plan.status.start_time) == (3, 0, LATER)
    assert not plan.status.conditions


def test_a_pod_is_made_from_the_template() -> None:
    job = the_job(ranks=1, template_annotations={ANNOTATION_ATTEMPT: "2", ANNOTATION_RESUME_FROM: "/ckpt/40"})
    meta = msgspec.structs.replace(job.spec.template.metadata, finalizers=[FINALIZER_FENCE])
    template = msgspec.structs.replace(job.spec.template, metadata=meta)
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template))
    [pod] = planned(job).create
    [owner] = pod.metadata.owner_references

    assert pod.metadata.labels["healthd.dev/gang"] == "train"
    assert pod.metadata.labels["batch.kubernetes.io/job-name"] == "train"
    assert pod.metadata.annotations[ANNOTATION_ATTEMPT] == "2"
    assert pod.metadata.finalizers == [FINALIZER_FENCE, FINALIZER_TRACKING]
    assert (owner.kind, owner.uid, owner.controller) == ("Job", "uid-train", True)
    assert (env(pod, "RANK"), env(pod, "WORLD_SIZE"), env(pod, "HEALTHD_RESUME_FROM")) == ("0", "1", "/ckpt/40")


def test_all_pods_of_a_start_meet_at_one_free_port() -> None:
    plan = planned(the_job(ranks=3))

    assert {env(pod, "MASTER_PORT") for pod in plan.create} == {"30000"}


def test_a_pod_that_is_made_later_meets_the_others_where_they_are() -> None:
    [pod] = planned(the_job(ranks=2), [member(0)]).create

    assert env(pod, "MASTER_PORT") == "29501"


def test_a_port_of_another_attempt_is_not_used_again() -> None:
    job = the_job(ranks=2, template_annotations={ANNOTATION_ATTEMPT: "1"})
    [pod] = planned(job, [member(0)]).create

    assert env(pod, "MASTER_PORT") == "30000"


def test_a_running_job_is_left_alone() -> None:
    job = the_job(JobStatus(start_time=START, active=2, ready=2))
    plan = planned(job, [member(0), member(1)])

    assert plan == JobPlan(status=job.status)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_no_second_pod_while_the_old_one_of_its_index_is_not_gone(phase: str) -> None:
    plan = planned(the_job(), [member(0), member(1, phase, deletion_timestamp=START)])

    assert plan.create == []
    assert (plan.status.active, plan.status.terminating) == (1, 1)


def test_a_pod_that_ended_while_being_deleted_is_replaced() -> None:
    plan = planned(the_job(), [member(0), member(1, "Failed", deletion_timestamp=START)], LATER + timedelta(hours=1))

    assert names(plan.create) == ["train-1-new0"]


@pytest.mark.parametrize(("failures", "seconds"), [(1, 10), (2, 20), (3, 40), (6, 320), (7, 360), (100, 360)])
def test_a_failed_index_is_tried_again_after_a_back_off_that_doubles(failures: int, seconds: int) -> None:
    pods = [member(0), *(member(1, "Failed", name=f"old-{n}", at=LATER) for n in range(failures))]
    early = planned(the_job(), pods, LATER + timedelta(seconds=seconds - 1))
    due = planned(the_job(), pods, LATER + timedelta(seconds=seconds))

    assert names(early.create) == []
    assert names(due.create) == ["train-1-new0"]
    assert early.status.failed == due.status.failed == failures


def test_a_plan_says_when_the_first_back_off_ends() -> None:
    pods = [member(0, "Failed"), member(1, "Failed", at=LATER)]
    waiting = planned(the_job(), pods)
    over = planned(the_job(), pods, LATER + timedelta(hours=1))

    assert waiting.due == START + timedelta(seconds=10)
    assert (names(over.create), over.due) == (["train-0-new0", "train-1-new1"], None)


def test_a_pod_that_fails_in_the_second_in_which_its_job_started_is_not_replaced_at_once() -> None:
    """The times of creation have whole seconds, as those of Kubernetes; the start of the job and the end have more."""
    started, ended = START + timedelta(milliseconds=128), START + timedelta(milliseconds=182)
    job = the_job(JobStatus(start_time=started))
    plan = planned(job, [member(0), member(1, "Failed", at=ended, made=START)], ended + timedelta(milliseconds=20))

    assert names(plan.create) == []
    assert plan.due == ended + timedelta(seconds=10)


def test_failures_before_the_last_resume_do_not_delay_the_start() -> None:
    job = the_job(JobStatus(conditions=[Condition(type="Suspended", status="True")], failed=1))
    plan = planned(job, [member(1, "Failed")])

    assert names(plan.create) == ["train-0-new0", "train-1-new1"]
    assert plan.status.failed == 1


def test_suspend_deletes_the_active_pods_and_counts_none_of_them() -> None:
    pods = [member(0), member(1)]
    plan = planned(the_job(suspend=True), pods)
    gone = [msgspec.structs.replace(p, metadata=msgspec.structs.replace(p.metadata, finalizers=[])) for p in pods]
    ended = [msgspec.structs.replace(p, status=PodStatus(phase="Failed")) for p in gone]

    assert plan.release == plan.delete == pods
    assert conditions(plan) == {"Suspended": ("True", "JobSuspended")}
    assert (plan.status.active, plan.status.terminating, plan.status.start_time) == (0, 2, None)
    assert planned(the_job(plan.status, suspend=True), ended).status.failed == 0


def test_a_suspended_job_has_stopped_when_its_last_pod_has() -> None:
    job = the_job(suspend=True)
    leaving = planned(job, [member(0, deletion_timestamp=START)])
    left = planned(job, [member(0, "Failed", tracked=False)])

    assert (leaving.status.active, leaving.status.terminating) == (0, 1)
    assert (left.status.active, left.status.terminating) == (0, 0)


def test_a_pod_that_failed_before_the_suspend_stays_counted() -> None:
    plan = planned(the_job(suspend=True), [member(0), member(1, "Failed")])

    assert plan.status.failed == 1
    assert names(plan.release) == ["train-0-old"]


def test_a_job_made_suspended_starts_nothing() -> None:
    plan = planned(the_job(JobStatus(), suspend=True))

    assert plan.create == []
    assert conditions(plan) == {"Suspended": ("True", "JobSuspended")}


def test_resuming_says_so_and_starts() -> None:
    suspended = Condition(type="Suspended", status="True", reason="JobSuspended", last_transition_time=START)
    plan = planned(the_job(JobStatus(conditions=[suspended])))
    [condition] = plan.status.conditions

    assert (condition.status, condition.reason, condition.last_transition_time) == ("False", "JobResumed", LATER)
    assert (plan.status.start_time, len(plan.create)) == (LATER, 2)


def test_a_succeeded_index_is_never_run_again() -> None:
    first = planned(the_job(ranks=2), [member(0), member(1, "Succeeded")])
    without_its_pod = planned(the_job(first.status, ranks=2), [member(0)])

    assert (first.status.completed_indexes, first.status.succeeded) == ("1", 1)
    assert first.create == without_its_pod.create == []


def test_a_succeeded_pod_is_released_only_after_its_index_is_written_down() -> None:
    pods = [member(0), member(1, "Succeeded")]
    first = planned(the_job(), pods)
    second = planned(the_job(first.status), pods)

    assert first.release == []
    assert names(second.release) == ["train-1-old"]


def test_a_rank_that_exits_0_because_it_was_suspended_has_not_succeeded() -> None:
    plan = planned(the_job(), [member(0), member(1, "Succeeded", tracked=False)])

    assert plan.status.completed_indexes == ""
    assert names(plan.create) == ["train-1-new0"]


def test_a_job_is_complete_when_every_index_succeeded() -> None:
    plan = planned(the_job(), [member(0, "Succeeded"), member(1, "Succeeded")])

    assert conditions(plan) == {"Complete": ("True", "CompletionsReached")}
    assert (plan.status.completed_indexes, plan.status.completion_time) == ("0,1", LATER)


def test_a_complete_job_lets_go_of_its_pods_and_stays_as_it_is() -> None:
    pods = [member(0, "Succeeded"), member(1, "Succeeded")]
    complete = planned(the_job(), pods).status
    plan = planned(the_job(complete), pods, LATER + timedelta(hours=1))

    assert plan == JobPlan(release=pods, status=complete)


def limited(status: JobStatus | None = None, **fields: Any) -> Job:
    """A job that no failure is forgiven."""
    return a_job(uid="uid-train", status=status or JobStatus(start_time=START), backoff_limit=0, **fields)


def test_a_job_over_its_limit_fails_when_the_last_pod_has_gone() -> None:
    failing = planned(limited(), [member(0), member(1, "Failed")])
    failed = planned(limited(failing.status), [member(0, "Failed"), member(1, "Failed")])

    assert names(failing.delete) == ["train-0-old"]
    assert conditions(failing) == {"FailureTarget": ("True", "BackoffLimitExceeded")}
    assert conditions(failed)["Failed"] == ("True", "BackoffLimitExceeded")
    assert failed.status.failed == 2


def test_a_job_over_its_limit_fails_also_while_suspended() -> None:
    plan = planned(limited(suspend=True), [member(0, "Failed")])

    assert conditions(plan)["Failed"] == ("True", "BackoffLimitExceeded")


def test_a_failed_job_never_starts_again() -> None:
    status = JobStatus(failed=1, conditions=[Condition(type="Failed", status="True")])
    plan = planned(limited(status), [member(1, "Failed")])

    assert plan.create == []
    assert plan.status == status


def test_a_world_that_shrank_runs_the_lowest_indexes() -> None:
    plan = planned(the_job(ranks=1), [member(0), member(1)])

    assert names(plan.delete) == names(plan.release) == ["train-1-old"]
    assert plan.status.active == 1


def test_of_two_pods_of_one_index_the_older_stays() -> None:
    pods = [member(0), member(1, name="b"), member(1, name="a", at=LATER)]
    plan = planned(the_job(), pods)

    assert names(plan.delete) == ["a"]


def test_parallelism_bounds_the_pods_at_once() -> None:
    job = the_job(ranks=3)
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, parallelism=2))
    plan = planned(job, [member(0)])

    assert names(plan.create) == ["train-1-new0"]


def test_a_job_being_deleted_lets_go_of_its_pods_and_makes_none() -> None:
    plan = planned(the_job(deletion_timestamp=START, ranks=2), [member(0)])

    assert (names(plan.release), names(plan.delete), plan.create) == (["train-0-old"], ["train-0-old"], [])


def test_a_plan_that_was_carried_out_leaves_nothing_to_do() -> None:
    first = planned(the_job(JobStatus()))
    second = planned(the_job(first.status), first.create)

    assert second == JobPlan(status=first.status)
