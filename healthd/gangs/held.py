"""
Roots that another object starts and stops for them, such as those in a queue of Kueue.

The controller of that object undoes what others do to the root. So the stop and the start are written to that object,
and the rest of the gang is read and marked as its kind does it. Its pod templates stay as they are: that controller
writes its own copy over them.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from healthd.cluster.port import Cluster, Conflict, Labels, Reader
from healthd.core.api import Condition, GangRef, ObjectMeta, Pod, Slim
from healthd.core.recovery.gang import Root, StartHint
from healthd.gangs.adapter import GangAdapter
from healthd.gangs.annotations import start_notes

T = TypeVar("T", bound=Slim)


class Holder(ABC):
    """The objects of one kind that start and stop roots of other kinds."""

    kind: type[Slim]

    @abstractmethod
    def queue_of(self, meta: ObjectMeta) -> str:
        """The queue that the root *meta* is in; empty where no such object holds it."""

    @abstractmethod
    def root_of(self, obj: Any, kind: str) -> str | None:
        """The name of the root of *kind* that *obj* holds."""

    @abstractmethod
    async def complete(self, cluster: Reader, root: Root) -> Root:
        """*root*, which is in a queue, with what its holder says. Raises ClusterError."""

    @abstractmethod
    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Stop *root* and record *recovery* on its holder, in one write. Raises Conflict, NotFound."""

    @abstractmethod
    async def start(self, cluster: Cluster, root: Root) -> None:
        """Let *root* run, and take the mark of the stop away, in one write. Raises Conflict, NotFound."""


class HeldAdapter(GangAdapter[T]):
    """The adapter *inner* of a kind whose roots *holder* may hold. Roots in no queue are as *inner* has them."""

    def __init__(self, inner: GangAdapter[T], holder: Holder) -> None:
        self.inner = inner
        self.kind = inner.kind
        self.labels = inner.labels
        self.makes_roots = inner.makes_roots
        self.rebuild_rules = inner.rebuild_rules
        self.manifest = inner.manifest
        self.beside = holder.kind
        self._holder = holder

    def is_root(self, obj: T) -> bool:
        """As its kind says."""
        return self.inner.is_root(obj)

    def conditions(self, obj: T) -> Sequence[Condition]:
        """As its kind says."""
        return self.inner.conditions(obj)

    def with_members(self, obj: T, root: Root) -> Root:
        """As its kind says, with the queue; `complete` adds what the holder says."""
        queue = self._holder.queue_of(root_meta(obj))
        root = self.inner.with_members(obj, root)
        if not queue:
            return root
        return dataclasses.replace(root, queue=queue, elastic=None, template_resumes_from="", hint_labels={})

    def root_beside(self, obj: Any) -> str | None:
        """The root that an object of the holder's kind holds."""
        return self._holder.root_of(obj, self.kind_name)

    async def complete(self, cluster: Reader, root: Root) -> Root:
        """Add what other objects of its kind say, then what its holder says."""
        root = await self.inner.complete(cluster, root)
        return await self._holder.complete(cluster, root) if root.queue else root

    async def taken_seats(self, cluster: Reader, root: Root, seats: Collection[str]) -> tuple[str, ...]:
        """As its kind says."""
        return await self.inner.taken_seats(cluster, root, seats)

    def root_name(self, pod: Pod) -> str | None:
        """As its kind says."""
        return self.inner.root_name(pod)

    def pod_labels(self, name: str) -> Labels | None:
        """As its kind says."""
        return self.inner.pod_labels(name)

    def root_uid(self, pod: Pod) -> str:
        """As its kind says."""
        return self.inner.root_uid(pod)

    def object_name(self, ref: GangRef) -> str:
        """As its kind says."""
        return self.inner.object_name(ref)

    async def stop(self, cluster: Cluster, root: Root, recovery: str) -> None:
        """Stop the gang by its holder, where it has one. The root itself is not changed."""
        if not root.queue:
            await self.inner.stop(cluster, root, recovery)
            return
        await expect_unchanged(cluster, self.kind, root)
        await self._holder.stop(cluster, root, recovery)

    async def start(self, cluster: Cluster, root: Root, hint: StartHint) -> None:
        """Write the attempt to the root, then let it run by its holder: two writes, and both may be repeated."""
        if not root.queue:
            await self.inner.start(cluster, root, hint)
            return
        await self.inner.clear(cluster, root, hint)
        await self.patch(cluster, root, {"metadata": {"annotations": start_notes(hint)}})
        await self._holder.start(cluster, root)

    async def discover(self, cluster: Cluster, namespace: str, name: str, pods: Sequence[Pod]) -> None:
        """As its kind says."""
        await self.inner.discover(cluster, namespace, name, pods)

    async def maintain(self, cluster: Cluster, root: Root, pods: Sequence[Pod]) -> None:
        """As its kind says, of a gang in no queue."""
        if not root.queue:
            await self.inner.maintain(cluster, root, pods)

    async def note(self, cluster: Cluster, root: Root, notes: Mapping[str, str | None]) -> None:
        """As its kind says."""
        await self.inner.note(cluster, root, notes)


async def expect_unchanged(cluster: Reader, kind: type[Any], root: Root) -> None:
    """
    Raise Conflict when *root*, of *kind*, was written since it was read: its owner may have switched restarts off, or
    another controller may have started it.
    """
    obj: Any = await cluster.get(kind, root.ref.name, root.ref.namespace)
    if obj.metadata.resource_version != root.resource_version:
        raise Conflict(f"{root.ref.kind} {root.ref.name} has been changed")


def root_meta(obj: Any) -> ObjectMeta:
    """The metadata of *obj*, of whatever kind."""
    meta: ObjectMeta = obj.metadata
    return meta
