"""Metrics of the cluster as the leading controller sees it: nodes out of service, spares, rails, peers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from prometheus_client import CollectorRegistry, Gauge

SHOWN_LEMONS = 100
"""Nodes. More lemons than that are another problem."""


class ClusterMetrics:
    """What the leading controller sets from all nodes."""

    def _make_cluster(self, registry: CollectorRegistry) -> None:
        self.quarantined_nodes = Gauge(
            "healthd_quarantined_nodes",
            "Nodes that healthd holds in quarantine, as the controller sees it.",
            registry=registry,
        )
        self.node_quarantined_since = Gauge(
            "healthd_node_quarantined_since_timestamp_seconds",
            "Since when healthd holds a node in quarantine, as Unix time. Other nodes have no series.",
            ["node"],
            registry=registry,
        )
        self.nodes_without_agent = Gauge(
            "healthd_nodes_without_agent",
            "Nodes whose agent never reported, or not for three hours. Where any node has accelerators, only such "
            "nodes count.",
            registry=registry,
        )
        self.spares = Gauge("healthd_spares", "Spare nodes that are free to be taken.", registry=registry)
        self.spares_unfit = Gauge(
            "healthd_spares_unfit",
            "Spare nodes that are free and cannot be used: in quarantine, cordoned, not ready or unhealthy. They are "
            "part of `healthd_spares`.",
            registry=registry,
        )
        self.spares_claimed = Gauge(
            "healthd_spares_claimed", "Spare nodes that gangs hold in place of bad nodes.", registry=registry
        )
        self._make_reliability(registry)
        self._make_fabric(registry)

    def _make_reliability(self, registry: CollectorRegistry) -> None:
        self.spares_wanted = Gauge(
            "healthd_spares_wanted",
            "Spare nodes, free and claimed together, with which a node is missing for at most 1 % of the time: from "
            "the failures and repairs of this fleet, and from published figures as long as there are few. "
            "`healthd spares plan` explains it. 0: not known.",
            registry=registry,
        )
        self.lemons = Gauge(
            "healthd_lemons",
            "Nodes that fail much more often than others of their kind, by themselves or for a GPU in them.",
            registry=registry,
        )
        self.node_lemon = Gauge(
            "healthd_node_lemon_probability",
            f"How likely it is that a node is a lemon. Only lemons have a series, at most {SHOWN_LEMONS}.",
            ["node"],
            registry=registry,
        )

    def _make_fabric(self, registry: CollectorRegistry) -> None:
        self.fabric_outliers = Gauge(
            "healthd_fabric_outliers",
            "Ports of a rail whose counters of loss grow far more than those of the same rail on other nodes.",
            ["rail"],
            registry=registry,
        )
        self.nodes_below_peers = Gauge(
            "healthd_nodes_below_peers",
            "Nodes that have less of a part than nodes of the same kind, since their first boot.",
            ["part"],
            registry=registry,
        )
        self.fabric_congested = Gauge(
            "healthd_fabric_congested",
            "Nodes that are in the congestion of a rail; 0 while it is not congested as a whole.",
            ["rail"],
            registry=registry,
        )

    def show_quarantined(self, since: Mapping[str, datetime]) -> None:
        """Set the nodes in quarantine to exactly this: node -> since when."""
        self.quarantined_nodes.set(len(since))
        self.node_quarantined_since.clear()
        for node, at in since.items():
            self.node_quarantined_since.labels(node).set(at.timestamp())

    def show_spares(self, *, free: int, unfit: int, claimed: int) -> None:
        """Set how many spares are free, how many of these cannot be used, and how many gangs hold one."""
        self.spares.set(free)
        self.spares_unfit.set(unfit)
        self.spares_claimed.set(claimed)

    def show_lemons(self, probabilities: Mapping[str, float]) -> None:
        """Set the lemons to exactly this: node -> how likely it is one."""
        self.lemons.set(len(probabilities))
        self.node_lemon.clear()
        for node in sorted(probabilities, key=lambda each: (-probabilities[each], each))[:SHOWN_LEMONS]:
            self.node_lemon.labels(node).set(probabilities[node])

    def show_fabric(self, outliers: Mapping[int, int], congested: Mapping[int, int]) -> None:
        """Set the gauges of rails to exactly this, by rail; a rail that is not named was not compared."""
        for gauge, counts in ((self.fabric_outliers, outliers), (self.fabric_congested, congested)):
            gauge.clear()
            for rail, count in counts.items():
                gauge.labels(str(rail)).set(count)

    def show_below_peers(self, counts: Mapping[str, int]) -> None:
        """Set how many nodes are short of each part; a part that is not named: none."""
        self.nodes_below_peers.clear()
        for part, count in counts.items():
            self.nodes_below_peers.labels(part).set(count)
