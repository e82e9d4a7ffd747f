"""
The gang of one `healthd run`: its Job object, and what to do with one that an earlier run of the name left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from healthd.core.gang import Ending, Root, StartHint
from healthd.core.model import Phase
from healthd.core.objects import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_MIN_NODES,
    ANNOTATION_RESTART,
    FINALIZER_FENCE,
    LABEL_GANG,
    ChosenCheckpoint,
    Container,
    Job,
    JobSpec,
    ObjectMeta,
    PodSpec,
    PodTemplate,
    Recovery,
    RejectedCheckpoint,
)
from healthd.core.policy import StartFresh, format_duration
from healthd.gangs.annotations import hint_annotations

NAMESPACE = "default"
ANNOTATION_OPTIONS = "healthd.dev/run-options"
"""On the Job: what the user asked for, as options. The Job itself may have shrunk since."""
NO_LIMIT = 2**31 - 1
"""healthd counts restarts by progress; the Job controller's own count must not end the gang before that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What the user asked to run."""

    name: str
    command: Sequence[str]
    nproc: int
    checkpoint: Path
    state: Path
    working_dir: Path
    spares: int = 0
    min_nodes: int | None = None
    grace: timedelta = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Create:
    """There is nothing yet, or nothing that could go on as it is: make the Job (after deleting what is there)."""

    replace: bool
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Resume:
    """It was stopped, by its user or because healthd gave up: start it again from its newest checkpoint."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """It runs, or a recovery is bringing it back."""


@dataclass(frozen=True, slots=True)
class Done:
    """It finished its work in an earlier run."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The name belongs to something else, or work would be lost."""

    why: str


Plan = Create | Resume | GoOn | Done | Refuse


def plan(spec: RunSpec, job: Job | None, root: Root | None, recoveries: Sequence[Recovery]) -> Plan:
    """What starting *spec* means, given what an earlier run of its name left."""
    if job is None or root is None:
        return Create(replace=False)
    if root.ending is Ending.FAILED:
        return Create(replace=True)
    container = job.spec.template.spec.containers[0]
    if [*container.command, *container.args] != list(spec.command):
        return Refuse(
            f"the run {spec.name!r} was begun with another command ({' '.join(container.command)}); "
            f"use another --name, or delete {spec.state} to forget it"
        )
    if root.ending is Ending.COMPLETE:
        return Done()
    changed = job.metadata.annotations.get(ANNOTATION_OPTIONS, options_of(spec)) != options_of(spec)
    latest = max(recoveries, key=lambda recovery: recovery.spec.first_attempt, default=None)
    gave_up = latest is not None and latest.status.phase is Phase.GAVE_UP
    if root.suspended and (gave_up or not root.stopped_by):
        return Create(replace=True, attempt=root.attempt + 1) if changed else Resume()
    if changed:
        return Refuse(
            f"the run {spec.name!r} was interrupted and goes on as it was begun, with other options "
            f"({job.metadata.annotations[ANNOTATION_OPTIONS]}): name those, and stop it with Ctrl-C to change them"
        )
    return GoOn()


def why_not_fresh(spec: RunSpec, seen: int, rejected: Sequence[RejectedCheckpoint], policy: StartFresh) -> str:
    """
    Why a run that was stopped must not begin again at step 0, as in a recovery; empty when it may.

    None of its checkpoints will load; *seen* is the furthest step that it ever saved, -1 when it saved none.
    """
    if policy is StartFresh.ALWAYS or (policy is StartFresh.NEVER_SAVED and not rejected and seen < 0):
        return ""
    where = spec.checkpoint.absolute()
    if rejected:
        trouble = f"no checkpoint at {where} will load; the newest, {rejected[0].path}: {rejected[0].reason}"
    elif seen >= 0:
        trouble = f"there is no checkpoint at {where} any more, though step {seen} was seen (is it mounted?)"
    else:
        trouble = f"there is no checkpoint at {where}"
    return f"{trouble}; recovery.start_fresh is {policy}: put a good one there, or set it to always to start over"


def options_of(spec: RunSpec) -> str:
    """What the user may change between two runs of one name."""
    shrink = f" --min-nodes {spec.min_nodes}" if spec.min_nodes is not None else ""
    where, grace = spec.checkpoint.absolute(), format_duration(spec.grace)
    return f"--nproc {spec.nproc}{shrink} --checkpoint {where} --grace {grace}"


def job_of(spec: RunSpec, checkpoint: ChosenCheckpoint, attempt: int = 0) -> Job:
    """The Indexed Job of *spec*, whose first attempt resumes from *checkpoint* (or starts from nothing)."""
    hint = StartHint(recovery="", attempt=attempt, checkpoint=checkpoint, placement={})
    notes = {key: value for key, value in hint_annotations(hint).items() if value is not None}
    options = {
        ANNOTATION_RESTART: "enabled",
        ANNOTATION_ATTEMPT: str(attempt),
        ANNOTATION_CHECKPOINT: spec.checkpoint.absolute().as_uri(),
        ANNOTATION_OPTIONS: options_of(spec),
    }
    if spec.min_nodes is not None:
        options[ANNOTATION_MIN_NODES] = str(spec.min_nodes)
    container = Container(image="local", command=list(spec.command), working_dir=str(spec.working_dir))
    template = PodTemplate(
        metadata=ObjectMeta(labels={LABEL_GANG: spec.name}, annotations=notes, finalizers=[FINALIZER_FENCE]),
        spec=PodSpec(
            containers=[container],
            restart_policy="Never",
            termination_grace_period_seconds=round(spec.grace.total_seconds()),
        ),
    )
    return Job(
        metadata=ObjectMeta(name=spec.name, namespace=NAMESPACE, annotations=options),
        spec=JobSpec(
            parallelism=spec.nproc,
            completions=spec.nproc,
            completion_mode="Indexed",
            backoff_limit=NO_LIMIT,
            template=template,
        ),
    )
