"""
The state of one node's hardware: kernel records and samples go in, findings come out. It sends no requests.

The rules are in `healthd.core`. This module holds what the rules need to know of the node (which devices are its own,
what runs on it, when it was last repaired), and writes metrics and logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from msgspec.structs import replace

from healthd.core.api import Nic
from healthd.core.api.model import Finding, KernelRecord, Verdict
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.causes import cause_of
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.reconcile_findings import reconcile
from healthd.core.diagnosis.signals.rule import Rule
from healthd.core.diagnosis.tiers import tier
from healthd.core.fabric.counter_rates import RateTracker, port_count, watched_of, with_growth
from healthd.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)


def owns_everything(device: str) -> bool:  # noqa: ARG001 - the signature of `owns`
    """For an agent that has the machine for itself."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """
    Facts about a node that its findings depend on.

    *owns* decides which PCI addresses belong to the node, and for `node` whether the node is the whole machine: where
    the GPUs of one machine are separate nodes, every agent reads the same kernel log. *job* names the job that runs on
    the node, so that repeats from different jobs can be distinguished.
    """

    name: str
    boot_id: str
    owns: Callable[[str], bool] = owns_everything
    job: Callable[[], str] = str
    trust_user_space: bool = False


class Judge:
    """The findings of one node. *rules* are the rules about readings. The kernel log's rules are always applied."""

    def __init__(self, node: NodeFacts, policy: JudgePolicy, rules: Iterable[Rule], metrics: Metrics) -> None:
        self._node = node
        self._metrics = metrics
        self._rules = {rule.name: rule for rule in rules}
        self._engine = Engine(self._rules.values())
        self._ledger = Ledger(policy=policy)
        self._sorted: tuple[Mapping[str, Finding], list[Finding]] | None = None
        """The findings in their order, with the entries of which they were made."""
        self._meter = RateTracker()
        self._repaired_at: datetime | None = None
        self._answered: dict[str, datetime] = {}

    @property
    def findings(self) -> list[Finding]:
        """All active findings, and those cleared not long ago. Every reader gets the same list, until they change."""
        if self._sorted is None or self._sorted[0] is not self._ledger.entries:
            self._sorted = self._ledger.entries, self._ledger.findings
        return self._sorted[1]

    def knows(self, finding: str) -> bool:
        """Whether a finding has this id, active or cleared."""
        return finding in self._ledger.entries

    def verdict(self, blind: Mapping[str, str]) -> tuple[Verdict, str]:
        """The verdict of all active findings, with the worst as the reason. *blind*: why sources have no readings."""
        return self._ledger.verdict(blind)

    def load(self, findings: Iterable[Finding], now: datetime, *, repaired_at: datetime | None = None) -> None:
        """
        Load the findings of an earlier run, without those that a reboot cleared or that the policy leaves out.

        That run knew of the repair at *repaired_at*: what stands since then stands, also where the clock was set back
        and its stamps are older than the repair.
        """
        self._repaired_at = repaired_at
        ledger = Ledger.of(findings, self._ledger.policy).clear_by_reboot(self._node.boot_id, now)
        self._ledger = ledger.clear_left_out(now)

    def believe(self, finding: Finding) -> None:
        """
        Add a finding that is stored elsewhere and not known here. A finding about readings ends by itself like any
        other.

        A finding of an older version does not record whether it ends by itself, nor which other sources saw it. Where
        it takes the node out and its own rule does not, another source asked for that; only a repair ends it.
        """
        if self._ledger.policy.leaves_out(finding.rule):
            return
        rule = self._rules.get(finding.rule)
        ends = rule is not None and rule.clears_after is not None and tier(rule.tier).quarantines
        finding = replace(
            finding,
            cause=rule.same_as if rule else cause_of(finding.rule),
            watched=finding.watched or (ends and not finding.also),
        )
        self._ledger = self._ledger.believe(finding)

    def ingest_records(self, records: Sequence[KernelRecord], now: datetime, *, lost: int = 0) -> bool:
        """Judge kernel records. *lost* other records are missing before them. True when a finding changed."""
        before = self._ledger.entries
        for record in records:
            self._keep(
                self._ledger.ingest_record(
                    record,
                    now=now,
                    job=self._node.job(),
                    repaired_at=self._repaired_before(now),
                    trust_user_space=self._node.trust_user_space,
                )
            )
        self._keep(self._ledger.clear_by_reload(self._answered))
        if lost:
            self._take_over(self._ledger.lost(lost, first=now, last=now, boot_id=self._node.boot_id))
        return self._ledger.entries != before

    def answered(self, gpus: Iterable[str], now: datetime) -> None:
        """The driver lists these GPUs, by their addresses."""
        self._answered |= dict.fromkeys(gpus, now)
        self._keep(self._ledger.clear_by_reload(self._answered))

    def ingest_sample(self, sample: Sample, now: datetime) -> bool:
        """Judge what a probe read. True when a finding changed."""
        if sample.trouble or self._is_settled(sample, now):
            return False
        before = self._ledger.entries
        self._engine.ingest(sample)
        self._keep(reconcile(self._ledger, self._engine, now=now, boot_id=self._node.boot_id, job=self._node.job()))
        return self._ledger.entries != before

    def measure(self, nics: Sequence[Nic], now: datetime) -> list[Nic] | None:
        """The ports with the growth of their counters. None while the next measurement is not due."""
        if not self._meter.is_due(now):
            return None
        counts = {port_count(nic, reading) for nic in nics for reading in watched_of(nic)}
        known = {count: self._engine.total(*count) for count in counts}
        self._meter.take({count: total for count, total in known.items() if total is not None}, now)
        hourly = self._meter.hourly()
        return [with_growth(nic, hourly) for nic in nics]

    def repaired(self, at: datetime, noticed: datetime | None = None) -> None:
        """The node was repaired; the agent noticed it at *noticed*. No earlier evidence counts any more."""
        self._repaired_at = at
        self._ledger = self._ledger.clear_by_repair(at, noticed)
        self._engine.settle(at, noticed)
        self._meter.settle()

    def fade(self, now: datetime) -> None:
        """Clear the findings that end with time."""
        self._ledger = self._ledger.decay(now)

    def _is_settled(self, sample: Sample, now: datetime) -> bool:
        """Whether *sample* is older than the last repair, and not only appears so because the clock was set back."""
        repaired = self._repaired_before(now)
        return repaired is not None and sample.at <= repaired

    def _repaired_before(self, now: datetime) -> datetime | None:
        """
        The last repair. None where the clock was set back beyond it: every new sample would appear older than the
        repair.
        """
        return self._repaired_at if self._repaired_at is not None and self._repaired_at <= now else None

    def _keep(self, after: Ledger) -> None:
        """Take over *after*, without devices of other nodes."""
        before = self._ledger
        if after is before:
            return
        owns = self._node.owns
        mine = {key: one for key, one in after.entries.items() if key in before.entries or owns(one.device)}
        self._take_over(replace(after, entries=mine))

    def _take_over(self, after: Ledger) -> None:
        """Take over *after*, and count and log what is new in it."""
        before, self._ledger = self._ledger, after
        stood = {finding.id for finding in before.standing}
        stands = {finding.id for finding in self._ledger.standing}
        for finding in self._ledger.findings:
            if finding.id in stood - stands and finding.cleared_by == "reset":
                log.info("finding.put_right", **_put_right(self._node.name, finding))
        for finding in self._ledger.standing:
            if finding.id not in stood:
                self._metrics.findings_raised.labels(finding.rule).inc()
                log.warning("finding.raised", node=self._node.name, finding=finding.id, why=finding.message)


def _put_right(node: str, finding: Finding) -> dict[str, str]:
    """The log fields of a fault that a reset or a load of the driver ended: which record showed it, and when."""
    known = finding.evidence[-1] if finding.evidence else None
    return {
        "node": node,
        "finding": finding.id,
        "seen": (known.at if known else finding.last_at).isoformat(timespec="seconds"),
        "record": known.text if known else finding.message,
        "why": f"the kernel log reports a reset, or a load of the driver, since: {finding.cleared_at}",
    }
