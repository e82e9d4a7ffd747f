"""
Compare the rails of the whole cluster once a minute, and report ports that stand out and rails that are congested.

A report changes nothing: no node is cordoned and no recovery begins because of what other nodes say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

import structlog

from healthd.clock import Clock
from healthd.controller.cache.cluster_state import ClusterState
from healthd.core.fabric.rail_comparison import Congestion, Fabric, Outlier, Survey
from healthd.telemetry.events import NORMAL, WARNING, Announce, about, silently
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger()

EVERY = timedelta(minutes=1)
OVER_AFTER = timedelta(minutes=30)
"""How long a port or a rail must be like the others before its end is reported, and it may be reported anew."""
AT_ONCE = 250
"""Nodes that are processed in one go: some milliseconds."""

K = TypeVar("K", bound=Hashable)


class PortOfNode(NamedTuple):
    """A port of the cluster."""

    node: str
    device: str
    number: int


class Episodes(Generic[K]):
    """What is going on, and when it was last seen. Each begin and each end is reported once."""

    def __init__(self) -> None:
        self._seen: dict[K, datetime] = {}

    def enter(self, seen: Iterable[K], now: datetime) -> tuple[list[K], list[K]]:
        """What began with this comparison, and what is over."""
        seen = list(seen)
        began = [one for one in seen if one not in self._seen]
        self._seen |= dict.fromkeys(seen, now)
        over = [one for one, at in self._seen.items() if now - at >= OVER_AFTER]
        for one in over:
            del self._seen[one]
        return began, over


class Rails:
    """Compares the nodes of *cluster_state*. It pauses while *trouble* gives a reason not to trust the cache."""

    def __init__(
        self,
        clock: Clock,
        cluster_state: ClusterState,
        metrics: Metrics,
        announce: Announce = silently,
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._cluster_state = cluster_state
        self._metrics = metrics
        self._announce = announce
        self._trouble = trouble
        self._outliers: Episodes[PortOfNode] = Episodes()
        self._congested: Episodes[tuple[int, str, float]] = Episodes()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(EVERY)
            if self._trouble():
                continue
            try:
                self._announce_changes(await self.survey(), self._clock.now())
                self._metrics.loop_succeeded("fabric", self._clock.now())
            except Exception as error:  # a failed report must not stop the recoveries
                log.exception("fabric.failed", error=str(error))

    async def survey(self) -> Fabric:
        """The comparison of all nodes. Other tasks have their turn meanwhile."""
        survey, now = Survey(), self._clock.now()
        for number, (name, health) in enumerate(list(self._cluster_state.health.items()), start=1):
            survey.enter(name, health, now)
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        return survey.compare()

    def _announce_changes(self, fabric: Fabric, now: datetime) -> None:
        self._metrics.show_fabric(fabric.ports_out(), fabric.nodes_congested())
        self._announce_outliers(_farthest(fabric.outliers), now)
        self._log_congestion({each.track.where: each for each in fabric.congested}, now)

    def _announce_outliers(self, outliers: Mapping[PortOfNode, Outlier], now: datetime) -> None:
        began, over = self._outliers.enter(outliers, now)
        for port in began:
            one = outliers[port]
            log.warning("fabric.outlier", node=port.node, device=port.device, port=port.number, why=one.message)
            self._announce_port(port, WARNING, "PortStandsOut", one.message)
        for port in over:
            log.info("fabric.outlier_over", node=port.node, device=port.device, port=port.number)
            message = f"Port {port.number} of {port.device} counts what others of its rail count."
            self._announce_port(port, NORMAL, "PortStandsOutOver", message)

    def _announce_port(self, port: PortOfNode, kind: str, reason: str, message: str) -> None:
        if node := self._cluster_state.nodes.get(port.node):
            self._announce(about(node), kind, reason, message)

    def _log_congestion(self, congested: Mapping[tuple[int, str, float], Congestion], now: datetime) -> None:
        began, over = self._congested.enter(congested, now)
        for where in began:
            log.warning("fabric.congested", rail=where[0], why=congested[where].message)
        for rail, *_ in over:
            log.info("fabric.congestion_over", rail=rail)


def _farthest(outliers: Iterable[Outlier]) -> dict[PortOfNode, Outlier]:
    """By port: the counter by which it stands out most."""
    by_port: dict[PortOfNode, Outlier] = {}
    for one in outliers:
        by_port.setdefault(PortOfNode(one.node, one.device, one.port), one)
    return by_port
