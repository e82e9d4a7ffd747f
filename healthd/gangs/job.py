"""
batch/v1 Jobs, Indexed or not, stopped and started by `suspend`.

A suspend deletes the pods and does not count them against `backoffLimit`. While a Job is suspended, the annotations and
scheduling directives of the template may be changed, its env may not. So the hint is written as annotations.

The affinity of the template is not changed. A bad node is out of service or tainted, so the scheduler avoids it by
itself; the reserved spare needs the toleration. Our terms in the owner's affinity would stay after the recovery, and
the kinds above Job refuse them anyway: where they are wanted, the admission policy adds them to the pods.

The hint on the template also stays after the recovery, and cannot be changed while the Job runs. It becomes old: a pod
that the Job replaces by itself would resume from an old checkpoint. Where the admission policy is installed, it removes
the old hint from new pods. Where it is not, healthd removes it only from a Job that its user has suspended, before the
user resumes it. In that case JobSets and StatefulSets keep their old hint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from healthd.cluster.port import Cluster, Forbidden, Invalid, Labels
from healthd.core.api import (
    ANNOTATION_LAUNCHER_OF,
    ANNOTATION_RESUME_FROM,
    ANNOTATION_RESUME_STEP,
    ANNOTATION_RUN_OPTIONS,
    Job,
    JobManifest,
    JobSpec,
    ObjectMeta,
    Pod,
)
from healthd.core.api.kubernetes.workloads import may_own_a_root
from healthd.core.recovery.gang import Elastic, Root, RootOutcome, StartHint
from healthd.core.recovery.terms import KUBERNETES, ONE_SERVER
from healthd.core.untrusted import shown
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.annotations import (
    checked_world,
    concerns_us,
    hint_annotations,
    start_notes,
    stop_notes,
    template_patch,
)
from healthd.gangs.rebuilding import JOB
from healthd.gangs.started_jobs import patch_template
from healthd.gangs.volumes import read_mounts

LABEL_JOB_NAME = "batch.kubernetes.io/job-name"
"""On every pod that the Job controller creates."""


class JobAdapter(GangAdapter[Job]):
    """The adapter of batch/v1 Job."""

    kind = Job
    rebuild_rules = JOB
    manifest = JobManifest

    def is_root(self, obj: Job) -> bool:
        """Marked for healthd, with no controller that restarts it, and not the launcher of another gang."""
        is_launcher = ANNOTATION_LAUNCHER_OF in obj.metadata.annotations
        return concerns_us(obj.metadata) and not is_controlled(obj.metadata) and not is_launcher

    def with_members(self, obj: Job, root: Root) -> Root:
        """A gang of indexed pods may shrink; without an index it is not known which pod is left out."""
        indexed, world = obj.spec.completion_mode == "Indexed", checked_world(world_of(obj.spec))
        return dataclasses.replace(
            root,
            suspended=obj.spec.suspend,
            # Not `terminating`: it counts pods that only healthd's finalizer keeps.
            stopped=obj.spec.suspend and "Suspended" in _standing(obj) and not obj.status.active,
            world=world,
            indexes=None if indexed else (),
            ending=_ending(obj),
            elastic=Elastic(world) if indexed else None,
            mounts=read_mounts(obj.spec.template.spec),
            template_resumes_from=obj.spec.template.metadata.annotations.get(ANNOTATION_RESUME_FROM, ""),
            started_at=obj.status.start_time,
            has_begun=obj.status.start_time is not None,
            invalid=(*root.invalid, *managed_elsewhere(obj.spec.managed_by, "kubernetes.io/job-controller")),
            terms=ONE_SERVER if ANNOTATION_RUN_OPTIONS in obj.metadata.annotations else KUBERNETES,
        )

    def root_name(self, pod: Pod) -> str | None:
        """The Job that created *pod*."""
        return pod.metadata.labels.get(LABEL_JOB_NAME)

    def pod_labels(self, name: str) -> Labels | None:
        """The label with the name of the Job."""
        return {LABEL_JOB_NAME: name}

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Suspend the Job and record *recovery* on it, in one write."""
        await self.patch(
            cluster, root, {"metadata": {"annotations": stop_notes(root, recovery)}, "spec": {"suspend": True}}
        )

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Resume with the hint on the template, in one write. The size follows a placement that has shrunk."""
        job = await cluster.get(JobManifest, root.ref.name, root.ref.namespace)
        template = template_patch(job.spec.get("template", {}), hint_annotations(hint), root.ref)
        spec: dict[str, Any] = {"suspend": False, "template": template}
        if (size := root.elastic_members(hint.placement)) not in (None, root.world):
            spec |= {"parallelism": size, "completions": size}
        patch = {"metadata": {"annotations": start_notes(hint)}, "spec": spec}
        read = replace(job.metadata, uid=root.ref.uid, resource_version=root.resource_version)
        await patch_template(cluster, read, patch)

    async def maintain(self, cluster: Cluster, root: Root, pods: Sequence[Pod]) -> None:  # noqa: ARG002 - protocol
        """Remove an old hint from the template of a Job that its user has suspended and may resume weeks later."""
        if root.stopped and not root.stopped_by and root.template_resumes_from:
            notes = {ANNOTATION_RESUME_FROM: None, ANNOTATION_RESUME_STEP: None}
            with suppress(Invalid, Forbidden):  # another controller owns the template; the gang is guarded anyway
                await self.patch(cluster, root, {"spec": {"template": {"metadata": {"annotations": notes}}}})


def read_job(job: Job) -> Root:
    """Any Job as a root for decisions."""
    return JobAdapter().read_any(job)


def world_of(spec: JobSpec) -> int:
    """Members that run at once. Without an index all pods are alike, and `completions` may be higher than this."""
    if spec.completion_mode == "Indexed":
        return spec.completions or spec.parallelism
    return min(spec.parallelism, spec.completions or spec.parallelism)


def is_controlled(meta: ObjectMeta) -> bool:
    """Another object creates and restarts it: that object is the root, or healthd does not manage it."""
    return any(owner.controller and not may_own_a_root(owner) for owner in meta.owner_references)


def managed_elsewhere(manager: str, usual: str) -> tuple[str, ...]:
    """Why a root that another controller than the *usual* one runs is left alone; empty where that one does."""
    if manager in ("", usual):
        return ()
    return (f"it is managed by {shown(manager)} and not by {usual}, such as MultiKueue in another cluster",)


def _standing(job: Job) -> set[str]:
    return {condition.type for condition in job.status.conditions if condition.status == "True"}


def _ending(job: Job) -> RootOutcome:
    standing = _standing(job)
    if standing & {"Complete", "SuccessCriteriaMet"}:
        return RootOutcome.COMPLETE
    return RootOutcome.FAILED if standing & {"Failed", "FailureTarget"} else RootOutcome.NOT_ENDED
