"""
Release what is no longer needed: spares of ended gangs, pods that only healthd's finalizer keeps, old hints.

None of it is urgent. The cluster state shows what may be released. Before a write, the objects that might still need it
are read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import structlog

from healthd.cluster.port import Cluster, ClusterError, Conflict, Forbidden, NotFound, TooManyRequests, Unavailable
from healthd.controller.act import release_pod, settle, take_hint_away
from healthd.controller.cache.cluster_state import ClusterState, GangKey, ObjectKey
from healthd.controller.fresh_reads import FreshReader
from healthd.core.api import LABEL_HINT, CustomObject, GangRef, Node, Pod, Recovery
from healthd.core.api.model import ENDED, Phase
from healthd.core.config import RecoveryPolicy
from healthd.core.recovery.gang import Root, RootOutcome
from healthd.core.recovery.members import attempt_of, will_not_run
from healthd.core.recovery.nodes import spares
from healthd.core.recovery.nodes.foreign_signs import Sign
from healthd.core.recovery.nodes.placement import held_nodes
from healthd.core.recovery.nodes.spares import Claim, SpareStep, read_claim
from healthd.core.recovery.rebuilding import roots_of
from healthd.core.recovery.retention import outdated
from healthd.core.recovery.root_state import given_up_by
from healthd.gangs.adapter import GangAdapter
from healthd.telemetry.isolation import Isolation

log = structlog.get_logger()

T = TypeVar("T", str, ObjectKey, Recovery)

SignsOn = Callable[[Mapping[str, Node]], Callable[[str], Sign | None]]
"""Makes, for a set of nodes, the reader of the strongest sign of another detector on each of them."""
FEW = 10
"""Deletions in one pass; the rest follows in the next pass."""


class GarbageCollector:
    """Searches the cluster state for what is no longer needed, and releases it through *cluster*."""

    def __init__(
        self,
        cluster: Cluster,
        cluster_state: ClusterState,
        fresh_reader: FreshReader,
        adapters: Mapping[str, GangAdapter[Any]],
        isolation: Isolation,
    ) -> None:
        self._cluster = cluster
        self._cluster_state = cluster_state
        self._fresh_reader = fresh_reader
        self._adapters = adapters
        self._isolation = isolation

    async def tidy(self, signs_on: SignsOn) -> None:
        """Release all that is no longer needed. *signs_on* reads other detectors' signs. Raises ClusterError."""
        errors = [
            await self._each("node", self._loose_spares(signs_on), lambda name: self._settle(name, signs_on)),
            await self._each("node", sorted(self._cluster_state.spare_nodes), partial(self._correct, spares.unheld)),
            await self._each(
                "node", sorted(self._cluster_state.unclaimed_nodes), partial(self._correct, spares.unclaimed)
            ),
            await self._each("pod", self._loose_pods(), self._let_go),
            await self._each("recovery", self._loose_hints(), self._unlabel),
        ]
        for error in filter(None, errors):
            raise error

    async def _each(
        self, what: str, items: Iterable[T], give_back: Callable[[T], Awaitable[None]]
    ) -> ClusterError | None:
        """One after the other. A failed item does not stop the others; it is done next time. Returns the last error."""
        failed = None
        for item in items:
            with self._isolation.of("tidy", f"{what} {_named(item)}"):
                try:
                    await give_back(item)
                except (Unavailable, TooManyRequests):
                    raise  # an error of the cluster, not of this object
                except ClusterError as error:
                    failed = error
        return failed

    async def forget_old(self, policy: RecoveryPolicy, now: datetime) -> None:
        """Delete the recoveries that are no longer needed, a few at a time. Raises ClusterError."""
        living = {root.ref for root in self._cluster_state.roots.values()}
        for recovery in outdated(self._cluster_state.recoveries(), living, policy, now)[:FEW]:
            meta = recovery.metadata
            with suppress(Conflict, NotFound):
                await self._cluster.delete(
                    Recovery,
                    meta.name,
                    namespace=meta.namespace,
                    uid=meta.uid,
                    resource_version=meta.resource_version,
                )
                log.info("recovery.forgotten", recovery=meta.name, phase=recovery.status.phase)

    # Spares ---------------------------------------------------------------------------------------------------------

    def _loose_spares(self, signs_on: SignsOn) -> list[str]:
        """Claimed nodes whose claim may have ended."""
        cluster_state = self._cluster_state
        if not cluster_state.claimed_nodes:
            return []
        active = {uid for recovery in cluster_state.active_recoveries() for uid in roots_of(recovery)}
        placements = {
            root.ref.uid: self._held(root) for root in cluster_state.roots.values() if not self._is_over(root)
        }
        claims = {
            name: claim for name in cluster_state.claimed_nodes if (claim := read_claim(cluster_state.nodes[name]))
        }
        names = {*claims, *(claim.instead_of for claim in claims.values())}
        nodes = {name: cluster_state.nodes[name] for name in names if name in cluster_state.nodes}
        unreadable = {root.ref.uid for root in cluster_state.roots.values() if root.invalid}
        steps = spares.settle(
            nodes,
            cluster_state.health,
            placements=placements,
            recovering={*active, *unreadable},
            busy=cluster_state.busy_nodes() | self._planned(),
            sign_on=signs_on(nodes),
        )
        loose = {step.node for step in steps}
        return sorted(name for name, claim in claims.items() if loose & {name, claim.instead_of})

    def _planned(self) -> set[str]:
        """Nodes in a gang's placement, now or later: a stopped gang starts again on the nodes where it was."""
        held = [self._held(root) for root in self._cluster_state.roots.values() if not self._is_over(root)]
        stopped = [recovery.status for recovery in self._cluster_state.active_recoveries()]
        coming = [(*status.placement.values(), *(pod.node for pod in status.pods)) for status in stopped]
        return {node for plan in (*held, *coming) for node in plan}

    def _held(self, root: Root) -> set[str]:
        return held_nodes(root, self._cluster_state.members(root.ref))

    def _is_over(self, root: Root) -> bool:
        return _is_over(root, self._cluster_state.of_gang(root.ref))

    async def _correct(self, steps_for: Callable[[Iterable[Node]], Sequence[SpareStep]], name: str) -> None:
        """Finish what a person wrote to the node by half, such as the label of a spare without its taint."""
        if not steps_for([self._cluster_state.nodes[name]]):
            return
        node = await self._node(name)
        if node is None:
            return
        for step in steps_for([node]):
            self._cluster_state.upsert(await settle(self._cluster, step, node))
            log.info("spare.corrected", node=name, why=step.reason)

    async def _settle(self, name: str, signs_on: SignsOn) -> None:
        """
        Release the claim on *name*, if it has really ended.

        The nodes are read before the recoveries. So when a claim is seen on a node, its recovery is seen, too.
        """
        node = await self._node(name)
        claim = read_claim(node) if node else None
        if node is None or claim is None:
            return
        rivals = await self._rivals(name, claim)
        bad = await self._node(claim.instead_of) if claim.instead_of else None
        nodes = {name: node} | ({claim.instead_of: bad} if bad else {}) | rivals
        gang = GangRef(kind="", name=claim.gang, namespace=claim.namespace, uid=claim.gang_uid)
        recoveries = await self._fresh_reader.recoveries(gang)
        recovering = any(each.status.phase not in ENDED for each in recoveries)
        root = await self._root_of(claim)
        others = {each.gang_uid for node in rivals.values() if (each := read_claim(node))} - {claim.gang_uid}
        steps = spares.settle(
            nodes,
            self._cluster_state.health,
            placements={root.ref.uid: self._held(root)} if root and not _is_over(root, recoveries) else {},
            recovering=others | ({claim.gang_uid} if recovering or (root and root.invalid) else set()),
            busy=self._cluster_state.busy_nodes() | self._planned(),
            sign_on=signs_on(nodes),
        )
        occupied = await self._fresh_reader.occupied(
            [s.node for s in steps if isinstance(s, spares.ReturnSpare)], nodes
        )
        for step in steps:
            if step.node in occupied:
                continue  # by a pod that the cluster state does not show yet, or that is none of a gang
            self._cluster_state.upsert(await settle(self._cluster, step, nodes[step.node]))
            log.info("spare.settled", node=step.node, why=step.reason)

    async def _rivals(self, name: str, claim: Claim) -> dict[str, Node]:
        """The other nodes that are claimed in place of the same bad node."""
        if not claim.instead_of:
            return {}
        known = {other: read_claim(self._cluster_state.nodes[other]) for other in self._cluster_state.claimed_nodes}
        named = [other for other, its in known.items() if other != name and its and its.instead_of == claim.instead_of]
        return {other: node for other in sorted(named) if (node := await self._node(other)) is not None}

    async def _node(self, name: str) -> Node | None:
        try:
            return await self._cluster.get(Node, name)
        except NotFound:
            return None

    async def _root_of(self, claim: Claim) -> Root | None:
        """The root that a claim names: of any kind, with the uid in the claim."""
        for kind, adapter in self._adapters.items():
            gang = GangRef(kind=kind, name=claim.gang, namespace=claim.namespace, uid=claim.gang_uid)
            if root := await self._find(adapter, gang):
                return root
        return None

    async def _find(self, adapter: GangAdapter[Any], gang: GangRef) -> Root | None:
        """
        The root, freshly read. Raises ClusterError.

        A kind of custom objects that may not be read has no gangs that healthd guards: it must not keep the leftovers
        of the other kinds from being released.
        """
        try:
            return await adapter.find(self._cluster, gang)
        except Forbidden:
            if issubclass(adapter.kind, CustomObject):
                return None
            raise

    # Pods -----------------------------------------------------------------------------------------------------------

    def _loose_pods(self) -> list[ObjectKey]:
        """Ended pods that no fence needs: of gangs that ended or are gone, and of earlier attempts."""
        return sorted(key for key in self._cluster_state.fenced_pods if self._is_loose(key))

    def _is_loose(self, key: ObjectKey) -> bool:
        pod, home = self._cluster_state.pod(key), self._cluster_state.gang_of(key)
        root = self._cluster_state.roots.get(home) if home else None
        if not will_not_run(pod):
            return False
        return root is None or (self._cluster_state.active(root.ref) is None and _is_history(pod, root))

    async def _let_go(self, key: ObjectKey) -> None:
        pod = self._cluster_state.pod(key)
        home = await self._home(pod)
        if home is not None:
            recoveries = await self._fresh_reader.recoveries(home.ref)
            if any(each.status.phase not in ENDED for each in recoveries) or not _is_history(pod, home):
                return
        await release_pod(self._cluster, pod)

    async def _home(self, pod: Pod) -> Root | None:
        """The root that *pod* belongs to, freshly read."""
        for kind, adapter in self._adapters.items():
            name = adapter.root_name(pod)
            if not name:
                continue
            noticed = self._cluster_state.roots.get(GangKey(kind, pod.metadata.namespace, name))
            uid = adapter.root_uid(pod) or (noticed.ref.uid if noticed else "")
            gang = GangRef(kind=kind, name=name, namespace=pod.metadata.namespace, uid=uid)
            if uid and (root := await self._find(adapter, gang)):
                return root
        return None

    # Hints ----------------------------------------------------------------------------------------------------------

    def _loose_hints(self) -> list[Recovery]:
        labelled = [each for each in self._cluster_state.recoveries() if LABEL_HINT in each.metadata.labels]
        return [each for each in labelled if not needs_hint(each, self._cluster_state.root(each.spec.gang))]

    async def _unlabel(self, recovery: Recovery) -> None:
        try:
            self._cluster_state.upsert(await take_hint_away(self._cluster, recovery))
        except (Conflict, NotFound):
            return  # it changed since; the next pass reads it again


def _named(item: str | ObjectKey | Recovery) -> str:
    if isinstance(item, Recovery):
        item = ObjectKey(item.metadata.namespace, item.metadata.name)
    return item if isinstance(item, str) else "/".join(item)


def needs_hint(recovery: Recovery, root: Root | None) -> bool:
    """Whether *recovery* started the pods of the attempt that runs or is about to run."""
    if root is None or root.ending is not RootOutcome.NOT_ENDED or root.deleting:
        return False
    if root.invalid:
        return True
    status = recovery.status
    started = {attempt.number for attempt in status.attempts}
    return root.attempt in started or (status.phase not in ENDED and _may_start(status.phase, status.held_in))


def _may_start(phase: Phase, held_in: Phase | None) -> bool:
    return (held_in if phase is Phase.HELD and held_in else phase) in (Phase.STARTING, Phase.CONFIRMING)


def _is_history(pod: Pod, root: Root) -> bool:
    """No later recovery needs proof about *pod*, which will not run: it is of an earlier attempt, or never ran."""
    if not pod.spec.node_name:
        return True
    return root.ending is not RootOutcome.NOT_ENDED or root.deleting or attempt_of(pod) < root.attempt


def _is_over(root: Root, recoveries: Iterable[Recovery]) -> bool:
    """It will not run again by itself: it ended, or healthd gave it up. A user may resume a gang after taking over."""
    return root.ending is not RootOutcome.NOT_ENDED or root.deleting or given_up_by(root, recoveries) is not None
