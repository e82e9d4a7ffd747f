"""How an agent reads its node: with a request each time, or from a watch that costs an idle cluster nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError, EventType, NotFound, Unavailable, Unusable
from healthd.core.api import Node
from healthd.core.backoff import Backoff, Jitter
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

STALE_AFTER = timedelta(minutes=4)
"""Without an event of the watch. An API server sends a bookmark about every minute."""
FIRST_RETRY = timedelta(seconds=1)
LONGEST_RETRY = timedelta(seconds=30)


class NodeView(Protocol):
    """How an agent reads its node."""

    async def node(self) -> Node:
        """The node as last seen. A write based on it needs a precondition. Raises ClusterError."""
        ...

    async def reread(self) -> Node:
        """The node as it is in the cluster now. Raises ClusterError."""
        ...

    def wrote(self, node: Node) -> None:
        """The cluster's answer to a write of this agent: newer than what was seen before."""
        ...


class AskedNode:
    """Reads the node from the cluster each time."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    async def node(self) -> Node:
        """The node as it is in the cluster now."""
        return await self._cluster.get(Node, self._name)

    async def reread(self) -> Node:
        """The same as `node`."""
        return await self.node()

    def wrote(self, node: Node) -> None:
        """Does nothing: no node is cached."""


class WatchedNode:
    """Keeps one node current by a watch of it alone, and calls *on_change* when it changed or was first seen."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        name: str,
        on_change: Callable[[], None],
        *,
        jitter: Jitter,
        metrics: Metrics,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._name = name
        self._fields = {"metadata.name": name}
        self._on_change = on_change
        self._backoff = Backoff(FIRST_RETRY, LONGEST_RETRY, jitter)
        self._metrics = metrics
        self._node: Node | None = None
        self._trouble: ClusterError = Unavailable(f"node {name} was not read yet")
        self._active_at: datetime | None = None
        self._seen = asyncio.Event()

    async def seen(self) -> None:
        """Return once the node was seen for the first time."""
        await self._seen.wait()

    async def node(self) -> Node:
        """The node as of the last watch event. Raises the error that keeps it unknown."""
        if self._node is None:
            raise self._trouble
        return self._node

    async def reread(self) -> Node:
        """One request. Raises ClusterError."""
        node = await self._cluster.get(Node, self._name)
        self.wrote(node)
        return node

    def wrote(self, node: Node) -> None:
        """Store it, unless the watch has meanwhile delivered something newer."""
        if self._node is None or _is_newer(node, self._node):
            self._node = node

    def trouble(self) -> str | None:
        """Why the cached node may be out of date. None while the watch works. A check of `/readyz`."""
        if self._node is None:
            return str(self._trouble)
        silent = STALE_AFTER if self._active_at is None else self._clock.now() - self._active_at
        return f"the API server has sent nothing for {silent.total_seconds():.0f} s" if silent >= STALE_AFTER else None

    async def follow(self) -> None:
        """List and watch until cancelled. Raises Unusable."""
        while True:
            try:
                await self._follow_once()
            except Unusable:
                raise
            except ClusterError as error:
                self._metrics.api_errors.labels(type(error).__name__).inc()
                log.info("watch.restarts", node=self._name, error=str(error))
                if self._node is None:
                    self._trouble = error
            await self._clock.sleep(self._backoff.next())

    async def _follow_once(self) -> None:
        listed = await self._cluster.list(Node, fields=self._fields)
        self._note_activity()
        self._node = None  # a list is always newest, also from a server whose versions went back to a backup
        self._see(listed.items[0] if listed.items else None)
        events: Any = self._cluster.watch(Node, since=listed.resource_version, fields=self._fields)
        async with aclosing(events):
            async for event in events:
                self._note_activity()
                if event.type is not EventType.BOOKMARK:
                    self._see(None if event.type is EventType.DELETED else event.obj)

    def _note_activity(self) -> None:
        self._active_at = self._clock.now()
        self._backoff.reset()
        self._metrics.watch_last_heard.set(self._active_at.timestamp())

    def _see(self, node: Node | None) -> None:
        """Watch events arrive in order, but later than the answers to the agent's own writes."""
        if node is None:
            self._node, self._trouble = None, NotFound(f"there is no node {self._name} in the cluster")
        elif self._node is not None and not _is_newer(node, self._node):
            return
        else:
            self._node = node
            self._seen.set()
        self._on_change()


def _is_newer(node: Node, than: Node) -> bool:
    """Versions of one object are numbers that grow. Of a node that was created anew, the last to arrive counts."""
    new, old = node.metadata.resource_version, than.metadata.resource_version
    if node.metadata.uid != than.metadata.uid or not (new.isdigit() and old.isdigit()):
        return True
    return int(new) > int(old)
