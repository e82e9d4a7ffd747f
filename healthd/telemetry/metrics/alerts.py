"""Metrics of the alerts that the leading controller sends."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge


class BeatResult(StrEnum):
    """What became of a heartbeat that was due."""

    HEARD = "heard"
    FAILED = "failed"
    WITHHELD = "withheld"


class AlertMetrics:
    """Incidents, the messages to each alert service, and the heartbeat."""

    def _make_alerts(self, registry: CollectorRegistry) -> None:
        self.incidents_open = Gauge(
            "healthd_incidents_open",
            "Incidents that are open, by whether a person must act (page) or not (notice).",
            ["severity"],
            registry=registry,
        )
        self.incidents_opened = Counter(
            "healthd_incidents_opened_total",
            "Incidents that were opened, by their first severity.",
            ["severity"],
            registry=registry,
        )
        self.alert_messages = Counter(
            "healthd_alert_messages_total",
            "Messages to alert services, by what the answer proves: accepted, delivered, unknown; refused is never "
            "tried again, retry is.",
            ["sink", "answer"],
            registry=registry,
        )
        self.alert_dead_letters = Counter(
            "healthd_alert_dead_letters_total",
            "Messages that were given up: refused, or not taken for too long. `healthd alerts list` names them.",
            ["sink"],
            registry=registry,
        )
        self.alert_waiting = Gauge(
            "healthd_alert_waiting", "Incidents of which a message waits to be sent.", ["sink"], registry=registry
        )
        self.heartbeats = Counter(
            "healthd_heartbeats_total",
            "Calls of the heartbeat service, by whether it heard them; withheld is one that was due while the "
            "reconcile loop stood still, counted once until it turns again.",
            ["result"],
            registry=registry,
        )
        self.heartbeat_heard = Gauge(
            "healthd_heartbeat_heard_timestamp_seconds",
            "When the heartbeat service last heard the leader, as Unix time; 0 before that, and where there is none.",
            registry=registry,
        )
        self.alert_oldest_waiting = Gauge(
            "healthd_alert_oldest_waiting_seconds",
            "For how long the oldest message waits to be sent; 0 when none waits.",
            ["sink"],
            registry=registry,
        )

    def start_heartbeat_at_zero(self) -> None:
        """Create every series of the heartbeat now, as `rate()` wants it."""
        for result in BeatResult:
            self.heartbeats.labels(result)

    def start_alerts_at_zero(self, sinks: Iterable[str], answers: Iterable[str], severities: Iterable[str]) -> None:
        """Create every series of the alert services *sinks* now, as `rate()` wants it."""
        for severity in severities:
            self.incidents_opened.labels(severity)
        for sink in sinks:
            self.alert_dead_letters.labels(sink)
            for answer in answers:
                self.alert_messages.labels(sink, answer)
