"""The base class of all gang adapters. An adapter is one module; `healthd.gangs.ADAPTERS` is the table of them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, TypeVar

from healthd.cluster.port import Cluster, Labels, NotFound, Reader
from healthd.core.api import RESOURCES, Condition, GangRef, ObjectMeta, Pod, Slim
from healthd.core.recovery.gang import Root, RootOutcome, StartHint
from healthd.core.untrusted import InvalidText, shown
from healthd.gangs.annotations import metadata_of_root
from healthd.gangs.rebuilding import RebuildRules, failure_of

T = TypeVar("T", bound=Slim)


class GangAdapter(ABC, Generic[T]):
    """
    How the roots of one kind are read, stopped and started.

    Writes carry the resourceVersion of the root that the decision used. A deposed controller, or one that read an old
    state, gets a Conflict and changes nothing.
    """

    kind: type[T]
    """The kind of the objects that may be roots."""
    labels: Labels | None = None
    """Labels of every root of this kind; None: any object of the kind may be a root."""

    beside: type[Slim] | None = None
    """A kind of objects that say more about roots of this kind: such a change concerns the root (`root_beside`)."""

    rebuild_rules: RebuildRules | None = None
    """How a root that failed for good is made again; None: it is not."""
    manifest: type[Slim] | None = None
    """The same objects with their spec unparsed; None where `rebuild_rules` is."""

    makes_roots: bool = False
    """True: gangs of this kind have no root until healthd creates one (`discover`)."""

    def read(self, obj: T) -> Root | None:
        """The root for decisions; None when *obj* is not a root, or not marked for healthd."""
        return self.read_any(obj) if self.is_root(obj) else None

    def read_any(self, obj: T) -> Root:
        """*obj* as a root, also when `is_root` is false. Unreadable data makes the root invalid; nothing is raised."""
        meta: ObjectMeta = obj.metadata  # type: ignore[attr-defined]  # every kind that is kept has it
        root = metadata_of_root(RESOURCES[self.kind].name, meta)
        try:
            root = self.with_members(obj, root)
            if root.ending is not RootOutcome.FAILED:
                return root
            failure = failure_of(self.kind_name, meta, self.conditions(obj), self.rebuild_rules)
            return dataclasses.replace(root, failure=failure)
        except InvalidText as error:
            why = str(error)
        except Exception as error:  # whatever shape it has: one object must not stop the reads of the others
            why = f"it cannot be read: {type(error).__name__} {shown(str(error))}"
        return dataclasses.replace(root, invalid=(*root.invalid, why))

    def conditions(self, obj: T) -> Sequence[Condition]:
        """The conditions in the status of *obj*. Raises InvalidText."""
        found: Sequence[Condition] = getattr(getattr(obj, "status", None), "conditions", ())
        return found

    @abstractmethod
    def is_root(self, obj: T) -> bool:
        """Whether *obj* is the root of a gang and marked for healthd."""

    @abstractmethod
    def with_members(self, obj: T, root: Root) -> Root:
        """*root*, read from the metadata of *obj*, with what this kind says about its members. Raises Unreadable."""

    @abstractmethod
    def root_name(self, pod: Pod) -> str | None:
        """
        The name of the root of this kind that *pod* may belong to, in the pod's own namespace.

        Several kinds may claim a pod; it belongs to the first kind of the table whose root exists.
        """

    @property
    def kind_name(self) -> str:
        """As a recovery names it."""
        return RESOURCES[self.kind].kind

    def root_beside(self, obj: Any) -> str | None:
        """The name of the root, in the same namespace, that the object *obj* of the kind `beside` is about."""
        del obj
        return None

    def pod_labels(self, name: str) -> Labels | None:
        """Labels of every pod of the root *name*, to list no other pods; None when the user chooses the labels."""
        del name
        return None

    def root_uid(self, pod: Pod) -> str:
        """The uid of that root, or "" when the pod does not show it. Another root may have the same name by now."""
        kind = RESOURCES[self.kind].kind
        for owner in pod.metadata.owner_references:
            if owner.controller and owner.kind == kind:
                return owner.uid
        return ""

    @abstractmethod
    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Stop all members, and mark the root as stopped by *recovery*. Raises Conflict, NotFound."""

    @abstractmethod
    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Write the hint and let the gang run. When called again after a crash in between, it does what is missing."""

    async def clear(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Remove what earlier attempts left in the way of the next one, at each start. Raises ClusterError."""
        del cluster, root, hint

    async def discover(self, cluster: Cluster, namespace: str, name: str, pods: Sequence[Pod]) -> None:
        """
        Create the root of a gang that has none, where healthd creates the roots; *pods* claim to belong to it.

        Raises ClusterError.
        """
        del cluster, namespace, name, pods

    async def maintain(self, cluster: Cluster, root: Root, pods: Sequence[Pod]) -> None:
        """
        Finish the work for a root that runs or was started. Called at every reconcile; most often it does nothing.

        What cannot be part of the one write that starts a gang is done here, so that no crash leaves it undone.
        Raises Conflict, NotFound.
        """
        del cluster, root, pods

    def object_name(self, ref: GangRef) -> str:
        """The name of the root's object."""
        return ref.name

    async def complete(self, cluster: Reader, root: Root) -> Root:
        """*root* with what other objects say about it; most kinds need no other object."""
        del cluster
        return root

    async def taken_seats(self, cluster: Reader, root: Root, seats: Collection[str]) -> tuple[str, ...]:
        """What is wrong with *seats* of *root* that have no member: pods that are none have their names."""
        del cluster, root, seats
        return ()

    async def find(self, cluster: Reader, ref: GangRef) -> Root | None:
        """The root as it is now; None when it is gone or another object has its name."""
        try:
            root = self.read(await cluster.get(self.kind, self.object_name(ref), ref.namespace))
        except NotFound:
            return None
        return await self.complete(cluster, root) if root and root.ref.uid == ref.uid else None

    async def note(self, cluster: Cluster, root: Root, notes: Mapping[str, str | None]) -> None:
        """Write annotations to the root, also when it changed since it was read. Raises NotFound, Conflict."""
        name, namespace = self.object_name(root.ref), root.ref.namespace
        await cluster.patch(
            self.kind, name, {"metadata": {"annotations": dict(notes)}}, namespace=namespace, uid=root.ref.uid
        )

    async def patch(self, cluster: Cluster, root: Root, patch: Mapping[str, Any]) -> T:
        """Change the root, if it did not change since it was read. Raises Conflict, NotFound, Invalid."""
        return await cluster.patch(
            self.kind,
            self.object_name(root.ref),
            patch,
            namespace=root.ref.namespace,
            resource_version=root.resource_version,
            uid=root.ref.uid,
        )
