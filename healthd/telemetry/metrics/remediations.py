"""Metrics of automatic remediation: what was tried on nodes, and how long they were out of service."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from healthd.core.api.remediations import NodePhase, ReturnedBy, Rung, RungOutcome, SpareCheckOutcome

_RETURN_BUCKETS = (30, 60, 90, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400, 259200, 604800)
OUT_OF_SERVICE = tuple(phase for phase in NodePhase if phase is not NodePhase.IN_SERVICE)
"""The phases that have a series."""


class RemediationMetrics:
    """What the leading controller sets from the records of nodes, where `remediation` is configured."""

    def _make_remediations(self, registry: CollectorRegistry) -> None:
        self.remediation_attempts = Counter(
            "healthd_remediation_attempts_total",
            "Rungs that ended: what was tried on a node, by which hand, and what came of it.",
            ["rung", "hand", "outcome"],
            registry=registry,
        )
        self.remediation_return_seconds = Histogram(
            "healthd_remediation_return_seconds",
            "From the quarantine of a node until the controller saw it back in service: after a check of healthd, by a "
            "person's word, or as another machine.",
            ["by"],
            buckets=_RETURN_BUCKETS,
            registry=registry,
        )
        self.remediation_nodes = Gauge(
            "healthd_remediation_nodes", "Nodes in each phase of their remediation.", ["phase"], registry=registry
        )
        self.remediation_person_since = Gauge(
            "healthd_remediation_person_since_timestamp_seconds",
            "Since when a node waits for a person, as Unix time: to decide, or to check it after a rung. Other nodes "
            "have no series.",
            ["node"],
            registry=registry,
        )
        self.spare_checks = Counter(
            "healthd_spare_checks_total", "Checks of idle spares that ended.", ["outcome"], registry=registry
        )
        self.spare_check_passed = Gauge(
            "healthd_spare_check_passed_timestamp_seconds",
            "When the last check that an idle spare passed began, as Unix time. A spare that passed none has no "
            "series.",
            ["node"],
            registry=registry,
        )
        self.spare_check_failed = Gauge(
            "healthd_spare_check_failed",
            "1 for a spare that failed its last check and is still in service as a spare. Others have no series.",
            ["node"],
            registry=registry,
        )
        self.spare_checks_in_doubt = Gauge(
            "healthd_spare_checks_in_doubt",
            "1 while spares of a kind are not checked any more, because several failed and none passed since; else 0.",
            registry=registry,
        )
        for outcome in SpareCheckOutcome:
            self.spare_checks.labels(outcome.value)
        for by in ReturnedBy:
            self.remediation_return_seconds.labels(by.value)
        self.show_remediations({}, {})

    def know_hands(self, hands: Iterable[tuple[str, Rung]]) -> None:
        """Begin the series of these hands at 0: `rate()` does not see the event that creates a series."""
        for hand, rung in (*hands, ("", Rung.NONE)):
            for outcome in RungOutcome:
                self.remediation_attempts.labels(rung.value, hand, outcome.value)

    def count_attempt(self, rung: Rung, hand: str, outcome: RungOutcome) -> None:
        """Count an attempt that ended."""
        self.remediation_attempts.labels(rung.value, hand, outcome.value).inc()

    def count_return(self, by: ReturnedBy, after: timedelta) -> None:
        """Count a node that is back in service, so long *after* its quarantine."""
        self.remediation_return_seconds.labels(by.value).observe(max(0.0, after.total_seconds()))

    def show_remediations(self, counts: Mapping[NodePhase, int], awaited_since: Mapping[str, datetime]) -> None:
        """Set the nodes in each phase, and those that wait for a person (node -> since when), to exactly this."""
        for phase in OUT_OF_SERVICE:
            self.remediation_nodes.labels(phase.value).set(counts.get(phase, 0))
        self.remediation_person_since.clear()
        for node, since in awaited_since.items():
            self.remediation_person_since.labels(node).set(since.timestamp())

    def count_spare_check(self, outcome: SpareCheckOutcome) -> None:
        """Count a check of an idle spare that ended."""
        self.spare_checks.labels(outcome.value).inc()

    def show_spare_checks(self, *, passed: Mapping[str, datetime], failed: Iterable[str], in_doubt: bool) -> None:
        """Set to exactly this: when idle spares *passed* last, and which *failed* and are in service all the same."""
        self.spare_check_passed.clear()
        for node, at in passed.items():
            self.spare_check_passed.labels(node).set(at.timestamp())
        self.spare_check_failed.clear()
        for node in failed:
            self.spare_check_failed.labels(node).set(1)
        self.spare_checks_in_doubt.set(in_doubt)
