"""
StatefulSets, stopped with 0 replicas and started with as many as before; with a launcher Job or without.

The old number is stored in an annotation, written together with the 0. While there are no pods, the template may be
changed without a rolling update. A StatefulSet never ends: a gang that has a launcher ends when the launcher ends. The
launcher (`healthd.dev/launcher`, its pods labelled with the gang's name) is suspended before the workers stop, and is
resumed when all workers are ready.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from healthd.cluster.port import Cluster, NotFound, Reader
from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_LAUNCHER,
    ANNOTATION_LAUNCHER_OF,
    ANNOTATION_REPLICAS,
    ANNOTATION_STOPPED_BY,
    LABEL_GANG,
    Job,
    JobManifest,
    Pod,
    StatefulSet,
    StatefulSetManifest,
)
from healthd.core.recovery.gang import Elastic, Numbered, Root, StartHint
from healthd.core.untrusted import LARGEST_GANG, InvalidText, read_number, read_text
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.annotations import (
    LONGEST_NAME,
    attempt_on,
    checked_world,
    concerns_us,
    hint_annotations,
    hint_of,
    start_notes,
    stop_notes,
    template_patch,
)
from healthd.gangs.job import is_controlled, read_job
from healthd.gangs.kueue import queue_trouble
from healthd.gangs.started_jobs import patch_template
from healthd.gangs.volumes import read_mounts


class StatefulSetAdapter(GangAdapter[StatefulSet]):
    """The adapter of apps/v1 StatefulSet."""

    kind = StatefulSet

    def is_root(self, obj: StatefulSet) -> bool:
        """Marked for healthd, with no controller that restarts it."""
        return concerns_us(obj.metadata) and not is_controlled(obj.metadata)

    def with_members(self, obj: StatefulSet, root: Root) -> Root:
        """*root* without what its launcher says; `complete` adds that."""
        is_observed, world = _is_observed(obj), checked_world(_replicas(obj))
        launcher = read_text(obj.metadata.annotations.get(ANNOTATION_LAUNCHER, ""), LONGEST_NAME)
        return dataclasses.replace(
            root,
            suspended=obj.spec.replicas == 0,
            stopped=obj.spec.replicas == 0 and is_observed and obj.status.replicas == 0,
            world=world,
            indexes=(Numbered("", (world,)),),
            elastic=Elastic(world),
            options=dataclasses.replace(root.options, restart=root.options.restart and not loses_volumes(obj)),
            companions={launcher: ""} if launcher else {},
            hint_labels={LABEL_GANG: root.ref.name},
            mounts=read_mounts(obj.spec.template.spec),
            has_begun=is_observed,
            invalid=(*root.invalid, *queue_trouble(obj.metadata)),
        )

    async def complete(self, cluster: Reader, root: Root) -> Root:
        """Add the launcher, which is a member as well, and the only member that ends."""
        for name in root.companions:
            try:
                return _with_launcher(root, await cluster.get(Job, name, root.ref.namespace))
            except NotFound:
                return dataclasses.replace(root, companions={})
        return root

    def root_name(self, pod: Pod) -> str | None:
        """The StatefulSet that created *pod*, or the one whose launcher's label it carries."""
        owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
        if owner is None or owner.kind not in ("StatefulSet", "Job"):
            return None
        return owner.name if owner.kind == "StatefulSet" else pod.metadata.labels.get(LABEL_GANG)

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Suspend the launcher, which would fail without its workers, then stop the workers. Each is one write."""
        for name, version in root.companions.items():
            mark = {ANNOTATION_STOPPED_BY: recovery, ANNOTATION_LAUNCHER_OF: root.ref.name}
            await _patch_launcher(cluster, root, name, version, {"suspend": True}, mark)
        stateful = await cluster.get(StatefulSet, root.ref.name, root.ref.namespace)
        notes = {**stop_notes(root, recovery), ANNOTATION_REPLICAS: str(_replicas(stateful))}
        await self.patch(cluster, root, {"metadata": {"annotations": notes}, "spec": {"replicas": 0}})

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Set as many replicas as before, or as the placement has, with the hint on the template, in one write."""
        stateful = await cluster.get(StatefulSet, root.ref.name, root.ref.namespace)
        whole = await cluster.get(StatefulSetManifest, root.ref.name, root.ref.namespace)
        template = template_patch(whole.spec.get("template", {}), hint_annotations(hint), root.ref)
        spec = {"replicas": root.elastic_members(hint.placement) or _replicas(stateful), "template": template}
        notes = {**start_notes(hint), ANNOTATION_REPLICAS: None}
        await self.patch(cluster, root, {"metadata": {"annotations": notes}, "spec": spec})

    async def maintain(self, cluster: Cluster, root: Root, pods: Sequence[Pod]) -> None:  # noqa: ARG002 - protocol
        """Resume the launcher when all workers are ready."""
        for name in root.companions if not root.suspended else ():
            job = await cluster.get(Job, name, root.ref.namespace)
            stateful = await cluster.get(StatefulSet, root.ref.name, root.ref.namespace)
            if _waits_for(stateful, job) and _is_ready(stateful) and read_job(job).stopped:
                hint = hint_of(stateful.spec.template)
                whole = await cluster.get(JobManifest, name, root.ref.namespace)
                spec = {"suspend": False, "template": template_patch(whole.spec.get("template", {}), hint, root.ref)}
                notes = {ANNOTATION_STOPPED_BY: None, ANNOTATION_ATTEMPT: str(root.attempt)}
                await patch_template(cluster, job.metadata, {"metadata": {"annotations": notes}, "spec": spec})


def loses_volumes(stateful: StatefulSet) -> bool:
    """A scale-down would delete the volumes of its pods, and perhaps the checkpoints: so it is never stopped."""
    return stateful.spec.persistent_volume_claim_retention_policy.when_scaled == "Delete"


def _replicas(stateful: StatefulSet) -> int:
    """The replicas of a running gang; while healthd has stopped it, the number from before the stop."""
    notes = stateful.metadata.annotations
    if stateful.spec.replicas == 0 and ANNOTATION_STOPPED_BY in notes:
        return _replicas_before(notes.get(ANNOTATION_REPLICAS, "0"))
    return stateful.spec.replicas


def _replicas_before(text: str) -> int:
    try:
        return read_number(text, most=LARGEST_GANG)
    except InvalidText as error:
        raise InvalidText(f"{ANNOTATION_REPLICAS}: {error}") from None


def _is_observed(stateful: StatefulSet) -> bool:
    return stateful.status.observed_generation >= stateful.metadata.generation


def _is_ready(stateful: StatefulSet) -> bool:
    return _is_observed(stateful) and stateful.status.ready_replicas >= stateful.spec.replicas > 0


def _with_launcher(root: Root, job: Job) -> Root:
    launcher, name = read_job(job), root.ref.name
    trouble = [*launcher.invalid]
    if job.spec.template.metadata.labels.get(LABEL_GANG) != name:
        # Its pods would be no members: a restart would not wait for their end. The admission policy refuses the stop.
        trouble.append(f"its pod template has no label {LABEL_GANG}: {name}, so it is no launcher of this gang")
    return dataclasses.replace(
        root,
        invalid=(*root.invalid, *(f"job/{job.metadata.name}: {why}" for why in trouble)),
        world=root.world + launcher.world,
        suspended=root.suspended or (launcher.suspended and not _is_held_by_us(job)),
        stopped=root.stopped and (launcher.stopped or bool(launcher.ending)),
        ending=launcher.ending,
        started_at=launcher.started_at,
        mounts=tuple(dict.fromkeys((*root.mounts, *launcher.mounts))),
        companions={job.metadata.name: job.metadata.resource_version},
    )


def _is_held_by_us(job: Job) -> bool:
    return job.spec.suspend and ANNOTATION_STOPPED_BY in job.metadata.annotations


def _waits_for(stateful: StatefulSet, job: Job) -> bool:
    """
    The workers were started again after the launcher was stopped with them.

    A stop that was interrupted after the launcher leaves workers that run, and must still be finished; these workers
    have no mark of a stop, and no later attempt than the launcher.
    """
    notes = stateful.metadata.annotations
    is_later = attempt_on(stateful.metadata) > attempt_on(job.metadata)
    return _is_held_by_us(job) and (is_later or ANNOTATION_STOPPED_BY in notes)


async def _patch_launcher(
    cluster: Cluster, root: Root, name: str, version: str, spec: Mapping[str, object], notes: Mapping[str, str | None]
) -> None:
    patch = {"metadata": {"annotations": dict(notes)}, "spec": spec}
    await cluster.patch(Job, name, patch, namespace=root.ref.namespace, resource_version=version)
