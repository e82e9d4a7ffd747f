"""Write what the agent knows to its `NodeHealth` and to the conditions of its node, and no more often than needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
import structlog

from healthd.cluster.nodes import owned_by
from healthd.cluster.port import AlreadyExists, Cluster, Invalid, NotFound
from healthd.core.api import Node, NodeHealth, NodeHealthStatus, ObjectMeta
from healthd.core.api.model import Finding
from healthd.core.backoff import Jitter
from healthd.core.node import conditions
from healthd.core.node.reporting import REFRESH_AFTER, write_at
from healthd.core.patches import diff

log = structlog.get_logger(__name__)


class Reporter:
    """
    The only writer of a node's health object, so no precondition is needed: the last write is always the newest.

    It remembers the stored state, and forgets it while a write is in flight: a write whose answer is lost may have
    succeeded.
    """

    def __init__(self, cluster: Cluster, node_name: str, *, jitter: Jitter) -> None:
        self._cluster = cluster
        self._node_name = node_name
        self._refresh_after = REFRESH_AFTER * (1 + jitter() / 2)  # agents that start together spread their writes
        self._stored: NodeHealthStatus | None = None
        self._node_uid = ""
        self._written: datetime | None = None
        self.due: datetime | None = None
        """When delayed changes must be written. None: nothing waits."""

    async def read(self, now: datetime) -> NodeHealthStatus | None:
        """The stored status. None when nothing was published yet, or nothing that can be read. Raises ClusterError."""
        try:
            health = await self._cluster.get(NodeHealth, self._node_name)
        except NotFound:
            return None
        except Invalid as error:  # as a newer healthd wrote it, say: what is stored never keeps a node unguarded
            so = "the node is guarded as if nothing were stored, and the report is written anew"
            log.error("node_health.unreadable", node=self._node_name, why=str(error), so=so)
            return None
        self._stored, self._written = health.status, now
        return health.status

    async def report(self, node: Node, known: NodeHealthStatus, now: datetime, *, even_details: bool = False) -> None:
        """Store *known* when a write is due, or with *even_details* when it differs at all. Raises ClusterError."""
        if self._node_uid not in ("", node.metadata.uid):  # created anew: the old node's object was deleted with it
            self._stored = None
        self._node_uid = node.metadata.uid
        self.due = self._due(known, now)
        if now < self.due and not (even_details and self._differs(known)):
            return
        before, self._stored = self._stored, None
        if before is None:
            before = await self._read_or_create(node, now)
        known = msgspec.structs.replace(known, seen_at=now.replace(microsecond=0))
        if patch := diff(before, known):
            await self._cluster.patch(NodeHealth, self._node_name, {"status": patch}, subresource="status")
        self._stored, self._written = known, now
        self.due = self._due(known, now)

    async def show(
        self, node: Node, findings: Sequence[Finding], blind: Mapping[str, str], now: datetime
    ) -> Node | None:
        """Set the node's conditions. Returns the node as written, None when no write was due. Raises ClusterError."""
        wanted = conditions.state(findings, blind)
        to_write = conditions.to_write(node.status.conditions, wanted, now, refresh_after=self._refresh_after)
        if to_write is None:
            return None
        # A merge patch replaces the whole list, so it must fail if another writer changed a condition since the read.
        return await self._cluster.patch(
            Node,
            self._node_name,
            {"status": {"conditions": msgspec.to_builtins(to_write)}},
            subresource="status",
            resource_version=node.metadata.resource_version,
        )

    def _due(self, known: NodeHealthStatus, now: datetime) -> datetime:
        if self._stored is None or self._written is None:
            return now
        if max(self._written, self._stored.seen_at or now) > now:
            return now  # the clock was set back, so the stored time is in the future
        return write_at(self._stored, known, written=self._written, refresh_after=self._refresh_after)

    def _differs(self, known: NodeHealthStatus) -> bool:
        return self._stored is None or msgspec.structs.replace(known, seen_at=self._stored.seen_at) != self._stored

    async def _read_or_create(self, node: Node, now: datetime) -> NodeHealthStatus:
        stored = await self.read(now)
        self._stored = None
        return stored or await self._create(node)

    async def _create(self, node: Node) -> NodeHealthStatus:
        meta = ObjectMeta(name=self._node_name, owner_references=[owned_by(node)])
        try:
            created = await self._cluster.create(NodeHealth(metadata=meta))
        except AlreadyExists:  # it cannot be read, so no patch can be made from it
            created = await self._cluster.patch(NodeHealth, self._node_name, {"status": None}, subresource="status")
        return created.status
