"""
Plain pods, as a script or Airflow creates them: without a controller, grouped by the label `healthd.dev/gang`.

Their root is an object of healthd's own, a PodGang. It stores the manifest of every member while the pods are alive;
after they are dead it may be too late. A stop deletes the pods. A start creates them again under their names, each
behind a scheduling gate, then writes the attempt to the PodGang, and only then opens the gates. A controller that is
deposed in between fails at that write, and the pods that it created never run.

With `healthd.dev/recreate: owner` the pods' owner creates them again; healthd deletes them and publishes the hint.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from healthd.cluster.port import AlreadyExists, Cluster, Conflict, Labels, NotFound, Reader
from healthd.core.api import (
    ANNOTATION_ATTEMPT,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_FENCE_TIMEOUT,
    ANNOTATION_MADE_BY,
    ANNOTATION_MAX_NO_ADVANCE,
    ANNOTATION_RECREATE,
    ANNOTATION_RESTART,
    ANNOTATION_STOPPED_BY,
    LABEL_GANG,
    LABEL_QUEUE,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodGang,
    PodGangMember,
    PodGangSpec,
    PodManifest,
)
from healthd.core.recovery.gang import Root, RootOutcome, StartHint
from healthd.core.recovery.members import attempt_of, is_plain_member, will_not_run
from healthd.core.untrusted import InvalidText, read_text, shown
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.airflow import airflow_trouble
from healthd.gangs.annotations import (
    LONGEST_NAME,
    attempt_on,
    checked_world,
    hint_annotations,
    start_notes,
)
from healthd.gangs.kueue import queue_trouble
from healthd.gangs.manifests import GATE, made_again, mounts_in, packed, remembered, unpacked

MOST_ASKED = 16
"""Names of members without a pod that are looked for at once, a request each. One that is taken says enough."""
OPTIONS = (
    ANNOTATION_RESTART,
    ANNOTATION_CHECKPOINT,
    ANNOTATION_CHECKPOINT_FORMAT,
    ANNOTATION_MAX_NO_ADVANCE,
    ANNOTATION_FENCE_TIMEOUT,
    ANNOTATION_RECREATE,
)
"""The annotations that the owner writes on the pods (on any of them), and that are copied to the PodGang."""


class PodGangAdapter(GangAdapter[PodGang]):
    """The adapter of plain pods."""

    kind = PodGang
    makes_roots = True

    def is_root(self, obj: PodGang) -> bool:  # noqa: ARG002 - the protocol's
        """Always true: healthd itself creates every PodGang."""
        return True

    def with_members(self, obj: PodGang, root: Root) -> Root:
        """*root* without what its pods say; `complete` adds that."""
        by_owner, names = _is_made_by_owner(obj), [read_text(each.name, LONGEST_NAME) for each in obj.spec.members]
        checked_world(len(names))
        return dataclasses.replace(
            root,
            suspended=bool(root.stopped_by),
            stopped=bool(root.stopped_by),
            world=checked_world(obj.spec.size),
            indexes=() if by_owner else tuple(names),
            companions={member.name: member.uid for member in obj.spec.members},
            mounts=mounts_in(obj.spec.manifests),
            hint_labels={LABEL_GANG: root.ref.name},
        )

    async def complete(self, cluster: Reader, root: Root) -> Root:
        """Add what its pods say: all have succeeded, some are gone, or their user has deleted them all."""
        if root.suspended:
            return root
        pods = await plain_members(cluster, root)
        done = sum(pod.status.phase == "Succeeded" for pod in pods if attempt_of(pod) == root.attempt)
        names = {pod.metadata.name for pod in pods}
        missing = [name for name in root.seats if name not in names]
        taken = await self.taken_seats(cluster, root, missing) if pods else ()
        is_gone = not pods and any(root.companions.values())
        ending = RootOutcome.COMPLETE if 0 < root.world <= done else RootOutcome.NOT_ENDED
        alone = () if root.queue else pods
        queued = tuple(dict.fromkeys(why for pod in alone for why in queue_trouble(pod.metadata)))
        by_airflow = {why for pod in pods for why in airflow_trouble(pod.metadata.labels)} if root.indexes else set()
        invalid = (*root.invalid, *queued, *sorted(by_airflow), *taken)
        deleting = root.deleting or is_gone
        return dataclasses.replace(root, ending=ending, deleting=deleting, gone=tuple(missing), invalid=invalid)

    async def taken_seats(self, cluster: Reader, root: Root, seats: Collection[str]) -> tuple[str, ...]:
        """
        A pod without the label, or one that has lost it, runs on while the others are stopped. `MOST_ASKED` at most: of
        a gang that is being made or deleted, thousands may be without a pod.
        """
        asked = [*seats][:MOST_ASKED]
        return tuple([why for name in asked if (why := await _name_trouble(cluster, root, name))])

    def root_name(self, pod: Pod) -> str | None:
        """The value of its label, when the pod has no controller."""
        return pod.metadata.labels.get(LABEL_GANG) if is_plain_member(pod) else None

    def pod_labels(self, name: str) -> Labels | None:
        """The label with the name of the gang."""
        return {LABEL_GANG: name}

    async def discover(self, cluster: Cluster, namespace: str, name: str, pods: Sequence[Pod]) -> None:
        """Create the PodGang *name*, when one of its *pods* asks for restarts."""
        if not any(pod.metadata.annotations.get(ANNOTATION_RESTART) == "enabled" for pod in pods):
            return
        found = await _manifests(cluster, namespace, name)
        if not found:
            return  # all are being deleted: nothing is left to be guarded
        notes = {key: value for each in found for key, value in each.metadata.annotations.items() if key in OPTIONS}
        attempt = max((attempt_on(each.metadata) for each in found), default=0)
        meta = ObjectMeta(
            name=name,
            namespace=namespace,
            labels={LABEL_GANG: name, **_queue_of(found)},
            annotations={**notes, **({ANNOTATION_ATTEMPT: str(attempt)} if attempt else {})},
            owner_references=[_owner(each.metadata) for each in found],
        )
        try:
            await cluster.create(PodGang(metadata=meta, spec=_memory(found, PodGangSpec())))
        except AlreadyExists:
            return

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Record *recovery*, remove the owner references so that the PodGang stays, then delete the pods."""
        notes = {ANNOTATION_STOPPED_BY: recovery}
        await self.patch(cluster, root, {"metadata": {"annotations": notes, "ownerReferences": None}})
        await _delete_all(cluster, root)

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Create every pod again, record the attempt, and let the pods run. Pods that already exist are kept."""
        gang = await cluster.get(PodGang, root.ref.name, root.ref.namespace)
        notes: dict[str, str | None] = {**start_notes(hint), **hint_annotations(hint)}
        if _is_made_by_owner(gang):
            awaited = [msgspec.structs.replace(member, uid="") for member in gang.spec.members]
            spec = {"members": msgspec.to_builtins(awaited)}
            await self.patch(cluster, root, {"metadata": {"annotations": notes}, "spec": spec})
            return
        await self.clear(cluster, root, hint)
        manifests = unpacked(gang.spec.manifests)
        made = [await _make(cluster, made_again(name, manifests[name], root.ref, hint)) for name in sorted(manifests)]
        members = [PodGangMember(name=meta.name, uid=meta.uid) for meta in made]
        patch = {
            "metadata": {"annotations": notes, "ownerReferences": msgspec.to_builtins([_owner(meta) for meta in made])},
            "spec": {"members": msgspec.to_builtins(members)},
        }
        started = self.read(await self.patch(cluster, root, patch))
        if started is not None:
            await self.maintain(cluster, started, await plain_members(cluster, started))

    async def clear(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Delete gated pods that another start left. Raises Conflict while any other pod could still run."""
        for pod in await plain_members(cluster, root):
            mine = attempt_of(pod) == hint.attempt and pod.metadata.annotations.get(ANNOTATION_MADE_BY) == hint.recovery
            if mine or will_not_run(pod):
                continue
            if not _is_gated(pod):
                raise Conflict(f"{pod.metadata.name} of attempt {attempt_of(pod)} is still there")
            await _delete(cluster, pod.metadata)

    async def maintain(self, cluster: Cluster, root: Root, pods: Sequence[Pod]) -> None:
        """Delete the remaining pods of a stopped gang; open the gates of a started one; take in new pods."""
        if root.stopped_by:
            fresh = await self.find(cluster, root.ref) if any(not _is_going(pod) for pod in pods) else None
            if fresh is not None and fresh.stopped_by:
                await _delete_all(cluster, fresh)
            return
        for pod in pods:
            if _is_gated(pod) and attempt_of(pod) == root.attempt and not _is_going(pod):
                await _open_gate(cluster, pod)
            elif _is_gated(pod) and attempt_of(pod) < root.attempt:
                await _delete(cluster, pod.metadata)
        strangers = [pod for pod in pods if _is_stranger(pod, root)]
        if strangers:
            await self._welcome(cluster, root, strangers)

    async def _welcome(self, cluster: Cluster, root: Root, strangers: Sequence[Pod]) -> None:
        """The owner created more members, or recreated one: they belong to the current attempt from now on."""
        late = [pod for pod in strangers if attempt_of(pod) < root.attempt]
        for pod in late:
            notes = {"metadata": {"annotations": {ANNOTATION_ATTEMPT: str(root.attempt)}}}
            meta = pod.metadata
            await cluster.patch(Pod, meta.name, notes, namespace=meta.namespace, uid=meta.uid)
        gang = await cluster.get(PodGang, root.ref.name, root.ref.namespace)
        found = await _manifests(cluster, root.ref.namespace, root.ref.name)
        owners = msgspec.to_builtins([_owner(each.metadata) for each in found])
        spec = msgspec.to_builtins(_memory(found, gang.spec, forget=_is_made_by_owner(gang)))
        await self.patch(cluster, root, {"metadata": {"ownerReferences": owners}, "spec": spec})


def _is_made_by_owner(gang: PodGang) -> bool:
    """Whether the owner recreates the pods. Raises Unreadable when it is not known: owner and healthd would do it."""
    text = gang.metadata.annotations.get(ANNOTATION_RECREATE, "")
    if text not in ("", "owner"):
        raise InvalidText(f"{ANNOTATION_RECREATE}: {shown(text)} is not 'owner'")
    return text == "owner"


def _is_going(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is not None


def _is_gated(pod: Pod) -> bool:
    return any(gate.name == GATE for gate in pod.spec.scheduling_gates)


def _is_stranger(pod: Pod, root: Root) -> bool:
    """The pod was not created by healthd, and is not in the PodGang yet."""
    notes, meta = pod.metadata.annotations, pod.metadata
    return not (_is_going(pod) or ANNOTATION_MADE_BY in notes or root.companions.get(meta.name) == meta.uid)


def _memory(found: Sequence[PodManifest], known: PodGangSpec, *, forget: bool = False) -> PodGangSpec:
    """
    *known*, and what is new in *found*. With *forget*, names without a pod are dropped.

    The manifest of a pod that healthd created is not stored again: its hint was for one attempt.
    """
    manifests = {} if forget else unpacked(known.manifests)
    uids = {} if forget else {member.name: member.uid for member in known.members}
    for pod in found:
        if ANNOTATION_MADE_BY not in pod.metadata.annotations or pod.metadata.name not in manifests:
            manifests[pod.metadata.name] = remembered(pod)
        uids[pod.metadata.name] = pod.metadata.uid
    members = [PodGangMember(name=name, uid=uids[name]) for name in sorted(uids)]
    return PodGangSpec(members=members, size=max(known.size, len(members)), manifests=packed(manifests))


def _queue_of(found: Sequence[PodManifest]) -> dict[str, str]:
    """The label with the queue of Kueue that its first pod is in, as a label of the PodGang."""
    queues = [pod.metadata.labels[LABEL_QUEUE] for pod in found if pod.metadata.labels.get(LABEL_QUEUE)]
    return {LABEL_QUEUE: queues[0]} if queues else {}


def _owner(meta: ObjectMeta) -> OwnerReference:
    """The owner reference to a pod. The cluster deletes the PodGang when all its pods have been deleted."""
    return OwnerReference(api_version="v1", kind="Pod", name=meta.name, uid=meta.uid)


async def plain_members(cluster: Reader, root: Root) -> list[Pod]:
    """The pods that carry the label of the gang, of every attempt."""
    listed = await cluster.list(Pod, namespace=root.ref.namespace, labels={LABEL_GANG: root.ref.name})
    return [pod for pod in listed.items if is_plain_member(pod)]


async def _name_trouble(cluster: Reader, root: Root, name: str) -> str:
    """
    Why member *name*, which has no pod with the label, cannot be made: a pod that is no member has its name. Empty:
    none has. A restart would stop the others, and then wait for that pod.
    """
    try:
        pod = await cluster.get(Pod, name, root.ref.namespace)
    except NotFound:
        return ""
    if is_plain_member(pod) and pod.metadata.labels[LABEL_GANG] == root.ref.name:
        return ""  # it came after the list
    if _is_going(pod):
        return ""
    label = f"{LABEL_GANG}={root.ref.name}"
    return f"pod {name} has the name of a member and is none, which takes the label {label}: label it so, or delete it"


async def _manifests(cluster: Reader, namespace: str, name: str) -> list[PodManifest]:
    """The manifests of a gang's pods, without pods that are being deleted."""
    listed = await cluster.list(PodManifest, namespace=namespace, labels={LABEL_GANG: name})
    there = [pod for pod in listed.items if pod.metadata.deletion_timestamp is None]
    return [pod for pod in there if not any(owner.controller for owner in pod.metadata.owner_references)]


async def _delete_all(cluster: Cluster, root: Root) -> None:
    """Delete pods up to the attempt of *root*, ended ones too: their names are needed. Later attempts are not ours."""
    for pod in await plain_members(cluster, root):
        if attempt_of(pod) <= root.attempt and not _is_going(pod):
            await _delete(cluster, pod.metadata)


async def _delete(cluster: Cluster, meta: ObjectMeta) -> None:
    try:
        await cluster.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid)
    except NotFound:
        return


async def _make(cluster: Cluster, pod: PodManifest) -> ObjectMeta:
    """
    Create *pod*. Returns the metadata of the new pod, or of the same pod if it was created before.

    Raises Conflict when another pod has the name.
    """
    meta = pod.metadata
    try:
        return (await cluster.create(pod)).metadata
    except AlreadyExists:
        there = (await cluster.get(PodManifest, meta.name, meta.namespace)).metadata
    if there.deletion_timestamp is not None:
        kept = f", kept by its finalizers {', '.join(there.finalizers)}" if there.finalizers else ""
        raise Conflict(f"pod {meta.name} of an earlier attempt is still being deleted{kept}")
    mine = {key: there.annotations.get(key) for key in (ANNOTATION_ATTEMPT, ANNOTATION_MADE_BY)}
    if mine != {key: meta.annotations[key] for key in mine}:
        why = "another pod is called so: see that it does not run for this gang, and delete it"
        raise Conflict(f"pod {meta.name} cannot be made: {why}")
    return there


async def _open_gate(cluster: Cluster, pod: Pod) -> None:
    meta = pod.metadata
    gates: list[Any] = []
    version = ""
    if len(pod.spec.scheduling_gates) > 1:  # other gates stay as they were written, with fields of a later Kubernetes
        whole = await cluster.get(PodManifest, meta.name, meta.namespace)
        gates, version = (
            [g for g in whole.spec.get("schedulingGates", []) if g["name"] != GATE],
            whole.metadata.resource_version,
        )
    patch = {"spec": {"schedulingGates": gates or None}}
    await cluster.patch(Pod, meta.name, patch, namespace=meta.namespace, uid=meta.uid, resource_version=version)
