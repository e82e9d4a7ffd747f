"""
Indexed batch/v1 Jobs, stopped and started by `suspend`.

Suspending deletes the pods without counting them against `backoffLimit`. While suspended, the annotations and
scheduling directives of the template may be changed, its env may not: the hint travels as annotations.
"""

from __future__ import annotations

import json

import msgspec

from healthd.cluster.port import Cluster
from healthd.core.gang import Ending, GangOptions, Root, StartHint
from healthd.core.objects import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_MAX_NO_ADVANCE,
    ANNOTATION_MIN_NODES,
    ANNOTATION_PLACEMENT,
    ANNOTATION_PROGRESS,
    ANNOTATION_RESTART,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    ANNOTATION_STOPPED_BY,
    TAINT_RESERVED,
    GangRef,
    Job,
    Pod,
    Toleration,
)
from healthd.core.progress import NO_PROGRESS, Progress

LABEL_JOB_NAME = "batch.kubernetes.io/job-name"
"""On every pod that the Job controller makes."""


class JobAdapter:
    """The adapter of batch/v1 Job."""

    kind = Job

    def read(self, obj: Job) -> Root:
        """The root as the decisions see it."""
        notes = obj.metadata.annotations
        return Root(
            ref=GangRef(kind="Job", name=obj.metadata.name, namespace=obj.metadata.namespace, uid=obj.metadata.uid),
            resource_version=obj.metadata.resource_version,
            suspended=obj.spec.suspend,
            # Not `terminating`: it counts pods that only our own finalizer keeps.
            stopped=obj.spec.suspend and "Suspended" in _standing(obj) and not obj.status.active,
            stopped_by=notes.get(ANNOTATION_STOPPED_BY, ""),
            attempt=_number(notes.get(ANNOTATION_ATTEMPT)) or 0,
            world=obj.spec.completions or obj.spec.parallelism,
            placement=_placement(obj.spec.template.metadata.annotations.get(ANNOTATION_PLACEMENT)),
            ending=_ending(obj),
            deleting=obj.metadata.deletion_timestamp is not None,
            options=_options(notes),
            progress=_progress(notes.get(ANNOTATION_PROGRESS)),
            started_at=obj.status.start_time,
            has_begun=obj.status.start_time is not None,
        )

    def root_name(self, pod: Pod) -> str | None:
        """The Job that made *pod*."""
        return pod.metadata.labels.get(LABEL_JOB_NAME)

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Suspend, and say whose doing it is, in one write."""
        patch = {"metadata": {"annotations": {ANNOTATION_STOPPED_BY: recovery}}, "spec": {"suspend": True}}
        await self._patch(cluster, root, patch)

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Resume with the hint on the template. The world follows the placement, which may have shrunk."""
        job = await cluster.get(Job, root.ref.name, root.ref.namespace)
        # A merge patch replaces the whole list: what the owner tolerates must be in it, too.
        tolerations = [t for t in job.spec.template.spec.tolerations if t.key != TAINT_RESERVED]
        tolerations.append(Toleration(key=TAINT_RESERVED, operator="Equal", value=root.ref.name[:63]))
        template = {
            "metadata": {"annotations": hint_annotations(hint)},
            "spec": {"tolerations": msgspec.to_builtins(tolerations)},
        }
        world = len(hint.placement) or root.world
        patch = {
            "metadata": {"annotations": {ANNOTATION_STOPPED_BY: None, ANNOTATION_ATTEMPT: str(hint.attempt)}},
            "spec": {"suspend": False, "parallelism": world, "completions": world, "template": template},
        }
        await self._patch(cluster, root, patch)

    async def _patch(self, cluster: Cluster, root: Root, patch: dict[str, object]) -> None:
        await cluster.patch(
            Job,
            root.ref.name,
            patch,
            namespace=root.ref.namespace,
            resource_version=root.resource_version,
            uid=root.ref.uid,
        )


def hint_annotations(hint: StartHint) -> dict[str, str | None]:
    """The hint as it stands on a pod template; None takes an older hint away."""
    return {
        ANNOTATION_ATTEMPT: str(hint.attempt),
        ANNOTATION_RESUME_FROM: hint.checkpoint.path or None,
        ANNOTATION_RESUME_STEP: str(hint.checkpoint.step) if hint.checkpoint.path else None,
        ANNOTATION_PLACEMENT: json.dumps(dict(hint.placement)) if hint.placement else None,
    }


def _standing(job: Job) -> set[str]:
    return {condition.type for condition in job.status.conditions if condition.status == "True"}


def _ending(job: Job) -> Ending:
    standing = _standing(job)
    if standing & {"Complete", "SuccessCriteriaMet"}:
        return Ending.COMPLETE
    return Ending.FAILED if standing & {"Failed", "FailureTarget"} else Ending.NOT_ENDED


def _options(notes: dict[str, str]) -> GangOptions:
    return GangOptions(
        restart=notes.get(ANNOTATION_RESTART) == "enabled",
        checkpoint=notes.get(ANNOTATION_CHECKPOINT, ""),
        checkpoint_format=notes.get(ANNOTATION_CHECKPOINT_FORMAT, ""),
        max_no_advance=_number(notes.get(ANNOTATION_MAX_NO_ADVANCE)),
        min_nodes=_number(notes.get(ANNOTATION_MIN_NODES)),
    )


def _placement(raw: str | None) -> dict[str, str]:
    try:
        return msgspec.json.decode(raw, type=dict[str, str]) if raw else {}
    except msgspec.MsgspecError:
        return {}


def _progress(raw: str | None) -> Progress:
    try:
        return msgspec.json.decode(raw, type=Progress) if raw else NO_PROGRESS
    except msgspec.MsgspecError:
        return NO_PROGRESS


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
