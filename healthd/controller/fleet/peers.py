"""
Compare the hardware of all nodes once a minute, and report nodes that have less than others of their kind.

A report is an Event, a metric, and an annotation on the node, of which its agent makes a finding. It takes no node out
of service. The annotation is the record of what was reported: another leader reports nothing twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

import structlog

from healthd.clock import Clock
from healthd.cluster.port import Cluster, ClusterError
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.api import ANNOTATION_BELOW_PEERS, Node, NodeHealth
from healthd.core.fabric.peer_comparison import (
    PeerGroups,
    Shortfall,
    amounts_of,
    group_of,
    is_comparable,
    message_of,
)
from healthd.telemetry.events import NORMAL, WARNING, Announce, about, silently
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

EVERY = timedelta(minutes=1)
HOLDS = timedelta(minutes=10)
"""How long a node must be short, or like its peers again, before that is reported: nodes boot, agents are replaced."""
AT_ONCE = 500
"""Nodes that are processed in one go: a few milliseconds."""
MOST_WRITES = 50
"""In one pass: when a fleet is changed, its nodes are not all written in one minute."""


class Peers:
    """Compares the nodes of *cluster_state*. It pauses while *trouble* gives a reason not to trust the cache."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        cluster_state: ClusterState,
        metrics: Metrics,
        announce: Announce = silently,
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._cluster_state = cluster_state
        self._metrics = metrics
        self._announce = announce
        self._trouble = trouble
        self._groups = PeerGroups()
        self._entered: dict[str, tuple[Node, NodeHealth]] = {}
        """As they were entered: a node that did not change since is not looked at again."""
        self._since: dict[str, tuple[str, datetime]] = {}
        """By node: what should be on it, and since when it is not."""
        self._failed = ""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(EVERY)
            if self._trouble():
                self._since.clear()
                continue
            try:
                await self._report(await self.compare(), self._clock.now())
            except Exception as error:  # a failed report must not stop the recoveries
                log.exception("peers.failed", error=str(error))

    async def compare(self) -> Mapping[str, Sequence[Shortfall]]:
        """What each node is short of. Other tasks have their turn meanwhile."""
        now = self._clock.now()
        health = self._cluster_state.health
        for name in [name for name in self._entered if name not in health]:
            self._leave(name)
        for number, (name, one) in enumerate(list(health.items()), start=1):
            self._enter(name, one, now)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        return self._groups.short()

    def _enter(self, name: str, health: NodeHealth, now: datetime) -> None:
        node = self._cluster_state.nodes.get(name)
        if node is None or not is_comparable(health.status, now):
            self._leave(name)
            return
        known = self._entered.get(name)
        if known is None or known[0] is not node or known[1] is not health:
            self._groups.enter(name, group_of(node, health.status), amounts_of(health.status.best))
            self._entered[name] = node, health

    def _leave(self, name: str) -> None:
        if self._entered.pop(name, None) is not None:
            self._groups.leave(name)

    async def _report(self, short: Mapping[str, Sequence[Shortfall]], now: datetime) -> None:
        self._metrics.show_below_peers(Counter(one.part.value for each in short.values() for one in each))
        for name in self._due(short, now)[:MOST_WRITES]:
            if (node := self._cluster_state.nodes.get(name)) is not None:  # it may leave meanwhile
                await self._write(node, short.get(name, ()))

    def _due(self, short: Mapping[str, Sequence[Shortfall]], now: datetime) -> list[str]:
        """
        The nodes whose annotation has not been what it should be for `HOLDS`.

        A node of which too little is known now keeps what was reported.
        """
        wrong: dict[str, str] = {}
        for name in self._entered:
            node = self._cluster_state.nodes.get(name)
            wanted = "; ".join(one.brief for one in short[name]) if name in short else ""
            if node is not None and wanted != node.metadata.annotations.get(ANNOTATION_BELOW_PEERS, ""):
                wrong[name] = wanted
        self._since = {name: self._since_when(name, wanted, now) for name, wanted in wrong.items()}
        return sorted(name for name, (_, since) in self._since.items() if now - since >= HOLDS)

    def _since_when(self, name: str, wanted: str, now: datetime) -> tuple[str, datetime]:
        known = self._since.get(name)
        return known if known is not None and known[0] == wanted else (wanted, now)

    async def _write(self, node: Node, short: Sequence[Shortfall]) -> None:
        name, known = node.metadata.name, ANNOTATION_BELOW_PEERS in node.metadata.annotations
        wanted, _ = self._since.pop(name)
        patch = {"metadata": {"annotations": {ANNOTATION_BELOW_PEERS: wanted or None}}}
        try:
            self._cluster_state.upsert(await self._cluster.patch(Node, name, patch, uid=node.metadata.uid))
        except ClusterError as error:
            if str(error) != self._failed:  # a lasting error is logged once
                log.warning("peers.not_written", node=name, error=str(error))
            self._failed = str(error)
            return
        self._failed = ""
        if not wanted:
            log.info("node.below_peers_over", node=name)
            message = "This node has what its peers have, or there are too few to compare it with."
            self._announce(about(node), NORMAL, "BelowPeersOver", message)
        elif not known:
            log.warning("node.below_peers", node=name, why=message_of(short))
            self._announce(about(node), WARNING, "BelowPeers", message_of(short))
