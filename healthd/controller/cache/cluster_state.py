"""
The controller's cache of watched objects, indexed by gang, with the set of gangs that are dirty.

It does no I/O. No decision is made on the cache alone: the cache only says which gangs to reconcile
(`healthd.controller.fresh_reads` says what is read again, and why). The cost of a change or of a query is the same for
ten nodes and for ten thousand: each change updates the indexes when it comes, and a query reads the index of one gang.

The cluster state never goes back in time. It gets what a watch shows and what healthd itself wrote, in any order.
A version that is older than the cached one is ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from healthd.controller.cache.resized_away import ResizedAway
from healthd.core.api import (
    ANNOTATION_CLAIM,
    ANNOTATION_PUBLISH_WORK,
    FINALIZER_FENCE,
    GangRef,
    KernelLogCursor,
    Node,
    NodeHealth,
    NodeHealthStatus,
    NodeSystemInfo,
    Pod,
    Recovery,
    Slim,
)
from healthd.core.api.model import ENDED
from healthd.core.fabric.peer_comparison import models_of
from healthd.core.fabric.rail_comparison import compared
from healthd.core.node.quarantine import read_record
from healthd.core.node.reporting import quiet_pods
from healthd.core.recovery.gang import GangView, LastCheck, Root
from healthd.core.recovery.members import is_terminal, still_asked_at
from healthd.core.recovery.nodes.spares import is_reserved_for_none, is_spare
from healthd.core.untrusted import number_or
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.isolation import Isolation

T = TypeVar("T", bound=Slim)
K = TypeVar("K")
E = TypeVar("E")
V = TypeVar("V")

KEPT_DELETED = 50_000
"""Last states of deleted pods, over all gangs: about ten restarts of the largest gang, or a day of small gangs."""
KEPT_ENDS = 20_000
"""Deletions that are remembered, so that a late answer does not put a deleted object back into the cache."""


class GangKey(NamedTuple):
    """Where a gang is found. A gang that is created later under the same name has the same key and another uid."""

    kind: str
    namespace: str
    name: str


class ObjectKey(NamedTuple):
    """Namespace and name of an object of one kind."""

    namespace: str
    name: str


class ClusterState:
    """
    All watched objects. `dirty_keys` are the gangs with a change; the caller that reconciles them takes them out.
    Others that want to know what changed `follow` it.
    """

    def __init__(self, adapters: Mapping[str, GangAdapter[Any]], isolation: Isolation | None = None) -> None:
        self.dirty_keys: set[GangKey] = set()
        self.nodes: dict[str, Node] = {}
        """Without boot ids: a cached boot id may be older than the pod that it is compared for."""
        self.health: dict[str, NodeHealth] = {}
        """Also without boot ids, and without the fields that only people read."""
        self.roots: dict[GangKey, Root] = {}
        self.claimed_nodes: set[str] = set()
        self.spare_nodes: set[str] = set()
        self.unclaimed_nodes: set[str] = set()
        """Nodes with the taint of a claim that a person took away."""
        self.quarantined_nodes: set[str] = set()
        self.fenced_pods: set[ObjectKey] = set()
        """Pods with healthd's finalizer."""
        self.lost_recoveries: dict[GangKey, Recovery] = {}
        """The last state of recoveries that were deleted before they were over. They count as active."""
        self._adapters = adapters
        self._read_roots: dict[tuple[str, ObjectKey], Root] = {}
        """By kind of gang and object: what `roots` has by the name of the gang."""
        self._followers: list[set[GangKey]] = []
        self._isolation = isolation or Isolation()
        self._objects: dict[type[Slim], dict[ObjectKey, Any]] = defaultdict(dict)
        self._listed_at: dict[type[Slim], str] = {}
        self._ends: dict[tuple[type[Slim], ObjectKey], int] = {}
        self._claims: dict[ObjectKey, tuple[GangKey, ...]] = {}
        self._members: dict[GangKey, dict[ObjectKey, Pod]] = defaultdict(dict)
        self._gangs_on: dict[str, dict[GangKey, int]] = defaultdict(dict)
        self.last_checks: Mapping[str, LastCheck] = {}
        """By node: what its last check as an idle spare says of it. The leader's loop of these checks sets it."""
        self._busy: dict[str, int] = defaultdict(int)
        self._recoveries: dict[GangKey, dict[ObjectKey, Recovery]] = defaultdict(dict)
        self._active: dict[ObjectKey, Recovery] = {}
        self._deleted: dict[str, tuple[GangKey, Pod]] = {}
        self._deleted_of: dict[GangKey, dict[str, Pod]] = defaultdict(dict)
        self._resized_away: ResizedAway[GangKey] = ResizedAway()

    def follow(self) -> set[GangKey]:
        """A further set of the gangs with a change, for a caller that takes them out, and that calls `unfollow`."""
        keys: set[GangKey] = set()
        self._followers.append(keys)
        return keys

    def unfollow(self, keys: set[GangKey]) -> None:
        """End what `follow` began."""
        self._followers = [each for each in self._followers if each is not keys]

    def _mark(self, keys: Iterable[GangKey]) -> None:
        marked = tuple(keys)
        self.dirty_keys.update(marked)
        for follower in self._followers:
            follower.update(marked)

    # Updates ---------------------------------------------------------------------------------------------------------

    def apply(self, obj: Any, last: Any, version: str) -> None:
        """
        Apply one change from a watch or a list, as of *version*.

        *obj* is the object as it is now; None: it is gone. *last* is the last state of an object that is gone: it was
        deleted, or *obj* has replaced it under the same name.
        """
        if last is not None:
            self.remove(last, _number(version) if obj is None else _version(obj) - 1)
        if obj is not None:
            self.upsert(obj)

    def upsert(self, obj: Any) -> None:
        """Store *obj*, which exists in this state or a later one."""
        with self._isolation.of("cache", obj):
            self._upsert(obj)

    def _upsert(self, obj: Any) -> None:
        kind, key = type(obj), _key_of(obj)
        known = self._objects[kind]
        before = known.get(key)
        version = _version(obj)
        if before is not None and version <= _version(before) and version:
            return
        if before is None and 0 < version <= self._ends.get((kind, key), 0):
            return
        known[key] = obj = still_asked_at(before, obj) if kind is Pod else _noted(obj)
        self._place(kind, key, before, obj)

    def remove(self, last: Any, version: int = 0) -> None:
        """Remove the object whose last state was *last*. It is gone since *version* of its kind at the latest."""
        with self._isolation.of("cache", last):
            self._remove(last, version)

    def _remove(self, last: Any, version: int) -> None:
        kind, key = type(last), _key_of(last)
        gone_at = max(version, _version(last))
        before = self._objects[kind].get(key)
        if before is not None and _version(before) > gone_at:
            return
        self._remember_removal(kind, key, gone_at)
        if before is None:
            return
        if _version(last) > _version(before):
            self.upsert(last)
        last = self._objects[kind].pop(key)
        self._place(kind, key, last, None)
        if kind is Pod:
            self._remember_deleted(last)

    def replace(self, kind: type[Slim], items: Sequence[Any], version: str) -> None:
        """Replace all objects of *kind* with *items*, a complete list as of *version*."""
        if version and version == self._listed_at.get(kind):
            return  # nothing has changed since the last list; what was written since is newer, and stays
        self._listed_at[kind] = version
        known = self._objects[kind]
        there = {_key_of(item): item for item in items}
        if kind is Pod:
            self._find_deleted(items)
        for key, item in there.items():
            if not _is_same_version(item, known.get(key)):
                self.upsert(item)
        as_of = _number(version)
        if kind is Pod:
            self._resized_away.list_pods(as_of)
        for last in [obj for key, obj in known.items() if key not in there]:
            if not as_of or _version(last) <= as_of:
                self.remove(last, as_of)

    def get(self, kind: type[T], key: ObjectKey) -> T | None:
        """The object as last cached, without the fields that the cache leaves out. None: the object does not exist."""
        return self._objects[kind].get(key)

    # Queries ---------------------------------------------------------------------------------------------------------

    def gangs(self, key: GangKey) -> list[GangRef]:
        """The gangs to reconcile at *key*: the gang that exists, and any before it whose recovery is not over."""
        recoveries = self._recoveries.get(key, {}).values()
        active = {each.spec.gang.uid: each.spec.gang for each in recoveries if each.status.phase not in ENDED}
        if (lost := self.lost_recoveries.get(key)) is not None:
            active[lost.spec.gang.uid] = lost.spec.gang
        root = self.roots.get(key)
        if root is not None and root.options.restart:
            active[root.ref.uid] = root.ref
        return list(active.values())

    def rootless(self, key: GangKey) -> tuple[Pod, ...]:
        """Pods that name a gang that has no root, where healthd itself has to create the root."""
        adapter = self._adapters.get(key.kind)
        if adapter is None or not adapter.makes_roots or key in self.roots:
            return ()
        return tuple(pod for pod in self._members.get(key, {}).values() if self.gang_of(_key_of(pod)) is None)

    def watched(self) -> set[GangKey]:
        """Every gang that healthd manages: marked for restart, or with an active recovery."""
        marked = {key for key, root in self.roots.items() if root.options.restart}
        return marked | {key_of(recovery.spec.gang) for recovery in self._active.values()}

    def root(self, ref: GangRef) -> Root | None:
        """The root of a gang; None when it is gone."""
        root = self.roots.get(key_of(ref))
        return root if root is not None and root.ref.uid == ref.uid else None

    def view(self, ref: GangRef) -> GangView:
        """All that is cached of one gang."""
        return GangView(
            root=self.root(ref),
            pods=self.members(ref),
            deleted=self.deleted_pods(ref),
            resized_away=self._resized_away.of(key_of(ref)),
            nodes=self.nodes,
            health=self.health,
            last_checks=self.last_checks,
        )

    def members(self, ref: GangRef) -> tuple[Pod, ...]:
        """The pods of one gang, by name."""
        key = key_of(ref)
        pods = self._members.get(key, {})
        return tuple(pods[each] for each in sorted(pods) if self._belongs(each, pods[each], key, ref.uid))

    def deleted_pods(self, ref: GangRef) -> tuple[Pod, ...]:
        """The last known states of the gang's deleted pods, the latest last."""
        gone = self._deleted_of.get(key_of(ref), {}).values()
        return tuple(pod for pod in gone if self._may_be_of(pod, ref.kind, ref.uid))

    def is_of(self, ref: GangRef, pod: Pod) -> bool:
        """
        Whether *pod*, freshly read, is a member of the gang, whose root was freshly read, too.

        The root may be newer than the cache, so the cache is only asked whether a root of a kind above it has the pod.
        """
        key, candidates = key_of(ref), self._candidate_gangs(pod)
        if key not in candidates or not self._may_be_of(pod, ref.kind, ref.uid):
            return False
        return self._first_candidate(candidates[: candidates.index(key)], pod) is None

    def recoveries(self) -> Iterable[Recovery]:
        """All recoveries."""
        return self._objects[Recovery].values()

    def active_recoveries(self) -> Iterable[Recovery]:
        """The recoveries that have not ended."""
        return [*self._active.values(), *self.lost_recoveries.values()]

    def of_gang(self, ref: GangRef) -> list[Recovery]:
        """All recoveries of a gang, the latest first."""
        return latest_first(r for r in self._recoveries.get(key_of(ref), {}).values() if r.spec.gang.uid == ref.uid)

    def active(self, ref: GangRef) -> Recovery | None:
        """The recovery of a gang that is not over."""
        return next((r for r in self.of_gang(ref) if r.status.phase not in ENDED), self.lost(ref))

    def lost(self, ref: GangRef) -> Recovery | None:
        """The last state of the gang's recovery that was deleted before it was over."""
        lost = self.lost_recoveries.get(key_of(ref))
        return lost if lost is not None and lost.spec.gang.uid == ref.uid else None

    def gangs_on(self, node: str) -> list[GangKey]:
        """The gangs with members on *node*, also with members that have ended."""
        roots = [(key, self.roots.get(key)) for key in sorted(self._gangs_on.get(node, ()))]
        return [key for key, root in roots if root and any(p.spec.node_name == node for p in self.members(root.ref))]

    def busy_nodes(self) -> set[str]:
        """Nodes with a pod of any gang, where the pod has not ended."""
        return set(self._busy)

    def with_first_request(self, pod: Pod) -> Pod:
        """*pod*, freshly read, with the time at which its deletion was asked for as far as the cache has seen that."""
        return still_asked_at(self._objects[Pod].get(_key_of(pod)), pod)

    def pod(self, key: ObjectKey) -> Pod:
        """A pod that is in the cache."""
        found: Pod = self._objects[Pod][key]
        return found

    def gang_of(self, key: ObjectKey) -> GangKey | None:
        """The gang that a pod belongs to; None when that gang is gone."""
        return self._first_candidate(self._claims.get(key, ()), self.pod(key))

    # Indexes ---------------------------------------------------------------------------------------------------------

    def _place(self, kind: type[Slim], key: ObjectKey, before: Any, after: Any) -> None:
        if kind is Pod:
            self._place_pod(key, before, after)
        elif kind is Node:
            self._place_node(key.name, before, after)
        elif kind is NodeHealth:
            self._place_health(key.name, before, after)
        elif kind is Recovery:
            self._place_recovery(key, before, after)
        for adapter in self._adapters.values():
            if adapter.kind is kind:
                self._place_root(adapter, before, after)
            elif adapter.beside is kind:
                self._place_beside(adapter, key, after or before)

    def _place_pod(self, key: ObjectKey, before: Pod | None, after: Pod | None) -> None:
        former = self._claims.pop(key, ())
        for claim in former:
            _drop(self._members, claim, key)
        self._mark(former)
        if before is not None:
            self._count(before, former, -1)
        self.fenced_pods.discard(key)
        claims = self._candidate_gangs(after)
        if after is None or not claims:
            return
        self._claims[key] = claims
        for claim in claims:
            self._members[claim][key] = after
        self._mark(claims)
        self._count(after, claims, 1)
        if after.metadata.deletion_timestamp is not None:
            self._resized_away.delete(claims, after)
        if FINALIZER_FENCE in after.metadata.finalizers:
            self.fenced_pods.add(key)

    def _count(self, pod: Pod, claims: tuple[GangKey, ...], by: int) -> None:
        node = pod.spec.node_name
        if not node or not claims:
            return
        if not is_terminal(pod):
            self._busy[node] += by
            if not self._busy[node]:
                del self._busy[node]
        for claim in claims:
            on = self._gangs_on[node]
            on[claim] = on.get(claim, 0) + by
            if not on[claim]:
                _drop(self._gangs_on, node, claim)

    def _place_node(self, name: str, before: Node | None, after: Node | None) -> None:
        for names, holds in (
            (self.claimed_nodes, after is not None and ANNOTATION_CLAIM in after.metadata.annotations),
            (self.spare_nodes, after is not None and is_spare(after)),
            (self.unclaimed_nodes, after is not None and is_reserved_for_none(after)),
            (self.quarantined_nodes, after is not None and read_record(after) is not None),
        ):
            names.add(name) if holds else names.discard(name)
        if after is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = replace(after, status=replace(after.status, node_info=NodeSystemInfo()))
        if _matters(before) != _matters(after):
            self._touch_node(name)

    def _place_health(self, name: str, before: NodeHealth | None, after: NodeHealth | None) -> None:
        if after is None:
            self.health.pop(name, None)
        else:
            self.health[name] = replace(after, status=replace(after.status, boot_id=""))
        if before is None or after is None or _without_work(before.status) != _without_work(after.status):
            self._touch_node(name)

    def _touch_node(self, name: str) -> None:
        """Mark dirty: gangs with pods on this node, and gangs in recovery, which may wait for this very node."""
        self._mark(self._gangs_on.get(name, ()))
        self._mark(key_of(recovery.spec.gang) for recovery in self._active.values())

    def _place_recovery(self, key: ObjectKey, before: Recovery | None, after: Recovery | None) -> None:
        self._active.pop(key, None)
        if before is not None:
            _drop(self._recoveries, key_of(before.spec.gang), key)
        if after is not None:
            self._recoveries[key_of(after.spec.gang)][key] = after
            if after.status.phase not in ENDED:
                self._active[key] = after
        self._note_lost(before, after)
        if (one := after or before) is not None:
            self._mark([key_of(one.spec.gang)])

    def _note_lost(self, before: Recovery | None, after: Recovery | None) -> None:
        if after is None and before is not None and before.status.timeline and before.status.phase not in ENDED:
            self.lost_recoveries[key_of(before.spec.gang)] = before
        elif after is not None and after.status.timeline:
            lost = self.lost(after.spec.gang)
            if lost is not None and lost.metadata.name == after.metadata.name:
                del self.lost_recoveries[key_of(after.spec.gang)]

    def _place_root(self, adapter: GangAdapter[Any], before: Any, after: Any) -> None:
        new = adapter.read(after) if after is not None else None
        place = adapter.kind_name, _key_of(after or before)
        old = self._read_roots.pop(place, None)
        if new is not None:
            self._read_roots[place] = new
        if old is not None and (new is None or key_of(new.ref) != key_of(old.ref)):
            self.roots.pop(key_of(old.ref), None)
            self._resized_away.forget_gang(key_of(old.ref))
            self._mark([key_of(old.ref)])
        if new is not None:
            self.roots[key_of(new.ref)] = new
            self._mark([key_of(new.ref)])
        if old is None or new is None:
            return
        here, gone = (places.get(key_of(new.ref), {}).values() for places in (self._members, self._deleted_of))
        if (old.world, old.indexes) != (new.world, new.indexes):
            self._resized_away.resize(key_of(new.ref), old, new, here, gone)
        if new.generation > old.generation + 1:
            self._resized_away.miss(key_of(new.ref), old, new, here, gone)

    def _find_deleted(self, pods: Iterable[Pod]) -> None:
        """A list of all pods shows which of them are being deleted, and not since which version."""
        for pod in pods:
            if pod.metadata.deletion_timestamp is not None:
                self._resized_away.find_deleted(self._candidate_gangs(pod), pod)

    def _place_beside(self, adapter: GangAdapter[Any], key: ObjectKey, obj: Any) -> None:
        """Mark dirty the gang that an object beside roots is about."""
        if (name := adapter.root_beside(obj)) is not None:
            self._mark([GangKey(adapter.kind_name, key.namespace, name)])

    def _remember_deleted(self, last: Pod) -> None:
        for claim in self._candidate_gangs(last):
            if claim in self.roots or self._recoveries.get(claim):  # a root that is made again may go before its pods
                self._deleted[last.metadata.uid] = (claim, last)
                self._deleted_of[claim][last.metadata.uid] = last
                break
        for uid in list(islice(self._deleted, max(0, len(self._deleted) - KEPT_DELETED))):
            claim, _ = self._deleted.pop(uid)
            _drop(self._deleted_of, claim, uid)
            self._resized_away.forget_pod(claim, uid)

    def _remember_removal(self, kind: type[Slim], key: ObjectKey, version: int) -> None:
        self._ends.pop((kind, key), None)
        self._ends[kind, key] = version
        for oldest in list(islice(self._ends, max(0, len(self._ends) - KEPT_ENDS))):
            del self._ends[oldest]

    # Which gang a pod belongs to ------------------------------------------------------------------------------------

    def _candidate_gangs(self, pod: Pod | None) -> tuple[GangKey, ...]:
        """Every gang that *pod* may belong to, in the order of the kinds in the table of adapters."""
        if pod is None:
            return ()
        space = pod.metadata.namespace
        named = ((kind, adapter.root_name(pod)) for kind, adapter in self._adapters.items())
        return tuple(GangKey(kind, space, name) for kind, name in named if name)

    def _belongs(self, each: ObjectKey, pod: Pod, key: GangKey, uid: str) -> bool:
        claims = self._claims[each]
        return (len(claims) == 1 or self._first_candidate(claims, pod) == key) and self._may_be_of(pod, key.kind, uid)

    def _first_candidate(self, claims: Sequence[GangKey], pod: Pod) -> GangKey | None:
        for claim in claims:
            root = self.roots.get(claim)
            if root is not None and self._may_be_of(pod, claim.kind, root.ref.uid):
                return claim
        return None

    def _may_be_of(self, pod: Pod, kind: str, uid: str) -> bool:
        """True, unless *pod* names a root that was deleted and created again under the same name."""
        return self._adapters[kind].root_uid(pod) in ("", uid)


def key_of(ref: GangRef) -> GangKey:
    """Where the gang is found."""
    return GangKey(ref.kind, ref.namespace, ref.name)


def latest_first(recoveries: Iterable[Recovery]) -> list[Recovery]:
    """Recoveries in the order in which they are read: the latest first."""
    return sorted(recoveries, key=lambda r: (r.spec.first_attempt, r.metadata.creation_timestamp), reverse=True)


def _drop(places: dict[K, dict[E, V]], place: K, each: E) -> None:
    """Remove one entry from an index, and the index key with its last entry."""
    if place in places:
        places[place].pop(each, None)
        if not places[place]:
            del places[place]


def _matters(node: Node | None) -> Any:
    """The fields of a node that decisions use: a heartbeat of the kubelet does not change them."""
    if node is None:
        return None
    conditions = [(each.type, each.status) for each in node.status.conditions]
    notes = {key: value for key, value in node.metadata.annotations.items() if key != ANNOTATION_PUBLISH_WORK}
    return node.spec, node.metadata.labels, notes, conditions, node.status.node_info.boot_id


def _without_work(status: NodeHealthStatus) -> NodeHealthStatus:
    """
    What decisions about a gang follow from. How much pods work is written every few minutes by each node, and is
    compared apart from that (`controller.fleet.stragglers`). While a pod is quiet, each report counts.
    """
    if not any(each.work for each in status.rhythms) or quiet_pods(status.rhythms):
        return status
    rhythms = [replace(each, work=None, recent=None, slow_ranks=[]) for each in status.rhythms]
    return replace(status, rhythms=rhythms, seen_at=None, cursor=KernelLogCursor())


def _noted(obj: Any) -> Any:
    """The object without the fields that are never read from the cluster state: ten thousand inventories are 50 MB."""
    if not isinstance(obj, NodeHealth):
        return obj
    status = obj.status
    return replace(obj, status=replace(status, inventory=models_of(status.inventory), nics=compared(status.nics)))


def _key_of(obj: Any) -> ObjectKey:
    return ObjectKey(obj.metadata.namespace, obj.metadata.name)


def _is_same_version(obj: Any, known: Any) -> bool:
    """Most objects of a list are known as they are."""
    return known is not None and obj.metadata.resource_version == known.metadata.resource_version != ""


def _version(obj: Any) -> int:
    """A number that grows with each change; 0 when the server's versions are not numbers."""
    return _number(obj.metadata.resource_version)


def _number(version: str) -> int:
    return number_or(version, 0, most=2**63 - 1)
