"""
What an Indexed batch/v1 Job needs next: the decisions of the Job controller, as a gang sees them on Kubernetes. Pure.

Each pod is created with the tracking finalizer and keeps it until the pod is counted for good. A Failed pod keeps it
until the job is finished. So the number of failures is always the number of such pods, and a crash cannot count one
twice. A pod that suspend deletes loses the finalizer first, and is never counted.

Two differences to Kubernetes. The back-off of an index counts only failures since the job was last resumed: a user who
suspends and resumes a gang has already waited. And suspend forgets which indexes succeeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import msgspec

from healthd.core.api import Condition, Job, JobStatus, Pod
from healthd.core.recovery.members import attempt_of, index_of, is_terminal
from healthd.core.untrusted import number_or
from healthd.local.jobs.indexes import format_indexes, parse_indexes
from healthd.local.jobs.template import FINALIZER_TRACKING, new_pod
from healthd.local.processes.pods import with_condition

BACKOFF = timedelta(seconds=10)
LONGEST_BACKOFF = timedelta(minutes=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """The actions, in this order, and the status that is true after them."""

    release: list[Pod] = field(default_factory=list)
    """Pods that lose the tracking finalizer."""
    delete: list[Pod] = field(default_factory=list)
    create: list[Pod] = field(default_factory=list)
    status: JobStatus
    due: datetime | None = None
    """When the first back-off ends. None when there is no back-off. Nothing else here depends on time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Inputs from chance and from the machine: the random part of a name, a free TCP port, and the first back-off."""

    new_suffix: Callable[[], str]
    free_port: Callable[[], int]
    backoff: timedelta = BACKOFF


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """The pods of a job, sorted by their meaning for it."""

    job: Job
    world: int
    active: list[Pod]
    terminating: list[Pod]
    """Deletion requested, not yet confirmed."""
    failed: list[Pod]
    """Counted as failures."""
    ended: list[Pod]
    done: set[int]
    """Indexes that succeeded. They do not run again."""
    now: datetime


def decide(job: Job, pods: Sequence[Pod], now: datetime, drawn: Drawn) -> JobPlan:
    """The plan for *job* and its own *pods*."""
    view = _view_of(job, pods, now)
    if is_finished(job) or job.metadata.deletion_timestamp is not None:
        return _wind_up(view)
    if _stands(job, "FailureTarget") or len(view.failed) > job.spec.backoff_limit:
        return _fail(view)
    if len(view.done) >= view.world and not view.active and not view.terminating:
        return _complete(view)
    return _suspend(view) if job.spec.suspend else _go_on(view, drawn)


def is_finished(job: Job) -> bool:
    """Complete or Failed. Both are final."""
    return _stands(job, "Complete") or _stands(job, "Failed")


def is_tracked(pod: Pod) -> bool:
    """The Job has not counted this pod yet."""
    return FINALIZER_TRACKING in pod.metadata.finalizers


def _view_of(job: Job, pods: Sequence[Pod], now: datetime) -> _View:
    world = job.spec.completions if job.spec.completions is not None else job.spec.parallelism
    live = [pod for pod in pods if not is_terminal(pod)]
    counted = [pod for pod in pods if is_terminal(pod) and is_tracked(pod)]
    succeeded = {_index(pod) for pod in counted if pod.status.phase == "Succeeded"}
    done = parse_indexes(job.status.completed_indexes) | succeeded
    return _View(
        job=job,
        world=world,
        active=[pod for pod in live if pod.metadata.deletion_timestamp is None],
        terminating=[pod for pod in live if pod.metadata.deletion_timestamp is not None],
        failed=[pod for pod in counted if pod.status.phase == "Failed"],
        ended=[pod for pod in pods if is_terminal(pod)],
        done={index for index in done if 0 <= index < world},
        now=now,
    )


def _wind_up(view: _View) -> JobPlan:
    """For a job that is finished or being deleted: nothing is counted any more."""
    tracked = [pod for pod in (*view.active, *view.terminating, *view.ended) if is_tracked(pod)]
    return JobPlan(release=tracked, delete=view.active, status=_status(view, deleted=view.active))


def _fail(view: _View) -> JobPlan:
    """As in Kubernetes, `Failed` is set only when no pod is left. A reader of `Failed` may take the nodes."""
    limit = view.job.spec.backoff_limit
    message = f"{len(view.failed)} pods failed; backoffLimit is {limit}"
    conditions = _conditions(view, "FailureTarget", "True", "BackoffLimitExceeded", message)
    if not view.active and not view.terminating:
        failed = Condition(type="Failed", status="True", reason="BackoffLimitExceeded", message=message)
        conditions = with_condition(conditions, failed, view.now)
    return JobPlan(delete=view.active, status=_status(view, deleted=view.active, conditions=conditions))


def _complete(view: _View) -> JobPlan:
    message = f"all {view.world} indexes succeeded"
    conditions = _conditions(view, "Complete", "True", "CompletionsReached", message)
    return JobPlan(status=msgspec.structs.replace(_status(view, conditions=conditions), completion_time=view.now))


def _suspend(view: _View) -> JobPlan:
    """Forgets which indexes succeeded: the members of a gang need each other, so all of them run again."""
    conditions = _conditions(view, "Suspended", "True", "JobSuspended", "Job suspended")
    view = replace(view, done=set())
    status = _status(view, deleted=view.active, conditions=conditions)
    active = [pod for pod in view.active if is_tracked(pod)]
    succeeded = [pod for pod in view.ended if pod.status.phase == "Succeeded" and is_tracked(pod)]
    return JobPlan(
        release=[*active, *succeeded],
        delete=view.active,
        status=msgspec.structs.replace(status, start_time=None),
    )


def _go_on(view: _View, drawn: Drawn) -> JobPlan:
    conditions = view.job.status.conditions
    if _stands(view.job, "Suspended"):
        conditions = _conditions(view, "Suspended", "False", "JobResumed", "Job resumed")
    surplus = _surplus(view)
    create = [] if surplus else _new_pods(view, drawn)
    status = _status(view, deleted=surplus, created=create, conditions=conditions)
    return JobPlan(
        release=[*(pod for pod in surplus if is_tracked(pod)), *_counted(view)],
        delete=surplus,
        create=create,
        status=msgspec.structs.replace(status, start_time=view.job.status.start_time or view.now),
        due=min(_backing_off(view, drawn.backoff).values(), default=None),
    )


def _counted(view: _View) -> list[Pod]:
    """Succeeded pods whose index is already written in the job's status."""
    written = parse_indexes(view.job.status.completed_indexes)
    succeeded = [pod for pod in view.ended if pod.status.phase == "Succeeded" and is_tracked(pod)]
    return [pod for pod in succeeded if _index(pod) in written]


def _surplus(view: _View) -> list[Pod]:
    """Active pods whose index is not wanted (the world shrank), or already has an older pod."""
    seen = {_index(pod) for pod in view.terminating}
    surplus: list[Pod] = []
    for pod in sorted(view.active, key=_age):
        if _index(pod) in seen or _index(pod) in view.done or not 0 <= _index(pod) < view.world:
            surplus.append(pod)
        seen.add(_index(pod))
    return surplus


def _new_pods(view: _View, drawn: Drawn) -> list[Pod]:
    """One pod for each index without a pod, as far as parallelism and the back-off of the index allow."""
    taken = {_index(pod) for pod in (*view.active, *view.terminating)} | view.done
    room = view.job.spec.parallelism - len(view.active) - len(view.terminating)
    waiting = _backing_off(view, drawn.backoff)
    missing = [index for index in range(view.world) if index not in taken and index not in waiting]
    if not missing or room <= 0:
        return []
    port = _agreed_port(view) or drawn.free_port()
    return [new_pod(view.job, index, view.world, port, drawn.new_suffix()) for index in missing[:room]]


def _backing_off(view: _View, backoff: timedelta) -> dict[int, datetime]:
    """The indexes that wait after a failure, and the end of each wait."""
    since = view.job.status.start_time or view.now
    made_since = since.replace(microsecond=0)  # times of creation have whole seconds
    failures: dict[int, list[datetime]] = defaultdict(list)
    for pod in view.failed:
        ended = _finished_at(pod) or view.now
        if (pod.metadata.creation_timestamp or view.now) >= made_since and ended >= since:
            failures[_index(pod)].append(ended)
    ends = {index: max(times) + _delay(len(times), backoff) for index, times in failures.items()}
    return {index: end for index, end in ends.items() if view.now < end}


def _delay(failures: int, backoff: timedelta) -> timedelta:
    """The wait doubles with each failure. The exponent is bounded, so the product cannot overflow."""
    doublings: int = 2 ** min(failures - 1, 16)
    return min(LONGEST_BACKOFF, backoff * doublings)


def _agreed_port(view: _View) -> int:
    """The MASTER_PORT of the living members of this attempt. 0 when there are none."""
    attempt = attempt_of(Pod(metadata=view.job.spec.template.metadata))
    members = [pod for pod in view.active if attempt_of(pod) == attempt]
    ports = (v.value for pod in members for v in pod.spec.containers[0].env if v.name == "MASTER_PORT")
    return int(next(ports, "0"))


def _status(
    view: _View,
    *,
    deleted: Sequence[Pod] = (),
    created: Sequence[Pod] = (),
    conditions: list[Condition] | None = None,
) -> JobStatus:
    """
    A bound pod that is deleted now is terminating until its processes are gone. A pod never bound is gone at once.
    """
    leaving = [pod for pod in deleted if pod.spec.node_name]
    staying = [pod for pod in view.active if pod not in deleted]
    return msgspec.structs.replace(
        view.job.status,
        active=len(staying) + len(created),
        ready=sum(map(_is_ready, staying)),
        terminating=len(view.terminating) + len(leaving),
        succeeded=len(view.done),
        failed=max(view.job.status.failed, len(view.failed)),
        completed_indexes=format_indexes(view.done),
        conditions=view.job.status.conditions if conditions is None else conditions,
    )


def _conditions(view: _View, kind: str, status: str, reason: str, message: str) -> list[Condition]:
    new = Condition(type=kind, status=status, reason=reason, message=message)
    return with_condition(view.job.status.conditions, new, view.now)


def _stands(job: Job, kind: str) -> bool:
    return any(c.type == kind and c.status == "True" for c in job.status.conditions)


def _is_ready(pod: Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


def _index(pod: Pod) -> int:
    """-1 for a pod without an index, which is not a pod of this job."""
    return number_or(index_of(pod), -1)


def _age(pod: Pod) -> tuple[bool, float, str]:
    created = pod.metadata.creation_timestamp
    return created is None, created.timestamp() if created else 0.0, pod.metadata.name


def _finished_at(pod: Pod) -> datetime | None:
    states = [status.state.terminated for status in pod.status.container_statuses]
    return next((state.finished_at for state in states if state is not None), None)
