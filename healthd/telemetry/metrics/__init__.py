"""
Every metric of healthd, with its name, labels and meaning. The dashboards and the alert rules depend on this package.

All times are in seconds. Label values come from closed sets, or name a node, a device or a gang of this cluster; never
a pod, a path or a message. So the number of series grows with the hardware and not with time. Objects that are gone are
removed from the gauges, too.

Each topic has a module; `Metrics` is all of them. Agents import them, too: a module imports nothing that only the
controller needs.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics

from healthd.telemetry.metrics.alerts import AlertMetrics, BeatResult
from healthd.telemetry.metrics.cluster import SHOWN_LEMONS, ClusterMetrics
from healthd.telemetry.metrics.gangs import (
    SHOWN_GANGS,
    GangGpuTime,
    GangMetrics,
    GangSaves,
    GivenUpGang,
    HangingGang,
    HeldGang,
    RecoveringGang,
    SlowRank,
)
from healthd.telemetry.metrics.gpu_time import GpuTimeMetrics
from healthd.telemetry.metrics.nodes import NodeMetrics
from healthd.telemetry.metrics.process import OBJECT_ERRORS, ProcessMetrics
from healthd.telemetry.metrics.recoveries import RecoveryMetrics
from healthd.telemetry.metrics.remediations import RemediationMetrics

__all__ = [
    "OBJECT_ERRORS",
    "SHOWN_GANGS",
    "SHOWN_LEMONS",
    "BeatResult",
    "GangGpuTime",
    "GangSaves",
    "GivenUpGang",
    "HangingGang",
    "HeldGang",
    "Metrics",
    "RecoveringGang",
    "SlowRank",
]


class Metrics(
    ProcessMetrics,
    NodeMetrics,
    RecoveryMetrics,
    RemediationMetrics,
    ClusterMetrics,
    GangMetrics,
    GpuTimeMetrics,
    AlertMetrics,
):
    """The metrics of one process, on a separate registry: two instances never share a series."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        # A setting of the whole library: without it there is a `…_created` series for every counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in the library
        self.registry = registry = CollectorRegistry() if registry is None else registry
        ProcessCollector(registry=registry)
        self._make_process(registry)
        self._make_nodes(registry)
        self._make_recoveries(registry)
        self._make_remediations(registry)
        self._make_cluster(registry)
        self._make_gangs(registry)
        self._make_gpu_time(registry)
        self._make_alerts(registry)

    def forget_the_world(self) -> None:
        """Reset the gauges of the cluster, and of the leader's loops: from now on another controller shows them."""
        for shown in (self.incidents_open, self.alert_waiting, self.alert_oldest_waiting):
            shown.clear()
        for gauge in (self.leading, self.recovery_in_progress, self.nodes_without_agent, self.heartbeat_heard):
            gauge.set(0)
        self.loop_last_success.clear()
        self.show_spares(free=0, unfit=0, claimed=0)
        self.spares_wanted.set(0)
        self.show_lemons({})
        self.show_quarantined({})
        self.show_standstills((), ())
        self.show_recovering(())
        self.show_hanging(())
        self.show_stragglers(())
        self.show_gangs(())
        self.show_saves(())
        self.show_gpu_time(())
        self.show_fabric({}, {})
        self.show_below_peers({})
        self.show_held({})
        self.show_breaker(())
        self.show_remediations({}, {})
        self.show_spare_checks(passed={}, failed=(), in_doubt=False)
