"""
The gang of one `healthd run`: its Job object, and how to treat a Job that an earlier run of the same name left.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_MIN_NODES,
    ANNOTATION_RESTART,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    ANNOTATION_RUN_OPTIONS,
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
from healthd.core.api.model import Phase
from healthd.core.config import StartFresh, format_duration
from healthd.core.recovery.gang import Root, RootOutcome, StartHint
from healthd.core.untrusted import number_or
from healthd.gangs.annotations import hint_annotations
from healthd.local.checkpoints.memory import ANNOTATION_SEEN, NOTHING_SEEN, Seen, note_of

NAMESPACE = "default"
ANNOTATION_SINCE = "healthd.dev/run-since"
"""On the Job: checkpoints saved since this time belong to this run."""
ANNOTATION_BY_HAND = "healthd.dev/run-starts-by-hand"
"""On the Job: how many attempts after the first the user started. The others are restarts by healthd."""
NO_LIMIT = 2**31 - 1
"""healthd counts restarts by progress. The Job controller's own limit must not end the gang before that."""


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
    checkpoint_format: str = ""
    """The format that the user declares. Empty: it is detected from the files."""
    grace: timedelta = timedelta(seconds=30)
    fresh: bool = False
    """Start from step 0, whatever exists."""
    accept_changes: bool = False
    """Continue with what exists, although the run was started as something else."""


@dataclass(frozen=True, slots=True)
class Create:
    """There is no Job, or no Job that can continue unchanged: create the Job (after deleting the old one)."""

    replace: bool
    attempt: int = 0
    changes: tuple[str, ...] = ()
    """What differs from when the run was started."""


@dataclass(frozen=True, slots=True)
class Resume:
    """The run was stopped, by its user or because healthd gave up: start it again from its newest checkpoint."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """The run is running, or a recovery is restarting it."""


@dataclass(frozen=True, slots=True)
class RunCompleted:
    """The run completed earlier."""


@dataclass(frozen=True, slots=True)
class RefuseStart:
    """The name belongs to another run, or work would be lost."""

    why: str


Plan = Create | Resume | GoOn | RunCompleted | RefuseStart


def plan(spec: RunSpec, job: Job | None, root: Root | None, recoveries: Sequence[Recovery]) -> Plan:
    """What the start of *spec* means, given the objects of an earlier run of the same name."""
    if job is None or root is None:
        return Create(replace=False)
    if spec.fresh:
        return Create(replace=True, attempt=root.attempt + 1)
    identity, options = changed_identity(spec, job), changed_options(spec, job)
    changes = (*identity, *options)
    if changes and spec.accept_changes:
        return Create(replace=True, attempt=root.attempt + 1, changes=changes)
    if identity:
        return RefuseStart(_ways(spec, f"the run {spec.name!r} was begun as something else: {'; '.join(identity)}"))
    if root.ending is RootOutcome.FAILED:
        return Create(replace=True)
    if root.ending is RootOutcome.COMPLETE:
        if size := [change for change in options if change.startswith("--nproc")]:
            return RefuseStart(_ways(spec, f"the run {spec.name!r} has finished, and was begun with {size[0]}"))
        return RunCompleted()
    latest = max(recoveries, key=lambda recovery: recovery.spec.first_attempt, default=None)
    gave_up = latest is not None and latest.status.phase is Phase.GAVE_UP
    if root.suspended and (gave_up or not root.stopped_by):
        return Create(replace=True, attempt=root.attempt + 1, changes=options) if options else Resume()
    if options:
        return RefuseStart(
            f"the run {spec.name!r} was interrupted and goes on as it was begun, with other options "
            f"({'; '.join(options)}): name those, or say --accept-changes"
        )
    return GoOn()


def changed_identity(spec: RunSpec, job: Job) -> tuple[str, ...]:
    """How *spec* differs from *job*: where it is started, what it runs, where it saves."""
    container = job.spec.template.spec.containers[0]
    pairs = (
        ("started in", container.working_dir, str(spec.working_dir)),
        ("command", shlex.join([*container.command, *container.args]), shlex.join(spec.command)),
        (
            "--checkpoint",
            job.metadata.annotations.get(ANNOTATION_CHECKPOINT, ""),
            spec.checkpoint.absolute().as_uri(),
        ),
    )
    return tuple(f"{what} {_plain(was)}, now {_plain(now)}" for what, was, now in pairs if was and was != now)


def changed_options(spec: RunSpec, job: Job) -> tuple[str, ...]:
    """The other options that differ from those *job* was created with."""
    before = _options_in(job.metadata.annotations.get(ANNOTATION_RUN_OPTIONS, options_of(spec)))
    now = _options_in(options_of(spec))
    changed = [name for name in ("--nproc", "--min-nodes", "--grace") if before.get(name) != now.get(name)]
    changes = [(name, before.get(name, ""), now.get(name, "")) for name in changed]
    declared = job.metadata.annotations.get(ANNOTATION_CHECKPOINT_FORMAT, "")
    if declared != spec.checkpoint_format:
        changes.append(("--checkpoint-format", declared, spec.checkpoint_format))
    return tuple(f"{name} {was or 'not set'}, now {will_be or 'not set'}" for name, was, will_be in changes)


def _options_in(text: str) -> dict[str, str]:
    """The options of `options_of` by name. A path in them may contain spaces; the path is not parsed."""
    words = text.split(" ")
    return {name: value for name, value in itertools.pairwise(words) if name.startswith("--")}


def _plain(place: str) -> str:
    return unquote(place.removeprefix("file://")) if place.startswith("file://") else place


def _ways(spec: RunSpec, trouble: str) -> str:
    return (
        f"{trouble}. Nothing was started. To go on from its newest checkpoint in spite of that, add --accept-changes; "
        f"to begin again from nothing, add --fresh (what {spec.checkpoint} holds is moved aside); to run beside it, "
        "choose another --name and another --checkpoint. `healthd runs` lists what there is"
    )


def why_not_fresh(spec: RunSpec, seen: Seen, rejected: Sequence[RejectedCheckpoint], policy: StartFresh) -> str:
    """
    Why a stopped run must not start again at step 0, by the same rule as in a recovery. Empty when it may.

    None of its checkpoints loads. *seen* is the checkpoint with the highest step that ever existed.
    """
    is_unread = any(refused.unread for refused in rejected)
    is_unsaved = not rejected and not seen.anything
    if (policy is StartFresh.ALWAYS and not is_unread) or (policy is StartFresh.NEVER_SAVED and is_unsaved):
        return ""
    where = spec.checkpoint.absolute()
    if rejected:
        trouble = f"no checkpoint at {where} will load; the newest, {rejected[0].path}: {rejected[0].reason}"
    elif seen.anything:
        trouble = f"there is no checkpoint at {where} any more, though {seen} was seen (is it mounted?)"
    else:
        trouble = f"there is no checkpoint at {where}"
    ways = "put a good one there, or add --fresh to begin again from nothing"
    doubt = ", and what cannot be read may be good" if is_unread else ""
    return f"{trouble}; recovery.start_fresh is {policy}{doubt}: {ways}"


def why_not_done(
    spec: RunSpec, left: Seen, found: ChosenCheckpoint | None, rejected: Sequence[RejectedCheckpoint]
) -> str:
    """
    Why a completed run is not simply done: the checkpoint that it *left* is missing or does not load.

    Empty when it loads. For a run that left no checkpoint, nothing can be missing.
    """
    if not left.anything or (found is not None and found.step >= left.step):
        return ""
    torn = next((each for each in rejected if each.step == left.step), rejected[0] if rejected else None)
    where = spec.checkpoint.absolute()
    trouble = f"{torn.path} will not load any more: {torn.reason}" if torn else f"that is not in {where} any more"
    older = f" To go on from {_at(found)}, the newest that loads, choose another --name." if found else ""
    return (
        f"the run {spec.name!r} finished earlier, at {left}, but {trouble}. Nothing was started. Put it "
        f"back (was it moved, is its file system mounted?), or add --fresh to begin again from nothing (what "
        f"{spec.checkpoint} holds is moved aside).{older}"
    )


def _at(checkpoint: ChosenCheckpoint) -> str:
    return f"step {checkpoint.step}" if checkpoint.step >= 0 else checkpoint.path


def options_of(spec: RunSpec) -> str:
    """The options that the user may change between two runs of one name."""
    shrink = f" --min-nodes {spec.min_nodes}" if spec.min_nodes is not None else ""
    where, grace = spec.checkpoint.absolute(), format_duration(spec.grace)
    return f"--nproc {spec.nproc}{shrink} --checkpoint {where} --grace {grace}"


def since_of(job: Job) -> datetime | None:
    """
    Checkpoints saved since this time belong to the run of *job*.

    The Job of an older healthd does not have it: then it is the creation time of the Job.
    """
    try:
        return datetime.fromisoformat(job.metadata.annotations.get(ANNOTATION_SINCE, ""))
    except ValueError:
        return job.metadata.creation_timestamp


def restarts_of(job: Job, root: Root) -> int:
    """How often healthd restarted the run since it was started, or started again from step 0."""
    return max(0, root.attempt - number_or(job.metadata.annotations.get(ANNOTATION_BY_HAND, ""), 0))


def resumed_from(job: Job) -> ChosenCheckpoint:
    """The checkpoint that the current attempt of *job* has to load. Its path is empty when there was none."""
    notes = job.spec.template.metadata.annotations
    step = number_or(notes.get(ANNOTATION_RESUME_STEP, ""), -1)
    return ChosenCheckpoint(path=notes.get(ANNOTATION_RESUME_FROM, ""), step=step)


def job_of(
    spec: RunSpec,
    checkpoint: ChosenCheckpoint,
    attempt: int = 0,
    since: datetime | None = None,
    seen: Seen = NOTHING_SEEN,
    restarts: int | None = None,
) -> Job:
    """
    The Indexed Job of *spec*. Its first attempt resumes from *checkpoint* (or starts from step 0).

    Checkpoints saved since *since* belong to it. *seen* is what is known of earlier checkpoints. *restarts* is how many
    of the earlier attempts were restarts by healthd; None: all of them.
    """
    hint = StartHint(recovery="", attempt=attempt, checkpoint=checkpoint, placement={})
    notes = {key: value for key, value in hint_annotations(hint).items() if value is not None}
    options = {
        ANNOTATION_RESTART: "enabled",
        ANNOTATION_ATTEMPT: str(attempt),
        ANNOTATION_CHECKPOINT: spec.checkpoint.absolute().as_uri(),
        ANNOTATION_RUN_OPTIONS: options_of(spec),
    }
    if since is not None:
        options[ANNOTATION_SINCE] = since.isoformat()
    if restarts is not None:
        options[ANNOTATION_BY_HAND] = str(attempt - restarts)
    if seen.anything:
        options[ANNOTATION_SEEN] = note_of(seen)
    if spec.checkpoint_format:
        options[ANNOTATION_CHECKPOINT_FORMAT] = spec.checkpoint_format
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
