"""Metrics of nodes, which their agents set: kernel log, probes, findings, verdict, quarantine."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from healthd.core.api.model import Finding, Verdict

_QUARANTINE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class NodeMetrics:
    """What the agent of a node sets."""

    def _make_nodes(self, registry: CollectorRegistry) -> None:
        self._make_kernel_log(registry)
        self._make_findings(registry)
        self._make_quarantine(registry)
        self._make_rhythms(registry)

    def _make_kernel_log(self, registry: CollectorRegistry) -> None:
        self.kernel_records = Counter(
            "healthd_kernel_records_total", "Kernel records that were read and judged.", registry=registry
        )
        self.kernel_records_lost = Counter(
            "healthd_kernel_records_lost_total",
            "Kernel records that the ring dropped before they could be read, counted from their sequence numbers.",
            registry=registry,
        )
        self.kernel_log_up = Gauge(
            "healthd_kernel_log_up",
            "1 while the kernel log is being read, 0 while healthd is blind to it.",
            registry=registry,
        )
        self.probe_up = Gauge(
            "healthd_probe_up",
            "1 while a source of readings answers, 0 while it does not: its readings are unknown then.",
            ["source"],
            registry=registry,
        )

    def _make_findings(self, registry: CollectorRegistry) -> None:
        self.findings = Gauge(
            "healthd_findings",
            "1 for each finding that stands.",
            ["node", "device", "rule", "severity", "action"],
            registry=registry,
        )
        self.findings_raised = Counter(
            "healthd_findings_raised_total",
            "Findings raised; a repeat of one that stands does not count.",
            ["rule"],
            registry=registry,
        )
        self.node_verdict = Gauge(
            "healthd_node_verdict",
            "1 for the verdict that a node has now, 0 for the others.",
            ["node", "verdict"],
            registry=registry,
        )
        self.source_blind = Gauge(
            "healthd_source_blind",
            "1 for each source that should report on a node and does not: its verdict is unknown.",
            ["node", "source"],
            registry=registry,
        )

    def _make_quarantine(self, registry: CollectorRegistry) -> None:
        self.quarantine_budget = Gauge(
            "healthd_quarantine_budget", "Nodes that healthd may hold in quarantine at once.", registry=registry
        )
        self.quarantine_refused = Counter(
            "healthd_quarantine_refused_total",
            "Quarantines that were called for and not done: the budget was used up, the API server refused it, or "
            "`quarantine.cordon` is off.",
            registry=registry,
        )
        self.quarantine_seconds = Histogram(
            "healthd_quarantine_seconds",
            "From the kernel's own time stamp of the deciding record to the committed quarantine.",
            buckets=_QUARANTINE_BUCKETS,
            registry=registry,
        )

    def _make_rhythms(self, registry: CollectorRegistry) -> None:
        self.pods_sampled = Gauge(
            "healthd_pods_sampled",
            "Pods of this node that are sampled each second, and whose rhythm is known.",
            registry=registry,
        )
        self.pods_silent = Gauge(
            "healthd_pods_silent",
            "Those of them that do nothing, or only poll, for longer than their own rhythm allows.",
            registry=registry,
        )

    def show_node(self, node: str, verdict: Verdict, findings: Iterable[Finding], blind: Iterable[str] = ()) -> None:
        """
        Set the gauges of *node* to exactly this: *findings* are all that it has, cleared ones are left out; *blind* are
        the sources that should report something and do not.
        """
        self.source_blind.remove_by_labels({"node": node})
        for source in blind:
            self.source_blind.labels(node, source).set(1)
        for each in Verdict:
            self.node_verdict.labels(node, each.value).set(each is verdict)
        self.findings.remove_by_labels({"node": node})
        for finding in findings:
            if finding.cleared_at is None:
                labels = (node, finding.device, finding.rule, finding.severity.value, finding.action.value)
                self.findings.labels(*labels).set(1)
