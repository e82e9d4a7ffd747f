"""A cluster as Prometheus scrapes it: registries of controllers and agents, served over HTTP, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from healthd.clock import SystemClock
from healthd.core.api.model import BreakerTrigger, Hold, Verdict
from healthd.core.api.save_stats import Concern
from healthd.telemetry.metrics import GangSaves, GivenUpGang, HeldGang, Metrics
from tests.builders import a_finding
from tests.lab.endpoint import Endpoint, Page

AGENTS = 12
BLIND, RISING, DOWN = range(3, 7), range(3, 8), range(3)
"""Agents by number. The others have one trouble each."""
KERNEL, REFUSED, STOPPED = 8, 9, 10


class Cluster:
    """
    Controllers `a`, which leads, `b` and `c`, the real controller `real`, and agents `n0` to `n11`, all well.

    Each is a page of *endpoint*. Metrics are set by what healthd itself sets them with.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.controllers = {name: Metrics() for name in "abc"}
        self.agents = [Metrics() for _ in range(AGENTS)]
        self.heard = {name: timedelta(0) for name in self.controllers}
        """How long ago the watches of a controller have said something."""
        for name, metrics in self.controllers.items():
            metrics.follow_informer("pods", partial(self._last_heard, name))
            self.serve(name, partial(exposition, metrics))
        for number, metrics in enumerate(self.agents):
            metrics.show_node(f"n{number}", Verdict.HEALTHY, ())
            metrics.loop_succeeded("agent", now())
            metrics.watch_last_heard.set(now().timestamp())
            metrics.quarantine_budget.set(2)
            self.serve(f"n{number}", partial(exposition, metrics))
        self._lead(self.controllers["a"])

    def _last_heard(self, controller: str) -> float:
        return (now() - self.heard[controller]).timestamp()

    def _lead(self, leader: Metrics) -> None:
        leader.leading.set(1)
        leader.show_spares(free=2, unfit=0, claimed=0)
        leader.gang_attempt.labels("team-a", "restarts").set(1)
        leader.gang_step.labels("team-a", "restarts").set(100)
        for loop in ("controller", "fabric", "precheck"):
            leader.loop_succeeded(loop, now())

    def serve(self, name: str, page: Page) -> None:
        """What Prometheus gets of one of them; None: it is down."""
        self._endpoint.pages[f"/{name}"] = page

    def scrape(self) -> list[dict[str, Any]]:
        """The scrape configurations."""
        agents = {f"n{number}": {"node": f"n{number}"} for number in range(AGENTS)}
        controllers: dict[str, dict[str, str]] = {name: {} for name in (*self.controllers, "real")}
        return [self._job("healthd-controller", controllers), self._job("healthd-agent", agents)]

    def _job(self, job: str, targets: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
        configs = [
            {"targets": [self._endpoint.address], "labels": {"instance": name, "__metrics_path__": f"/{name}", **more}}
            for name, more in targets.items()
        ]
        return {"job_name": job, "honor_labels": True, "static_configs": configs}

    # Causes -----------------------------------------------------------------------------------------------------------

    def break_nodes(self) -> None:
        """Agents are down, blind, refused, cut off; faults of one kind rise; kernel records are lost."""
        for number, metrics in enumerate(self.agents):
            findings = [a_finding()] if number in RISING else []
            blind = ["nvml"] if number in BLIND else []
            metrics.show_node(f"n{number}", Verdict.UNKNOWN if blind else Verdict.HEALTHY, findings, blind)
        for number in DOWN:
            self.serve(f"n{number}", None)
        self.agents[KERNEL].kernel_records_lost.inc(50)
        self.agents[REFUSED].quarantine_refused.inc()
        self.agents[STOPPED].loop_succeeded("agent", ago(minutes=10))

    def break_gangs(self) -> None:
        """Gangs wait, are given up, restart in vain, cannot be read, or save badly."""
        leader = self.controllers["a"]
        leader.show_standstills(
            [HeldGang("team-a", "waits", Hold.SPARE, ago(minutes=10))], [GivenUpGang("team-a", "ended", ago(hours=1))]
        )
        leader.gang_attempt.labels("team-a", "restarts").set(3)
        leader.gangs_invalid.set(1)
        leader.show_forbidden("rayjobs", is_forbidden=True)
        saved, interval = ago(hours=2), timedelta(minutes=10)
        wrong = [Concern.LATE, Concern.FULL, Concern.SLOWER]
        leader.show_saves(
            [
                GangSaves("team-a", "never", None, None, None, [Concern.REFUSED]),
                GangSaves("team-a", "older", saved, interval, interval, [Concern.REFUSED]),
                GangSaves("team-a", "badly", saved, interval, interval, wrong),
            ]
        )

    def break_service(self) -> None:
        """
        The budget and the spares are used up, a spare fails its check, the breaker is open, loops stand still, objects
        and Events fail.
        """
        leader = self.controllers["a"]
        leader.show_quarantined({"n3": ago(days=2), "n4": ago(hours=1)})
        leader.show_spares(free=1, unfit=1, claimed=0)
        leader.spares_wanted.set(3)
        leader.show_spare_checks(passed={}, failed=["n11"], in_doubt=True)
        leader.show_breaker([BreakerTrigger.NODES])
        leader.nodes_without_agent.set(2)
        leader.object_errors.labels("gang").inc()
        leader.events_dropped.inc(100)
        leader.loop_succeeded("controller", ago(minutes=10))
        leader.loop_succeeded("fabric", ago(hours=1))
        self.controllers["b"].leading.set(1)
        self.heard["b"] = timedelta(minutes=10)
        self.serve("c", None)

    def end_leaders(self) -> None:
        """Controllers run, and none leads."""
        for metrics in self.controllers.values():
            metrics.forget_the_world()

    def end_controllers(self) -> None:
        """No controller answers."""
        for name in (*self.controllers, "real"):
            self.serve(name, None)


def now() -> datetime:
    return SystemClock().now()


def ago(**span: float) -> datetime:
    return now() - timedelta(**span)


def exposition(metrics: Metrics, seen_at: Callable[[], datetime] = now) -> str:
    """
    What `/metrics` shows. *seen_at* is the time by the clock of who set the metrics: its times are moved from there to
    now.
    """
    moved = (now() - seen_at()).total_seconds()
    moved = 0.0 if abs(moved) < 1 else moved
    lines = []
    for sample in (sample for family in metrics.registry.collect() for sample in family.samples):
        if sample.name.startswith("healthd_") and "_bucket" not in sample.name:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            value = sample.value + (moved if sample.name.endswith("_timestamp_seconds") else 0)
            lines.append(f"{sample.name}{{{labels}}} {value!r}\n")
    return "".join(lines)
