"""Metrics of a process: its version, its loops, the API server, the informers, errors that ended nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Info

from healthd import __version__

OBJECT_ERRORS = ("watch", "cache", "gang", "tidy", "metrics", "event", "alerts")
"""Places where one object may cause an error."""


class ProcessMetrics:
    """What agents and controllers both have."""

    def _make_process(self, registry: CollectorRegistry) -> None:
        self.build = Info("healthd_build", "The version that runs.", registry=registry)
        self.build.info({"version": __version__})
        self.loop_last_success = Gauge(
            "healthd_loop_last_success_timestamp_seconds",
            "When a loop last went through without an error, as Unix time.",
            ["loop"],
            registry=registry,
        )
        self.events_dropped = Counter(
            "healthd_events_dropped_total",
            "Kubernetes Events that were not sent: too many at once, or the API server refused them.",
            registry=registry,
        )
        self.leading = Gauge(
            "healthd_leading",
            "1 in the controller that leads, 0 in one that stands by: only the leader shows the gauges of the cluster.",
            registry=registry,
        )
        self._make_api(registry)

    def _make_api(self, registry: CollectorRegistry) -> None:
        self.api_errors = Counter(
            "healthd_api_errors_total",
            "Requests to the API server that failed, by what went wrong.",
            ["error"],
            registry=registry,
        )
        self.object_errors = Counter(
            "healthd_object_errors_total",
            "Errors that one object brought out and that ended nothing else, by where: watch (also an object that does "
            "not fit its definition), cache, gang, tidy, metrics, event, alerts. The log names the object.",
            ["where"],
            registry=registry,
        )
        for where in OBJECT_ERRORS:
            self.object_errors.labels(where)
        self.watch_last_heard = Gauge(
            "healthd_watch_last_heard_timestamp_seconds",
            "When the API server last sent something on the watch of this node, as Unix time; 0 without a watch.",
            registry=registry,
        )
        self.informer_heard = Gauge(
            "healthd_informer_last_heard_timestamp_seconds",
            "When the API server last said something on the controller's watch of a kind, as Unix time; 0 before the "
            "first list. Decisions are paused while one of these is older than three minutes. A kind that is not "
            "installed has no series.",
            ["kind"],
            registry=registry,
        )
        self.kinds_forbidden = Gauge(
            "healthd_kind_forbidden",
            "1 for each kind of gangs that the cluster has and the controller lacks rights to: such gangs are not "
            "guarded. Other kinds have no series.",
            ["kind"],
            registry=registry,
        )

    def show_forbidden(self, kind: str, is_forbidden: bool) -> None:
        """Whether the controller lacks rights to *kind* (a plural, such as `rayjobs`)."""
        if is_forbidden:
            self.kinds_forbidden.labels(kind).set(1)
        else:
            with suppress(KeyError):
                self.kinds_forbidden.remove(kind)

    def follow_informer(self, kind: str, last_heard: Callable[[], float]) -> None:
        """Ask *last_heard* at each scrape when the watch of *kind* (a plural, such as `pods`) last said something."""
        self.informer_heard.labels(kind).set_function(last_heard)

    def loop_succeeded(self, loop: str, now: datetime) -> None:
        """Record that *loop* completed without an error."""
        self.loop_last_success.labels(loop).set(now.timestamp())
