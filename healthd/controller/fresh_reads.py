"""
What is read again of one gang before a decision, and why the rest is not.

The cluster state is as old as the watch that feeds it. A decision to wait may use it, because an event will come. A
decision to act may not. Before a decision that writes, these are read from the API server, in this order:

- **the recovery**, first: a write of its status with a stale resourceVersion fails with Conflict;
- **the root**: its version is the precondition of stopping and starting;
- **whether it can be made again**, where the root failed for good: `healthd.controller.rebuilds`;
- **the pods**, but only where it matters that there are no others: before a stop is called complete (and not while the
  cache shows a member whose end is still to come: a gang of thousands would be listed at each look), while the fence is
  closed, where a gang that is to be started has that attempt already (its record may be older than a further stop, and
  then its members have run), and where a fault is seen among pods from before the last start of the gang: other pods
  may have replaced them. All else that a pod shows (it runs, it failed, it is being deleted, its containers ended)
  stays true, so the cached pod is good enough. The pods come after the root: once the root is stopped, no pod is
  created;
- **the seats of plain pods without a pod that the recovery knows**: a pod that is no member may have the name;
- **the pods on the chosen spares**, before one is claimed: a pod that others put there is no member of a gang, so it is
  not in the cache. Spares that are occupied are remembered and read again, so that they are not chosen in turns. The
  same for nodes of a gang that is being started, where the scheduler refuses members: do other pods occupy them?
- **the nodes of a gang that hangs**, before a recovery is opened for that: its agents may have seen it work since;
- **the nodes that the decision depends on**, after the pods: nodes that are blamed, also for a fault that seems to join
  a recovery, nodes whose boot must be known, nodes that will be claimed or started on. A boot id is never taken from
  a cache. A boot id older than the pod on that node would later look like a reboot, and so like the proof that the pod
  has ended. When the cached boot id differs from the one in the recovery, this is a reason to read, also while the
  gang is being stopped: a dead kubelet ends no pod.

Before a recovery is opened, the gang's recoveries are read last: another controller may have opened one since.

When the cluster state shows a pod and the API server does not, the deletion event is still on its way. Its last state
may be the proof that the fence needs, so the gang is read again when the event has come: `FreshRead.awaited`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import structlog
from msgspec.structs import replace

from healthd.cluster.port import Cluster, Invalid, NotFound
from healthd.controller.cache.cluster_state import ClusterState, ObjectKey, latest_first
from healthd.controller.rebuilds import Rebuilds
from healthd.core.api import LABEL_GANG, Cause, GangRef, Node, NodeHealth, Pod, Recovery, Slim
from healthd.core.api.model import ENDED, CauseKind, Phase
from healthd.core.node.check_pods import is_check
from healthd.core.recovery.fence import is_another_boot
from healthd.core.recovery.gang import GangView, Root
from healthd.core.recovery.members import members
from healthd.core.recovery.nodes.replacement_nodes import deserted, occupant, refused
from healthd.core.recovery.nodes.spares import is_spare
from healthd.core.recovery.phases.stopping import will_report
from healthd.core.recovery.rebuilding import roots_of
from healthd.core.recovery.recovery_status import label_value
from healthd.gangs.adapter import GangAdapter

log = structlog.get_logger()

T = TypeVar("T", bound=Slim)
A = TypeVar("A")

Gather = Callable[[Sequence[Callable[[], Awaitable[Any]]]], Awaitable[list[Any]]]
"""How several pieces of work are done at once, such as reads."""
LIST_FROM = 0.25
"""From this share of all nodes on, one list is cheaper than a request for each node."""


async def one_by_one(works: Sequence[Callable[[], Awaitable[A]]]) -> list[A]:
    """Do them one after the other."""
    return [await work() for work in works]


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRead:
    """One gang in recovery, read again as far as the module's docstring says."""

    recovery: Recovery | None
    """None: it has ended, or it is gone."""
    view: GangView
    awaited: tuple[str, ...] = ()
    """Deleted pods whose last state has not come yet."""


class FreshReader:
    """Reads gangs again, through *cluster*. *faults* finds what is wrong with a gang."""

    def __init__(
        self,
        cluster: Cluster,
        cluster_state: ClusterState,
        adapters: Mapping[str, GangAdapter[Any]],
        together: Gather,
        faults: Callable[[GangView], Collection[Cause]],
        rebuilds: Rebuilds,
    ) -> None:
        self._cluster = cluster
        self._cluster_state = cluster_state
        self._adapters = adapters
        self._together = together
        self._faults = faults
        self._rebuilds = rebuilds
        self._occupied: dict[str, str] = {}
        """Occupied spares, with the pod that runs there and is not ours."""
        self._checks: dict[str, tuple[tuple[str, str], ...]] = {}
        """Chosen spares that are being checked, with the pods of the check, as of the last read."""

    async def at_recovery(self, noticed: Recovery, now: datetime, *, is_fresh: bool = False) -> FreshRead:
        """
        The gang of a recovery that is in progress. Raises ClusterError.

        With *is_fresh*, *noticed* is the answer to our own write: after a newer write, our next one gets Conflict.
        """
        gang = noticed.spec.gang
        recovery: Recovery | None = noticed
        if not is_fresh:
            recovery = await self._get(Recovery, noticed.metadata.name, noticed.metadata.namespace)
            if recovery is None:
                # No event may ever say so: an object that was created and deleted between two lists leaves none.
                self._cluster_state.remove(noticed)
        if recovery is None or recovery.metadata.uid != noticed.metadata.uid or recovery.status.phase in ENDED:
            return FreshRead(recovery=None, view=GangView(root=None))
        found = await self._adapters[gang.kind].find(self._cluster, gang)
        root, rebuild = await self._rebuilds.read(recovery, found)
        view = replace(self._noticed(gang, root), rebuild=rebuild)
        view, awaited = await self._with_pods(view, gang, needs_all=_needs_all(recovery, view, now))
        view = replace(view, root=await self._with_taken_seats(view, recovery))
        view = await self._with_nodes(view, {*hinges(recovery, root), *self.booted(recovery)})
        view = replace(view, occupied=await self._occupants(recovery, view.nodes), checks=self._checks)
        view = replace(view, taken=await self._taken(recovery, view))
        return FreshRead(recovery=recovery, view=view, awaited=awaited)

    async def _with_taken_seats(self, view: GangView, recovery: Recovery) -> Root | None:
        """The stopped root, with what is wrong with those of its seats of which the recovery knows no pod."""
        root = view.root
        if root is None or not root.stopped_by or not root.indexes:
            return root
        known = {pod.name for pod in recovery.status.pods} | {pod.metadata.name for pod in (*view.pods, *view.deleted)}
        seats = [seat for seat in root.seats if seat not in known]
        taken = await self._adapters[root.ref.kind].taken_seats(self._cluster, root, seats) if seats else ()
        return dataclasses.replace(root, invalid=(*root.invalid, *taken)) if taken else root

    async def at_fault(self, gang: GangRef) -> GangView:
        """Read a gang that seems to need a recovery. Raises ClusterError."""
        root = await self._adapters[gang.kind].find(self._cluster, gang)
        view, _ = await self._with_pods(self._noticed(gang, root), gang)
        return await self._with_nodes(view, self._reporting_nodes(view))

    def _reporting_nodes(self, view: GangView) -> set[str]:
        """The nodes whose agents say that the gang hangs."""
        if not any(cause.kind is CauseKind.HANG for cause in self._faults(view)):
            return set()
        names = {pod.spec.node_name for pod in view.pods}
        return {name for name in names if name in view.health and view.health[name].status.rhythms}

    def booted(self, recovery: Recovery) -> set[str]:
        """Nodes of a stopping gang that seem to have rebooted since: a reason to read them, and no proof."""
        if phase_of(recovery) is not Phase.STOPPING:
            return set()
        known = [pod for pod in recovery.status.pods if pod.node and not pod.proof and pod.boot_id + pod.agent_boot_id]
        return {pod.node for pod in known if any(is_another_boot(pod, boot) for boot in self._boots(pod.node))}

    def _boots(self, name: str) -> set[str]:
        key = ObjectKey("", name)
        node, health = self._cluster_state.get(Node, key), self._cluster_state.get(NodeHealth, key)
        return {node.status.node_info.boot_id if node else "", health.status.boot_id if health else ""}

    async def recoveries(self, gang: GangRef) -> list[Recovery]:
        """All recoveries of a gang, the latest first; also of one that was made again since. Raises ClusterError."""
        labels = {LABEL_GANG: label_value(gang.name)}
        found = (await self._cluster.list(Recovery, namespace=gang.namespace, labels=labels)).items
        return latest_first(each for each in found if gang.uid in roots_of(each))

    def _noticed(self, gang: GangRef, root: Root | None) -> GangView:
        """The cached view of the gang, with *root*, which was read again."""
        return replace(self._cluster_state.view(gang), root=root)

    async def _with_pods(
        self, view: GangView, gang: GangRef, *, needs_all: bool = False
    ) -> tuple[GangView, tuple[str, ...]]:
        """*view* with all members that exist, and the names of deleted members whose last state has not come yet."""
        if view.root is None or not (needs_all or (_may_be_history(view) and self._faults(view))):
            return view, ()
        labels = self._adapters[gang.kind].pod_labels(gang.name)
        listed = await self._cluster.list(Pod, namespace=gang.namespace, labels=labels)
        for each in listed.unreadable:
            raise Invalid(f"pod {each.name} cannot be read, so whether it has ended is not known: {each.reason}")
        state = self._cluster_state
        pods = tuple(state.with_first_request(pod) for pod in listed.items if state.is_of(gang, pod))
        there = {pod.metadata.uid for pod in pods}
        awaited = tuple(pod.metadata.name for pod in view.pods if pod.metadata.uid not in there)
        return replace(view, pods=pods, is_listed=True, deleted=state.deleted_pods(gang)), awaited

    async def _occupants(self, recovery: Recovery, nodes: Mapping[str, Node]) -> Mapping[str, str]:
        """The pods on the spares that are about to be claimed for *recovery*."""
        status = recovery.status
        back = await self.occupied(_to_return(recovery), nodes)
        chosen = {Phase.RESERVING: status.replacements, Phase.STARTING: status.stand_ins}.get(phase_of(recovery))
        if chosen is None:
            return back
        names = sorted({*chosen.values(), *self._occupied})
        spares = [name for name in names if name in nodes and is_spare(nodes[name])]
        listed = await self._together([partial(self._pods_on, name) for name in spares])
        checks = {name: _checks_among(pods) for name, pods in zip(spares, listed, strict=True)}
        self._checks = {name: pods for name, pods in checks.items() if pods}
        found = {name: occupant(nodes[name], pods) for name, pods in zip(spares, listed, strict=True)}
        for name, pod in found.items():
            if pod and name not in self._occupied:
                log.warning("spare.occupied", node=name, pod=pod, so="it is not claimed")
        self._occupied = {name: pod for name, pod in found.items() if pod}
        return {**self._occupied, **back}

    async def occupied(self, names: Collection[str], nodes: Mapping[str, Node]) -> dict[str, str]:
        """Those nodes of *names* on which pods are that hold devices, each with such a pod. Raises ClusterError."""
        known = [name for name in names if name in nodes]
        listed = await self._together([partial(self._pods_on, name) for name in known])
        found = {name: occupant(nodes[name], pods) for name, pods in zip(known, listed, strict=True)}
        return {name: pod for name, pod in found.items() if pod}

    async def _taken(self, recovery: Recovery, view: GangView) -> Mapping[str, str]:
        """The pods on the nodes where members of a starting gang should run and cannot."""
        if phase_of(recovery) is not Phase.STARTING or not refused(view):
            return {}
        mine = {pod.metadata.uid for pod in view.pods}
        left = [name for name in deserted(recovery.status, view, recovery.metadata.name) if name in view.nodes]
        listed = await self._together([partial(self._pods_on, name) for name in left])
        others = [[pod for pod in pods if pod.metadata.uid not in mine] for pods in listed]
        found = {name: occupant(view.nodes[name], pods) for name, pods in zip(left, others, strict=True)}
        return {name: pod for name, pod in found.items() if pod}

    async def _pods_on(self, node: str) -> Sequence[Pod]:
        return (await self._cluster.list(Pod, fields={"spec.nodeName": node})).items

    async def _with_nodes(self, view: GangView, names: Collection[str]) -> GangView:
        """*view* with all nodes from the cache, *names* and the blamed nodes read again; the same for NodeHealth."""
        view = replace(view, nodes=dict(self._cluster_state.nodes), health=dict(self._cluster_state.health))
        again = sorted({*names, *(cause.node for cause in self._faults(view) if cause.node)})
        nodes, health = await self._together(
            [
                partial(self._overlaid, Node, view.nodes, again),
                partial(self._overlaid, NodeHealth, view.health, again),
            ]
        )
        return replace(view, nodes=nodes, health=health)

    async def _overlaid(self, kind: type[T], noticed: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
        """
        *noticed*, with the objects of *names* as they are now.

        The cluster state learns what was read. Else the next decision would read other nodes again, go back to the old
        state of these, and two plans could take turns until the watch has caught up.
        """
        known = dict(noticed)
        if len(names) > max(4, LIST_FROM * len(known)):
            items: list[Any] = (await self._cluster.list(kind)).items
            for item in items:
                self._cluster_state.upsert(item)
            return {item.metadata.name: item for item in items}
        fresh = await self._together([partial(self._get, kind, name) for name in names])
        for name, obj in zip(names, fresh, strict=True):
            if obj is not None:
                known[name] = obj
                self._cluster_state.upsert(obj)
            elif (gone := known.pop(name, None)) is not None:
                self._cluster_state.remove(gone)
        return known

    async def _get(self, kind: type[T], name: str, namespace: str = "") -> T | None:
        try:
            return await self._cluster.get(kind, name, namespace)
        except NotFound:
            return None


def _checks_among(pods: Sequence[Pod]) -> tuple[tuple[str, str], ...]:
    """The pods of healthd's own checks that are not on their way out: names and uids."""
    checks = (pod.metadata for pod in pods if is_check(pod) and pod.metadata.deletion_timestamp is None)
    return tuple((meta.name, meta.uid) for meta in checks)


def phase_of(recovery: Recovery) -> Phase:
    """The phase of a recovery; while it is held, the phase in which it is held."""
    status = recovery.status
    return status.held_in if status.phase is Phase.HELD and status.held_in else status.phase


def _to_return(recovery: Recovery) -> list[str]:
    """The nodes that the gang left and may get back by the plan that is made now."""
    phase, status = phase_of(recovery), recovery.status
    if phase not in (Phase.DETECTED, Phase.RESERVING, Phase.STARTING):
        return []
    records = [recovery.spec.shrunk, *(attempt.shrunk for attempt in status.attempts)]
    left = {name for record in records if record for name in record.nodes[: record.size - record.members]}
    return sorted(left - {pod.node for pod in status.pods})


def _needs_all(recovery: Recovery, view: GangView, now: datetime) -> bool:
    """Whether one more member would matter: the gang is stopped or being stopped, or was stopped again."""
    root = view.root
    if root is None:
        return False
    match phase_of(recovery):
        case Phase.FENCING:
            return True
        case Phase.STOPPING:
            proven = {pod.uid for pod in recovery.status.pods if pod.proof}
            open_ends = (pod for pod in view.pods if pod.metadata.uid not in proven)
            return root.stopped and not any(will_report(pod, now) for pod in open_ends)
        case Phase.STARTING:
            return root.suspended and root.attempt == recovery.status.attempt
    return False


def _may_be_history(view: GangView) -> bool:
    """Whether members were created before the last start of the gang, as far as clocks of other machines show."""
    started = view.root.started_at if view.root else None
    made = [pod.metadata.creation_timestamp for pod in members(view)]
    return started is not None and any(at is not None and at < started for at in made)


def hinges(recovery: Recovery, root: Root | None) -> list[str]:
    """The nodes that the next decision about *recovery* depends on."""
    status = recovery.status
    pods = [pod for pod in status.pods if pod.node and not pod.proof]
    names: list[str] = []
    match phase_of(recovery):
        case Phase.DETECTED:
            causes = status.causes or [recovery.spec.cause]
            names = [name for each in causes for name in (each.node, *(suspect.node for suspect in each.suspects))]
        case Phase.STOPPING if root is not None and root.suspended:
            # The stop itself does not wait for these reads: there is time while the pods end.
            names = [pod.node for pod in pods if not pod.boot_id and not pod.agent_boot_id]
        case Phase.FENCING:
            names = [pod.node for pod in pods]
        case Phase.RESERVING:
            names = [*status.replacements, *status.replacements.values()]
        case Phase.STARTING if root is not None and root.attempt < status.attempt:
            names = [*status.replacements, *status.placement.values()]
        case Phase.STARTING:
            names = [*status.stand_ins.values()]
    return sorted({name for name in names if name})
