"""
JobSets, stopped and started by `suspend`.

A suspended JobSet keeps its Jobs, which are suspended too, and no counter of its failure policy changes. Meanwhile only
annotations, labels, node selector and tolerations of the pod templates may be changed; affinity and env are refused. On
resume, it merges them into the templates of its Jobs: a key can be overwritten there, never removed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from healthd.cluster.port import Cluster, Labels
from healthd.core.api import JobSet, JobSetManifest, JobSpec, Pod
from healthd.core.recovery.gang import ClaimMount, Numbered, Root, RootOutcome, StartHint
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.annotations import (
    checked_world,
    concerns_us,
    hint_annotations,
    restarted,
    start_notes,
    stop_notes,
    tolerating_reservation,
)
from healthd.gangs.job import is_controlled, managed_elsewhere, world_of
from healthd.gangs.rebuilding import JOBSET
from healthd.gangs.volumes import read_mounts

LABEL_JOBSET = "jobset.sigs.k8s.io/jobset-name"
LABEL_JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
"""On every pod below a JobSet."""


class JobSetAdapter(GangAdapter[JobSet]):
    """The adapter of jobset.x-k8s.io JobSet."""

    kind = JobSet
    rebuild_rules = JOBSET
    manifest = JobSetManifest

    def is_root(self, obj: JobSet) -> bool:
        """Marked for healthd, with no controller that restarts it."""
        return concerns_us(obj.metadata) and not is_controlled(obj.metadata)

    def with_members(self, obj: JobSet, root: Root) -> Root:
        """The size of its Jobs is fixed."""
        parts = list(_parts(obj))
        conditions = {condition.type: condition for condition in obj.status.conditions}
        held = conditions.get("Suspended")
        is_held = held is not None and held.status == "True"
        return dataclasses.replace(
            root,
            suspended=obj.spec.suspend,
            stopped=obj.spec.suspend and is_held and not any(jobs.active for jobs in obj.status.replicated_jobs_status),
            own_restarts=obj.status.restarts,
            world=checked_world(sum(part.replicas * part.members for part in parts)),
            indexes=tuple(Numbered(part.name, (part.replicas, part.members)) for part in parts if part.is_indexed),
            ending=_ending(obj),
            started_at=held.last_transition_time if held and not is_held else obj.metadata.creation_timestamp,
            mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.mounts)),
            has_begun=not is_held,
            invalid=(
                *root.invalid,
                *managed_elsewhere(obj.spec.managed_by, "jobset.sigs.k8s.io/jobset-controller"),
            ),
        )

    def root_name(self, pod: Pod) -> str | None:
        """The JobSet above the Job that created *pod*."""
        return pod.metadata.labels.get(LABEL_JOBSET)

    def pod_labels(self, name: str) -> Labels | None:
        """The label with the name of the JobSet."""
        return {LABEL_JOBSET: name}

    def root_uid(self, pod: Pod) -> str:
        """Read from a label, because the pod's owner is a Job."""
        return pod.metadata.labels.get(LABEL_JOBSET_UID, "")

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Suspend the JobSet and record *recovery* on it, in one write."""
        await self.patch(
            cluster, root, {"metadata": {"annotations": stop_notes(root, recovery)}, "spec": {"suspend": True}}
        )

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Resume with the hint on every pod template, in one write."""
        jobset = await cluster.get(JobSet, root.ref.name, root.ref.namespace)
        jobs = [_hinted(job, root, hint) for job in jobset.spec.replicated_jobs]
        spec = {"suspend": False, "replicatedJobs": jobs}
        await self.patch(cluster, root, {"metadata": {"annotations": start_notes(hint)}, "spec": spec})


class _Part(NamedTuple):
    """One of the replicatedJobs: *replicas* Jobs of so many *members* each."""

    name: str
    replicas: int
    members: int
    is_indexed: bool
    mounts: tuple[ClaimMount, ...]


def _parts(jobset: JobSet) -> Iterator[_Part]:
    for job in jobset.spec.replicated_jobs:
        # Where a Job does not set its mode, a JobSet makes it Indexed.
        spec = msgspec.convert({"completionMode": "Indexed", **job["template"]["spec"]}, JobSpec)
        replicas, members = checked_world(job.get("replicas", 1)), checked_world(world_of(spec))
        mounts = read_mounts(spec.template.spec)
        yield _Part(job["name"], replicas, members, spec.completion_mode == "Indexed", mounts)


def _hinted(job: dict[str, Any], root: Root, hint: StartHint) -> dict[str, Any]:
    """
    One entry of replicatedJobs with the hint on its pod template. All other fields stay as they were read.

    Where there is no new value, an older hint is set to empty: if it were removed here, the Job would keep it.
    """
    template = job["template"]["spec"]["template"]
    notes: dict[str, str] = template.get("metadata", {}).get("annotations", {})
    hints = {key: value or "" for key, value in hint_annotations(hint).items() if value is not None or key in notes}
    pods = template["spec"]
    metadata = template.get("metadata", {})
    labels = {**metadata.get("labels", {}), **restarted(root.ref)}
    hinted = {
        **template,
        "metadata": {**metadata, "labels": labels, "annotations": {**notes, **hints}},
        "spec": {**pods, "tolerations": tolerating_reservation(pods, root.ref)},
    }
    job_spec = {**job["template"]["spec"], "template": hinted}
    return {**job, "template": {**job["template"], "spec": job_spec}}


def _ending(jobset: JobSet) -> RootOutcome:
    standing = {condition.type for condition in jobset.status.conditions if condition.status == "True"}
    if "Completed" in standing:
        return RootOutcome.COMPLETE
    return RootOutcome.FAILED if "Failed" in standing else RootOutcome.NOT_ENDED
