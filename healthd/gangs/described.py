"""
Gangs of any kind that is described by data (`healthd.core.config.gang_kinds`): one adapter for all of them.

A tenant may write anything into spec and status. They are read into bounded values here and in `healthd.gangs.parts`;
what does not fit makes the root invalid, with a reason.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from healthd.cluster.port import Cluster, Forbidden, Invalid, Labels, NotFound, Reader
from healthd.core.api import (
    ANNOTATION_AWAITS_OPERATOR,
    ANNOTATION_REPLICAS,
    Condition,
    CustomObject,
    JobManifest,
    ObjectMeta,
    Pod,
    custom_type,
)
from healthd.core.config.gang_kinds import KindDescription
from healthd.core.patches import changes, merged
from healthd.core.recovery.gang import Root, RootOutcome, StartHint
from healthd.core.recovery.members import attempt_of, is_terminal
from healthd.core.untrusted import InvalidText, Moment, shown
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.annotations import (
    checked_world,
    concerns_us,
    hint_annotations,
    start_notes,
    stop_notes,
    template_patch,
)
from healthd.gangs.job import is_controlled
from healthd.gangs.kueue import queue_trouble, queue_trouble_below
from healthd.gangs.parts import Part, elastic_part, read_parts, resize, templates
from healthd.gangs.paths import Json, condition_of, number_at, parse_path, parse_sign, parse_signs, patch_at, value_at
from healthd.gangs.rebuilding import RebuildRules
from healthd.gangs.started_jobs import patch_template
from healthd.gangs.switch import Switch

MOST_CONDITIONS = 100
"""That are read of one object."""
_STOP, _START = "stop", "start"
"""What its controller has not noticed yet: values of `healthd.dev/awaits-operator`."""


class DescribedAdapter(GangAdapter[CustomObject]):
    """
    The adapter of the kind *description*; *below* is that of the object that makes its pods, where another does. With
    *rebuild_rules* its roots can be made again.
    """

    def __init__(
        self,
        description: KindDescription,
        below: GangAdapter[Any] | None = None,
        rebuild_rules: RebuildRules | None = None,
    ) -> None:
        self.description = description
        self.rebuild_rules = rebuild_rules
        self.kind = custom_type(
            description.api_version,
            description.kind,
            description.plural,
            description.alias,
            writes_status=bool(description.pod_version),
        )
        self.manifest = self.kind if rebuild_rules else None
        self._below = below
        self._switch = Switch(description)
        self._stopped = parse_signs(description.stopped)
        self._noticed_stop = parse_signs(description.noticed_stop) if description.noticed_stop else None
        self._suspended = [parse_sign(text) for text in description.suspended]
        self._succeeded = [parse_sign(text) for text in description.succeeded]
        self._failed = [parse_sign(text) for text in description.failed]
        self._obstacles = [(parse_sign(trap.when), trap) for trap in description.traps if trap.prevents]
        self._named = re.compile(f"(.+?)(?:{description.name_suffix})")
        self._owners = frozenset(description.owners or {description.kind})
        labels = (description.part_label, *description.index_labels) if description.index_labels else ()
        self._index_labels = tuple(label for label in labels if label)

    def is_root(self, obj: CustomObject) -> bool:
        """Marked for healthd, with no controller that restarts it."""
        return concerns_us(obj.metadata) and not is_controlled(obj.metadata)

    def conditions(self, obj: CustomObject) -> Sequence[Condition]:
        """Those that can be read."""
        found = obj.status.get("conditions")
        return tuple(_readable_conditions(found[:MOST_CONDITIONS] if isinstance(found, list) else ()))

    def with_members(self, obj: CustomObject, root: Root) -> Root:
        """*root* without what the object below it says; `complete` adds that."""
        whole = _whole(obj)
        suspended = self._switch.is_off(whole) or any(sign.holds(whole) for sign in self._suspended)
        says_stopped, running = self._stopped.holds(whole), self._switch.as_running(obj.metadata, whole)
        parts = self._parts(running)
        resizable = elastic_part(parts)
        is_marked = any(pods.template for pods in self.description.pods)
        return dataclasses.replace(
            root,
            suspended=suspended,
            stopped=suspended and says_stopped,
            has_begun=not says_stopped,
            world=checked_world(sum(part.members for part in parts)),
            indexes=tuple(part.numbered for part in parts if part.numbered),
            index_labels=self._index_labels,
            ending=self._ending(whole),
            elastic=resizable.elastic if resizable else None,
            mounts=tuple(dict.fromkeys(mount for part in parts for mount in part.mounts)),
            counts_ended_pods=self.description.counts_ended_pods,
            waits_for_change=self._waits_for_change(root, obj.metadata, whole),
            started_at=_started_at(self.description, whole, obj.metadata),
            hint_labels={} if is_marked else self._labels_of(root.ref.name),
            invalid=(*root.invalid, *self._reasons(obj.metadata, running)),
        )

    def _waits_for_change(self, root: Root, meta: ObjectMeta, whole: Json) -> bool:
        """
        Whether its controller has noticed what healthd asked for.

        A user who stops or starts it meanwhile gets the pace of its controller.
        """
        asked = meta.annotations.get(ANNOTATION_AWAITS_OPERATOR)
        if self._noticed_stop is None or asked is None:
            return False
        if self._switch.is_off(whole):
            return asked == _STOP and bool(root.stopped_by) and self._noticed_stop.holds(whole)
        return asked == _START and not self._stopped.holds(whole)

    def _parts(self, running: Json) -> list[Part]:
        return read_parts(self.description, running, self._switch.multiple(running))

    async def complete(self, cluster: Reader, root: Root) -> Root:
        """Add the members of the object that it makes under its own name, where that one makes the pods."""
        if self._below is None:
            return root
        try:
            found = await cluster.get(self._below.kind, root.ref.name, root.ref.namespace)
        except NotFound:
            return root
        if not any(owner.uid == root.ref.uid for owner in found.metadata.owner_references):
            return root
        root = _with_below(root, self._below.read_any(found))
        trouble = () if root.queue else queue_trouble_below(self._below.kind_name, found.metadata)
        return dataclasses.replace(root, invalid=(*root.invalid, *trouble))

    def root_name(self, pod: Pod) -> str | None:
        """As its label says, where its owner is of the right kind: several kinds share one label."""
        owner = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
        if owner is None or not self._owners & {owner.kind, "*"}:
            return None
        if not self.description.name_label:
            return owner.name
        match = self._named.fullmatch(pod.metadata.labels.get(self.description.name_label, ""))
        return match[1] if match else None

    def root_uid(self, pod: Pod) -> str:
        """Read from the label, where there is one."""
        label = self.description.uid_label
        return pod.metadata.labels.get(label, "") if label else super().root_uid(pod)

    def pod_labels(self, name: str) -> Labels | None:
        """The label with its name; None where there is none, or where the label has more in it."""
        return self._labels_of(name) or None

    def _labels_of(self, name: str) -> dict[str, str]:
        label = self.description.name_label
        return {label: name} if label and not self.description.name_suffix else {}

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Suspend it, or set 0 replicas and note how many there were, in one write."""
        if self.description.pod_version:
            root = await self._raise_version(cluster, root)
        notes = stop_notes(root, recovery)
        patch = self._switch.suspending(True)
        if self.description.replicas:
            obj = await cluster.get(self.kind, root.ref.name, root.ref.namespace)
            whole = _whole(obj)
            notes[ANNOTATION_REPLICAS] = self._switch.note(obj.metadata, whole)
            patch = {"spec": changes(obj.spec, self._switch.stopped(whole)["spec"])}
        await self._switch_over(cluster, root, notes, patch, asks_for=_STOP)

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """
        Let it run with the hint on every pod template, and as many members as the placement has, in one write.

        Before that, clear what the last attempt left.
        """
        obj = await cluster.get(self.kind, root.ref.name, root.ref.namespace)
        await self.clear(cluster, root, hint)
        if self.description.kept_job:
            await _hint_kept_job(cluster, root, hint, self.description.kept_job.replace("{name}", root.ref.name))
        new = copy.deepcopy({"spec": self._switch.as_running(obj.metadata, _whole(obj))["spec"]})
        for template in templates(self.description, new):
            _write_hint(template, root, hint)
        if (members := root.elastic_members(hint.placement)) not in (None, root.elastic and root.elastic.members):
            resize(self._parts(new), members)
        spec = changes(obj.spec, merged(new, self._switch.suspending(False))["spec"])
        notes: dict[str, str | None] = {**start_notes(hint)}
        if self.description.replicas:
            notes[ANNOTATION_REPLICAS] = None
        await self._switch_over(cluster, root, notes, {"spec": spec}, asks_for=_START)

    async def maintain(self, cluster: Cluster, root: Root, pods: Sequence[Pod]) -> None:  # noqa: ARG002 - protocol
        """Make the change at which its controller acts. It removes what asks for it, so it is made once."""
        if root.waits_for_change:
            with suppress(Invalid, Forbidden):  # the controller acts a little later then
                await self.patch(cluster, root, {"metadata": {"annotations": {ANNOTATION_AWAITS_OPERATOR: None}}})

    async def _switch_over(
        self, cluster: Cluster, root: Root, notes: Mapping[str, str | None], patch: Json, *, asks_for: str
    ) -> None:
        """In one write, with the note that its controller has yet to notice it, where that matters."""
        if self._noticed_stop:
            noted = {"metadata": {"annotations": {**notes, ANNOTATION_AWAITS_OPERATOR: asks_for}}, **patch}
            with suppress(Forbidden):  # an admission policy of an older healthd knows no such note
                await self.patch(cluster, root, noted)
                return
        await self.patch(cluster, root, {"metadata": {"annotations": notes}, **patch})

    async def _raise_version(self, cluster: Cluster, root: Root) -> Root:
        """Let the controller take no notice of how the present pods end. *root* as it is then. Raises Conflict."""
        path = parse_path(self.description.pod_version)
        obj = await cluster.get(self.kind, root.ref.name, root.ref.namespace)
        raised = await cluster.patch(
            self.kind,
            root.ref.name,
            patch_at(path, number_at(_whole(obj), path, 0) + 1),
            namespace=root.ref.namespace,
            subresource="status",
            resource_version=root.resource_version,
            uid=root.ref.uid,
        )
        return dataclasses.replace(root, resource_version=raised.metadata.resource_version)

    async def clear(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Delete ended pods, where their controller would take them for new ones, and wait."""
        if not self.description.leaves_ended_pods:
            return
        listed = await cluster.list(Pod, namespace=root.ref.namespace, labels=self.pod_labels(root.ref.name))
        for pod in listed.items:
            is_its = any(owner.controller and owner.uid == root.ref.uid for owner in pod.metadata.owner_references)
            if is_its and is_terminal(pod) and attempt_of(pod) < hint.attempt:
                await _delete(cluster, pod.metadata)

    def _ending(self, whole: Json) -> RootOutcome:
        if any(sign.holds(whole) for sign in self._succeeded):
            return RootOutcome.COMPLETE
        return RootOutcome.FAILED if any(sign.holds(whole) for sign in self._failed) else RootOutcome.NOT_ENDED

    def _reasons(self, meta: ObjectMeta, whole: Json) -> Iterator[str]:
        """Why healthd leaves it alone; nothing for most."""
        if self.description.replicas:
            yield from queue_trouble(meta)
        for sign, trap in self._obstacles:
            if sign.holds(whole):
                yield f"{trap.why}; {trap.remedy}"


def _whole(obj: CustomObject) -> dict[str, Any]:
    return {"spec": obj.spec, "status": obj.status}


def _readable_conditions(found: Iterable[Any]) -> Iterator[Condition]:
    for each in found:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(each, Condition)


def _started_at(kind: KindDescription, whole: Json, meta: ObjectMeta) -> datetime | None:
    """When it was last started, as far as it says so; before the first stop, when it was created."""
    if not kind.started:
        return None
    if "." in kind.started:
        found = value_at(whole, parse_path(kind.started))
    else:
        condition = condition_of(whole, kind.started)
        found = condition.get("lastTransitionTime") if condition.get("status") == "False" else None
    try:
        return msgspec.convert(found, Moment) if found else meta.creation_timestamp
    except msgspec.ValidationError:
        raise InvalidText(f"{kind.started} is {shown(str(found))}, not a time") from None


def _with_below(root: Root, below: Root) -> Root:
    """*root* with the members of the object *below* it; both must have stopped."""
    return dataclasses.replace(
        root,
        world=below.world,
        indexes=below.indexes,
        mounts=below.mounts,
        own_restarts=below.own_restarts,
        started_at=below.started_at,
        stopped=root.stopped and below.stopped,
        has_begun=root.has_begun and below.has_begun,
        invalid=(*root.invalid, *(f"the {below.ref.kind} that it made: {why}" for why in below.invalid)),
    )


def _write_hint(template: dict[str, Any], root: Root, hint: StartHint) -> None:
    patched = merged(template, template_patch(template, hint_annotations(hint), root.ref))
    template.clear()
    template.update(patched)


async def _hint_kept_job(cluster: Cluster, root: Root, hint: StartHint, name: str) -> None:
    """Put the hint on the template of a suspended Job that the root keeps, and never makes anew. Raises Conflict."""
    try:
        job = await cluster.get(JobManifest, name, root.ref.namespace)
    except NotFound:
        return
    meta = job.metadata
    if any(owner.uid == root.ref.uid for owner in meta.owner_references):
        template = template_patch(job.spec.get("template") or {}, hint_annotations(hint), root.ref)
        await patch_template(cluster, meta, {"spec": {"template": template}})


async def _delete(cluster: Cluster, meta: ObjectMeta) -> None:
    try:
        await cluster.delete(Pod, meta.name, namespace=meta.namespace, uid=meta.uid, grace_seconds=0)
    except NotFound:
        return
