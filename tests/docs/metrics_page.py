"""docs/metrics.md: every metric of healthd, from the code. `python -m tests.docs.metrics_page` writes the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from prometheus_client import metrics as instruments

from healthd.alerts.sink import Answer
from healthd.core.api import incidents
from healthd.core.api.gpu_time import LOST, NOT_OURS, LossCause
from healthd.core.api.model import ENDED, BreakerTrigger, CauseKind, Hold, Phase, RepairAction, Severity, Verdict
from healthd.core.api.remediations import ReturnedBy, Rung, RungOutcome, SpareCheckOutcome
from healthd.core.api.save_stats import Concern
from healthd.telemetry.metrics import OBJECT_ERRORS, BeatResult, Metrics
from healthd.telemetry.metrics.remediations import OUT_OF_SERVICE
from tests.docs.page import ROOT

PAGE = ROOT / "docs" / "metrics.md"
BOTH, AGENT, LEADER, REPLICA = "Agents and controllers", "Agents", "The leading controller", "Each controller"
EXPORTED_BY: Mapping[str, tuple[str, ...]] = {
    BOTH: ("build", "loop_last_success", "object_errors", "events_dropped"),
    AGENT: (
        "node_verdict",
        "findings",
        "findings_raised",
        "source_blind",
        "probe_up",
        "kernel_log_up",
        "kernel_records",
        "kernel_records_lost",
        "pods_sampled",
        "pods_silent",
        "quarantine_budget",
        "quarantine_refused",
        "quarantine_seconds",
        "api_errors",
        "watch_last_heard",
    ),
    REPLICA: ("leading", "informer_heard", "kinds_forbidden"),
    LEADER: (
        "recovery_in_progress",
        "recoveries_held",
        "gang_held_since",
        "gang_recovery_since",
        "gang_silent_since",
        "gang_straggler_since",
        "gang_gave_up",
        "recoveries",
        "recovery_detection_seconds",
        "recovery_phase_seconds",
        "recovery_running_seconds",
        "recovery_confirmed_seconds",
        "lost_steps",
        "remediation_attempts",
        "remediation_return_seconds",
        "remediation_nodes",
        "remediation_person_since",
        "spare_checks",
        "spare_check_passed",
        "spare_check_failed",
        "spare_checks_in_doubt",
        "gpu_seconds",
        "productive_gpu_seconds",
        "lost_gpu_seconds",
        "unverified_gpu_seconds",
        "waiting_gpu_seconds",
        "gang_ettr",
        "gang_lost",
        "breaker_open",
        "spares",
        "spares_unfit",
        "spares_claimed",
        "spares_wanted",
        "lemons",
        "node_lemon",
        "quarantined_nodes",
        "node_quarantined_since",
        "nodes_without_agent",
        "gang_attempt",
        "gang_step",
        "gangs_invalid",
        "gangs_not_shown",
        "checkpoint_saved",
        "checkpoint_interval",
        "checkpoint_lost_work",
        "checkpoint_valid",
        "checkpoint_concern",
        "checkpoint_rejected",
        "fabric_outliers",
        "fabric_congested",
        "nodes_below_peers",
        "incidents_open",
        "incidents_opened",
        "alert_messages",
        "alert_waiting",
        "alert_oldest_waiting",
        "alert_dead_letters",
        "heartbeats",
        "heartbeat_heard",
    ),
}
"""Who sets a metric -> the attributes of `Metrics`, in the order of the page."""
LABEL_VALUES: Mapping[str, Iterable[str]] = {
    "action": RepairAction,
    "answer": Answer,
    "by": ReturnedBy,
    "cause": CauseKind,
    "concern": Concern,
    "crowd": BreakerTrigger,
    "loop": ("agent", "alerts", "controller", "fabric", "precheck"),
    "outcome": sorted(ENDED),
    "phase": [phase for phase in Phase if phase not in ENDED],
    "reason": Hold,
    "result": BeatResult,
    "rung": [rung for rung in Rung if rung is not Rung.PERSON],
    "severity": [*Severity, *incidents.Severity],
    "state": sorted(NOT_OURS),
    "verdict": Verdict,
    "where": OBJECT_ERRORS,
}
"""The values of the labels that have a closed set of them."""
OF_GPU_TIME: Mapping[str, Iterable[str]] = {"cause": LossCause, "phase": LOST}
"""The values of labels that `lost_gpu_seconds` has in place of these."""
OF_REMEDIATION: Sequence[tuple[str, str, Iterable[str]]] = (
    ("outcome", "healthd_remediation_attempts_total", RungOutcome),
    ("outcome", "healthd_spare_checks_total", SpareCheckOutcome),
    ("phase", "healthd_remediation_nodes", OUT_OF_SERVICE),
)
"""The metrics of remediation whose labels have other values: label, metric, values."""
OPEN_LABELS: Mapping[str, str] = {
    "device": "a device of the node, such as a PCI address",
    "error": "the name of an error of the client, such as `Unavailable`",
    "hand": "a hand of `remediation.hands`; empty for a check alone",
    "gang": "the name of the gang's root",
    "kind": "the plural of a kind, such as `pods`",
    "namespace": "the namespace of the gang",
    "node": "the name of the node",
    "part": "what a node has less of than its peers, such as `gpus`",
    "rail": "the number of a rail",
    "rank": "the index of a member of the gang, or its pod",
    "rule": "a rule of the [findings](findings/README.md), such as `xid-79`",
    "sink": "the name of an alert service in `alerts.sinks`",
    "source": "a source of readings, such as `nvml` or `kernel log`",
    "version": "the version of healthd",
}
_HEAD = """\
<!-- Written by `make docs` from healthd/telemetry/metrics/. -->
# Metrics

Agents, controllers and `healthd run` serve these at `/metrics`. [monitoring](monitoring/README.md) says how to scrape
them, and [alerts](monitoring/alerts.md) lists the rules for Prometheus. [goodput.md](goodput.md)
says how GPU time is divided.

- Times are in seconds. A name that ends in `_timestamp_seconds` is a Unix time: subtract it from `time()`.
- Every process serves every metric that has no labels, 0 where it does not set it. Take the `max` over all processes.
- Only the leading controller sets the gauges of the cluster. A controller that leads no more sets them to 0, or removes
  them. Counters stay: take the `sum` of their `increase` over all processes.
- Labels name a node, a device or a gang of this cluster, or come from a closed set. In each namespace, 500 gangs have
  series of their own.
- The series `process_…` of the Prometheus client (memory, processor time, open files) are served, too.
"""


class Row(NamedTuple):
    """One metric, as the page shows it."""

    name: str
    type: str
    labels: tuple[str, ...]
    help: str


def rows(metrics: Metrics) -> dict[str, Row]:
    """Every metric, by its attribute of *metrics*."""
    made = {name: one for name, one in vars(metrics).items() if isinstance(one, instruments.MetricWrapperBase)}
    return {name: _row(one) for name, one in made.items()}


def page() -> str:
    """The text of the page."""
    known = rows(Metrics())
    parts = [_HEAD]
    for exporter, names in EXPORTED_BY.items():
        lines = [_line(known[name]) for name in names]
        parts.append(f"\n## {exporter}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n" + "".join(lines))
    parts.append("\n## Labels\n\n| label | values |\n|---|---|\n" + "".join(sorted(_label_lines())))
    return "".join(parts)


def _row(metric: instruments.MetricWrapperBase) -> Row:
    (family,) = metric.describe()
    ends = {"counter": "_total", "info": "_info"}
    return Row(family.name + ends.get(family.type, ""), family.type, tuple(metric._labelnames), family.documentation)


def _line(row: Row) -> str:
    labels = ", ".join(f"`{label}`" for label in row.labels)
    return f"| `{row.name}` | {row.type} | {labels} | {row.help} |\n"


def _label_lines() -> Iterator[str]:
    for label, values in LABEL_VALUES.items():
        yield f"| `{label}` | {', '.join(f'`{_text(value)}`' for value in values)} |\n"
    for label, of, values in OF_REMEDIATION:
        yield f"| `{label}` of `{of}` | {', '.join(f'`{_text(value)}`' for value in values)} |\n"
    for label, values in OF_GPU_TIME.items():
        of = "`healthd_lost_gpu_seconds_total`"
        yield f"| `{label}` of {of} | {', '.join(f'`{_text(value)}`' for value in values)} |\n"
    for label, meaning in OPEN_LABELS.items():
        yield f"| `{label}` | {meaning} |\n"


def _text(value: str) -> str:
    return value.value if isinstance(value, StrEnum) else value


if __name__ == "__main__":
    PAGE.write_text(page())
