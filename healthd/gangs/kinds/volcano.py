"""The Job of Volcano, whose members are scheduled together or not at all."""

from __future__ import annotations

from collections.abc import Iterator

from healthd.core.config.gang_kinds import KindDescription, PodsDescription, Trap

LABEL = "volcano.sh/"
_PHASE = "status.state.phase"


def _ended_by(action: str) -> Iterator[Trap]:
    for where in ("spec.policies.*", "spec.tasks.*.policies.*"):
        yield Trap(
            when=f"{where}.action={action}",
            why="such a policy ends the job for good, or stops it until its user resumes it, often before healthd has "
            "stopped it",
            remedy="no policy for PodFailed and PodEvicted: healthd restarts the job after them",
        )


def _restarted_by(event: str) -> Iterator[Trap]:
    for where in ("spec.policies.*", "spec.tasks.*.policies.*"):
        for key in (f"{where}.event={event}", f"{where}.events.*={event}"):
            yield Trap(
                when=key,
                why="Volcano acts when the first pod fails, often before healthd has stopped the job; each restart of "
                "its own counts, and at maxRetry the job is failed for good",
                remedy=f"no policy for {event}, or a high maxRetry; healthd's own restarts do not count",
            )


VOLCANO_JOB = KindDescription(
    api_version="batch.volcano.sh/v1alpha1",
    kind="Job",
    alias="VolcanoJob",
    plural="jobs",
    replicas="spec.tasks.*.replicas",
    minimums=("spec.tasks.*.minAvailable", "spec.minAvailable"),
    pod_version="status.version",
    pods=(PodsDescription(at="spec.tasks.*", name="name", template=()),),
    name_label=f"{LABEL}job-name",
    bound_by_name=True,
    part_label=f"{LABEL}task-spec",
    index_labels=(f"{LABEL}task-index",),
    stopped="status.minAvailable=0 and status.running=0 and status.pending=0"
    f" or {_PHASE}=Restarting and status.running=0 and status.pending=0",
    suspended=(f"{_PHASE}=Aborting|Aborted",),
    succeeded=(f"{_PHASE}=Completed|Completing",),
    failed=(f"{_PHASE}=Failed|Terminated|Terminating",),
    traps=(
        *_restarted_by("PodFailed"),
        *_restarted_by("*"),
        *_ended_by("AbortJob"),
        *_ended_by("TerminateJob"),
        Trap(
            when="spec.tasks.*.replicas=",
            prevents=True,
            why="Volcano makes no pods of a task without `replicas`, and healthd would wait for one",
            remedy="write `replicas` in every task",
        ),
    ),
)
"""Its webhook lets nothing be changed but these numbers. A ResumeJob command would count as a retry."""
