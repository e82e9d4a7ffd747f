"""
What one sample and the kernel log of this boot show of a node, by the rules of the agent. Pure.

Rules about states want them to hold for a while. One sample cannot know that they do, so what is bad now is listed
separately: it becomes a finding if it holds. Rules about counters need two samples, and report nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from healthd.core.api.model import Finding, KernelRecord, Verdict
from healthd.core.config import JudgePolicy
from healthd.core.diagnosis.blindness import KERNEL_LOG, NOT_BLIND, Sources
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.readings import Sample
from healthd.core.diagnosis.signals.engine import Engine
from healthd.core.diagnosis.signals.reconcile_findings import reconcile
from healthd.core.diagnosis.signals.tables import rules_of


class SeenNow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is bad now, and becomes a finding of the agent after *holds_s* seconds."""

    finding: Finding
    holds_s: float


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """*verdict* counts what is bad now as what it becomes if it holds."""

    verdict: Verdict
    message: str
    findings: list[Finding]
    seen_now: list[SeenNow]
    blind: dict[str, str]
    """By source: why it has no readings although it should."""


class OfflineJudge:
    """
    Judges the samples of one node. Repeated calls of the same object know the earlier samples.

    The kernel log may be passed again from its beginning each time: a record counts once.
    """

    def __init__(
        self,
        policy: JudgePolicy,
        boot_id: str,
        *,
        expected: Mapping[str, str] = NOT_BLIND,
        trust_user_space: bool = False,
    ) -> None:
        """*expected*: see `healthd.core.diagnosis.blindness.Sources`."""
        rules = rules_of(policy)
        at_once = [msgspec.structs.replace(rule, holds=timedelta(0)) for rule in rules]
        self._boot_id = boot_id
        self._trust_user_space = trust_user_space
        self._holds = {rule.name: rule.holds.total_seconds() for rule in rules}
        self._engine, self._eager = Engine(rules), Engine(at_once)
        self._ledger = Ledger(policy=policy)
        self._sources = Sources(expected, patience=timedelta(0))

    def judge(
        self, samples: Sequence[Sample], records: Iterable[KernelRecord], *, now: datetime, log_trouble: str = ""
    ) -> Judged:
        """The result of *samples* of one moment and the kernel log."""
        for sample in samples:
            self._sources.ingest_sample(sample)
        blind = self._sources.blind(now) | ({KERNEL_LOG: log_trouble} if log_trouble else {})
        for record in records:
            self._ledger = self._ledger.ingest_record(record, now=now, trust_user_space=self._trust_user_space)
        self._ledger = self._ingested(self._engine, samples, now).decay(now)
        if_it_holds = self._ingested(self._eager, samples, now)
        verdict, message = if_it_holds.verdict(blind)
        seen = self._not_yet(if_it_holds)
        return Judged(verdict=verdict, message=message, findings=self._ledger.standing, seen_now=seen, blind=blind)

    def _ingested(self, engine: Engine, samples: Sequence[Sample], now: datetime) -> Ledger:
        for sample in samples:
            engine.ingest(sample)
        return reconcile(self._ledger, engine, now=now, boot_id=self._boot_id)

    def _not_yet(self, if_it_holds: Ledger) -> list[SeenNow]:
        """Findings that would be new, or worse."""
        certain = {(finding.id, finding.quarantines, finding.severity) for finding in self._ledger.standing}
        fresh = [
            finding
            for finding in if_it_holds.standing
            if (finding.id, finding.quarantines, finding.severity) not in certain
        ]
        return [SeenNow(finding=finding, holds_s=self._wait(finding)) for finding in fresh]

    def _wait(self, finding: Finding) -> float:
        """The shortest time of any of its rules."""
        return min((self._holds[rule] for rule in (finding.rule, *finding.also) if self._holds.get(rule)), default=0)
