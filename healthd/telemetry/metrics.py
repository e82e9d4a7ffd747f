"""
Every metric of healthd, with its name, labels and meaning. The dashboards and the alert rules depend on this module.

All times are in seconds. Label values come from closed sets, or name a node, a device or a gang of this cluster; never
a pod, a path or a message. So the number of series grows with the hardware and not with time. Objects that are gone are
removed from the gauges, too.
"""

from __future__ import annotations

from collections import Counter as Counting
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

from healthd import __version__
from healthd.core.api.model import ENDED, BreakerTrigger, CauseKind, Finding, Hold, Phase, Verdict
from healthd.core.api.save_stats import Concern

if TYPE_CHECKING:  # agents have no gangs, and need not load this module
    from healthd.core.recovery.gang import Root

_QUARANTINE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_PHASE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
OBJECT_ERRORS = ("watch", "cache", "gang", "tidy", "metrics", "event", "alerts")
"""Places where one object may cause an error."""
SHOWN_GANGS = 500
"""In each namespace: a tenant can create gangs without limit, and each series costs storage in Prometheus."""


class GangSaves(NamedTuple):
    """What is known about the checkpoints of one gang."""

    namespace: str
    gang: str
    saved: datetime | None
    """When the newest good checkpoint was saved."""
    interval: timedelta | None
    lost: timedelta | None
    concerns: Collection[Concern]


class HeldGang(NamedTuple):
    """A gang whose recovery is on hold."""

    namespace: str
    gang: str
    reason: Hold
    since: datetime


class GivenUpGang(NamedTuple):
    """A gang that healthd gave up on, and that stands still since."""

    namespace: str
    gang: str
    at: datetime


class Metrics:
    """The metrics of one process, on a separate registry: two instances never share a series."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        # A setting of the whole library: without it there is a `…_created` series for every counter.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # untyped in the library
        self.registry = registry = CollectorRegistry() if registry is None else registry
        ProcessCollector(registry=registry)
        self.build = Info("healthd_build", "The version that runs.", registry=registry)
        self.build.info({"version": __version__})
        self.loop_last_success = Gauge(
            "healthd_loop_last_success_timestamp_seconds",
            "When a loop last went through without an error, as Unix time.",
            ["loop"],
            registry=registry,
        )
        self._make_api(registry)
        self._make_kernel_log(registry)
        self._make_findings(registry)
        self._make_quarantine(registry)
        self._make_recoveries(registry)
        self._make_standing(registry)
        self._make_gangs(registry)
        self._make_alerts(registry)

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
        self.quarantined_nodes = Gauge(
            "healthd_quarantined_nodes",
            "Nodes that healthd holds in quarantine, as the controller sees it.",
            registry=registry,
        )
        self.quarantine_budget = Gauge(
            "healthd_quarantine_budget", "Nodes that healthd may hold in quarantine at once.", registry=registry
        )
        self.quarantine_refused = Counter(
            "healthd_quarantine_refused_total",
            "Quarantines that were called for and not done: the budget was used up, or `quarantine.cordon` is off.",
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
        self.quarantine_seconds = Histogram(
            "healthd_quarantine_seconds",
            "From the kernel's own time stamp of the deciding record to the committed quarantine.",
            buckets=_QUARANTINE_BUCKETS,
            registry=registry,
        )

    def _make_recoveries(self, registry: CollectorRegistry) -> None:
        """Metrics of recoveries: outcomes and durations."""
        self.recoveries = Counter(
            "healthd_recoveries_total", "Recoveries that ended.", ["cause", "outcome"], registry=registry
        )
        self.recovery_phase_seconds = Histogram(
            "healthd_recovery_phase_seconds",
            "How long a recovery stayed in a phase, once it left it.",
            ["phase"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.recovery_running_seconds = Histogram(
            "healthd_recovery_running_seconds",
            "From the fault until every member ran again.",
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.recovery_confirmed_seconds = Histogram(
            "healthd_recovery_confirmed_seconds",
            "From the fault until progress was seen. It lasts as long as the gang takes to save, and a read to see it.",
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.checkpoint_rejected = Counter(
            "healthd_checkpoint_rejected_total",
            "Checkpoints that a recovery refused; each one, with the reason, is in the recovery.",
            registry=registry,
        )
        self.lost_steps = Counter(
            "healthd_lost_steps_total",
            "Training steps that had been done and must be done again after a recovery.",
            registry=registry,
        )
        self.events_dropped = Counter(
            "healthd_events_dropped_total",
            "Kubernetes Events that were not sent: too many at once, or the API server refused them.",
            registry=registry,
        )

    def _make_standing(self, registry: CollectorRegistry) -> None:
        """Gauges of the current state."""
        self.recovery_in_progress = Gauge(
            "healthd_recovery_in_progress", "Recoveries that have not ended, those on hold included.", registry=registry
        )
        self.recoveries_held = Gauge(
            "healthd_recoveries_held",
            "Recoveries on hold, by what they wait for: the budget of quarantines, the breaker, the fence (proof that "
            "old pods ended), a checkpoint that loads, a spare. Such a gang stands still or runs on a bad node, and "
            "somebody has to bring what it waits for.",
            ["reason"],
            registry=registry,
        )
        self.breaker_open = Gauge(
            "healthd_breaker_open",
            "1 while a recovery that began now would be held because too many nodes went bad, or too many restarts "
            "began, in a short time; also while there is none to be held.",
            ["crowd"],
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
        self._start_at_zero()

    def _make_gangs(self, registry: CollectorRegistry) -> None:
        self.gang_step = Gauge(
            "healthd_gang_step", "The furthest training step seen.", ["namespace", "gang"], registry=registry
        )
        self.gang_attempt = Gauge(
            "healthd_gang_attempt",
            "Which attempt a gang is in; 0 until its first restart.",
            ["namespace", "gang"],
            registry=registry,
        )

        self.gang_held_since = Gauge(
            "healthd_gang_held_since_timestamp_seconds",
            "Since when the recovery of a gang is on hold, and what it waits for, as Unix time. Other gangs have no "
            "series.",
            ["namespace", "gang", "reason"],
            registry=registry,
        )
        self.gang_gave_up = Gauge(
            "healthd_gang_gave_up_timestamp_seconds",
            "When healthd gave up on a gang, as Unix time; no series once it is started again or deleted.",
            ["namespace", "gang"],
            registry=registry,
        )
        self.gangs_invalid = Gauge(
            "healthd_gangs_invalid",
            "Gangs that healthd does nothing to, because what their owner wrote cannot be read.",
            registry=registry,
        )
        self.gangs_not_shown = Gauge(
            "healthd_gangs_not_shown",
            f"Gangs that have no series of their own: those beyond {SHOWN_GANGS} in a namespace.",
            registry=registry,
        )
        self._make_saves(registry)
        self._make_fabric(registry)
        self.leading = Gauge(
            "healthd_leading",
            "1 in the controller that leads, 0 in one that stands by: only the leader shows the gauges of the cluster.",
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

    def _make_saves(self, registry: CollectorRegistry) -> None:
        labels = ["namespace", "gang"]
        self.checkpoint_saved = Gauge(
            "healthd_checkpoint_saved_timestamp_seconds",
            "When the newest checkpoint that would be resumed from was saved, as Unix time.",
            labels,
            registry=registry,
        )
        self.checkpoint_interval = Gauge(
            "healthd_checkpoint_interval_seconds", "How often a gang usually saves.", labels, registry=registry
        )
        self.checkpoint_lost_work = Gauge(
            "healthd_checkpoint_lost_work_seconds",
            "How much work a fault would cost now: since the newest checkpoint that would be resumed from or, where it "
            "is later, since the gang was set going.",
            labels,
            registry=registry,
        )
        self.checkpoint_valid = Gauge(
            "healthd_checkpoint_valid",
            "1 while the newest checkpoint would be resumed from, 0 while it would be refused or there is none.",
            labels,
            registry=registry,
        )
        self.checkpoint_concern = Gauge(
            "healthd_checkpoint_concern",
            "1 for each thing that is wrong with the saving of a gang: late, refused, slower, full.",
            [*labels, "concern"],
            registry=registry,
        )

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
        self.alert_oldest_waiting = Gauge(
            "healthd_alert_oldest_waiting_seconds",
            "For how long the oldest message waits to be sent; 0 when none waits.",
            ["sink"],
            registry=registry,
        )

    def start_alerts_at_zero(self, sinks: Iterable[str], answers: Iterable[str], severities: Iterable[str]) -> None:
        """Create every series of the alert services *sinks* now, as `rate()` wants it."""
        for severity in severities:
            self.incidents_opened.labels(severity)
        for sink in sinks:
            self.alert_dead_letters.labels(sink)
            for answer in answers:
                self.alert_messages.labels(sink, answer)

    def _start_at_zero(self) -> None:
        """Create every series of a closed set now: `rate()` does not see the event that creates a series."""
        for cause in CauseKind:
            for outcome in ENDED:
                self.recoveries.labels(cause.value, outcome.value)
        for phase in set(Phase) - ENDED:
            self.recovery_phase_seconds.labels(phase.value)
        self.show_held({})
        self.show_breaker(())

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

    def show_gangs(self, gangs: Iterable[Root]) -> None:
        """Set the gauges of gangs to exactly this; a step below 0 is not known and has no series."""
        self.gang_attempt.clear()
        self.gang_step.clear()
        invalid, left_out = 0, 0
        seen: Counting[str] = Counting()
        for root in gangs:
            labels = (root.ref.namespace, root.ref.name)
            invalid += bool(root.invalid)
            seen[root.ref.namespace] += 1
            if seen[root.ref.namespace] > SHOWN_GANGS:
                left_out += 1
            if root.invalid or seen[root.ref.namespace] > SHOWN_GANGS:
                continue
            self.gang_attempt.labels(*labels).set(root.attempt)
            if root.progress.step >= 0:
                self.gang_step.labels(*labels).set(root.progress.step)
        self.gangs_invalid.set(invalid)
        self.gangs_not_shown.set(left_out)

    def show_saves(self, gangs: Iterable[GangSaves]) -> None:
        """Set the gauges of checkpoints to exactly this; a value that is not known has no series."""
        for gauge in (
            self.checkpoint_saved,
            self.checkpoint_interval,
            self.checkpoint_lost_work,
            self.checkpoint_valid,
            self.checkpoint_concern,
        ):
            gauge.clear()
        seen: Counting[str] = Counting()
        for each in gangs:
            labels = (each.namespace, each.gang)
            seen[each.namespace] += 1
            if seen[each.namespace] > SHOWN_GANGS:
                continue
            if each.saved is not None:
                self.checkpoint_saved.labels(*labels).set(each.saved.timestamp())
            if each.interval is not None:
                self.checkpoint_interval.labels(*labels).set(each.interval.total_seconds())
            if each.lost is not None:
                self.checkpoint_lost_work.labels(*labels).set(each.lost.total_seconds())
            self.checkpoint_valid.labels(*labels).set(each.saved is not None and Concern.REFUSED not in each.concerns)
            for concern in each.concerns:
                self.checkpoint_concern.labels(*labels, concern.value).set(1)

    def show_standstills(self, held: Iterable[HeldGang], given_up: Iterable[GivenUpGang]) -> None:
        """Set the gauges of gangs that stand still to exactly this."""
        self.gang_held_since.clear()
        self.gang_gave_up.clear()
        for hold in _shown(held):
            self.gang_held_since.labels(hold.namespace, hold.gang, hold.reason.value).set(hold.since.timestamp())
        for end in _shown(given_up):
            self.gang_gave_up.labels(end.namespace, end.gang).set(end.at.timestamp())

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

    def follow_informer(self, kind: str, last_heard: Callable[[], float]) -> None:
        """Ask *last_heard* at each scrape when the watch of *kind* (a plural, such as `pods`) last said something."""
        self.informer_heard.labels(kind).set_function(last_heard)

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

    def show_held(self, counts: Mapping[Hold, int]) -> None:
        """Set how many recoveries are held for each reason; a reason that is not named: none."""
        for reason in Hold:
            self.recoveries_held.labels(reason.value).set(counts.get(reason, 0))

    def show_breaker(self, over: Collection[BreakerTrigger]) -> None:
        """Set the triggers for which the breaker is open."""
        for trigger in BreakerTrigger:
            self.breaker_open.labels(trigger.value).set(trigger in over)

    def forget_the_world(self) -> None:
        """Reset the gauges of the cluster, and of the leader's loops: from now on another controller shows them."""
        for shown in (self.incidents_open, self.alert_waiting, self.alert_oldest_waiting):
            shown.clear()
        for gauge in (self.leading, self.recovery_in_progress, self.nodes_without_agent):
            gauge.set(0)
        self.loop_last_success.clear()
        self.show_spares(free=0, unfit=0, claimed=0)
        self.show_quarantined({})
        self.show_standstills((), ())
        self.show_gangs(())
        self.show_saves(())
        self.show_fabric({}, {})
        self.show_below_peers({})
        self.show_held({})
        self.show_breaker(())

    def count_ended(self, cause: CauseKind, outcome: Phase) -> None:
        """Count a recovery that reached one of the phases in `ENDED`."""
        self.recoveries.labels(cause.value, outcome.value).inc()

    def loop_succeeded(self, loop: str, now: datetime) -> None:
        """Record that *loop* completed without an error."""
        self.loop_last_success.labels(loop).set(now.timestamp())


_Row = TypeVar("_Row", HeldGang, GivenUpGang)


def _shown(rows: Iterable[_Row]) -> Iterator[_Row]:
    """The first `SHOWN_GANGS` of each namespace."""
    seen: Counting[str] = Counting()
    for row in rows:
        seen[row.namespace] += 1
        if seen[row.namespace] <= SHOWN_GANGS:
            yield row
