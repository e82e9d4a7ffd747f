"""How the loop of remediation sets its metrics; names and meanings are in `healthd.telemetry.metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from datetime import datetime

from healthd.core.api import NodeRemediationStatus
from healthd.core.api.remediations import NodePhase
from healthd.core.remediation.returned import attempts_ended, awaits_person_since, out_of_service, returned_by
from healthd.telemetry.metrics import Metrics


def measure_step(metrics: Metrics, before: NodeRemediationStatus, after: NodeRemediationStatus, now: datetime) -> None:
    """Count what ended with the step from *before* to *after*."""
    for attempt in attempts_ended(before, after):
        assert attempt.outcome is not None
        metrics.count_attempt(attempt.rung, attempt.hand, attempt.outcome)
    by, span = returned_by(before, after), out_of_service(before, now)
    if by is not None and span is not None:
        metrics.count_return(by, span)


def measure_nodes(metrics: Metrics, statuses: Mapping[str, NodeRemediationStatus], nodes: Container[str]) -> None:
    """Set the gauges from the records of all *nodes*. One that is gone counts only while it is being replaced."""
    replaced = NodePhase.REMEDIATING
    statuses = {name: status for name, status in statuses.items() if name in nodes or status.phase is replaced}
    since = {name: awaits_person_since(status) for name, status in statuses.items()}
    awaited = {name: at for name, at in since.items() if at is not None}
    metrics.show_remediations(Counter(status.phase for status in statuses.values()), awaited)
