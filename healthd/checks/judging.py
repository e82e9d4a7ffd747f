"""
What one look and the kernel log of this boot say of a node, by the rules of the agent. Pure.

Rules about states want them to hold for a while. One look cannot know that they do, so what is bad now is told apart:
it becomes a finding if it holds. Rules about counters need two looks, and say nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from healthd.core.findings import Ledger
from healthd.core.model import Finding, KernelRecord, Verdict
from healthd.core.policy import JudgePolicy
from healthd.core.readings import Look
from healthd.core.signals.engine import Engine
from healthd.core.signals.entering import reconcile
from healthd.core.signals.rule import Rule
from healthd.core.signals.tables import rules_of

_MUST_BE_READ = frozenset({"nvml", "pcie", "infiniband"})
"""Sources without which nobody can say that GPUs and their network are well."""


class SeenNow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is bad now, and is a finding of the agent once it was so for *holds_s* seconds."""

    finding: Finding
    holds_s: float


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """*verdict* takes what is seen now for what it will be if it holds."""

    verdict: Verdict
    message: str
    findings: list[Finding]
    seen_now: list[SeenNow]


def judge_once(
    looks: Sequence[Look], log: Ledger, policy: JudgePolicy, *, now: datetime, boot_id: str, log_is_read: bool
) -> Judged:
    """*log* is what the kernel log says (`judge_log`)."""
    rules = rules_of(policy)
    sure = _entered(log, rules, looks, now, boot_id).standing
    certain = {finding.id: finding for finding in sure}
    at_once = [msgspec.structs.replace(rule, holds=timedelta(0)) for rule in rules]
    ledger = _entered(log, at_once, looks, now, boot_id)
    holds = {rule.name: rule.holds.total_seconds() for rule in rules}
    fresh = [
        SeenNow(finding=finding, holds_s=max(holds.get(name, 0) for name in (finding.rule, *finding.also)))
        for finding in ledger.standing
        if finding.id not in certain
    ]
    verdict, message = ledger.verdict(reading_works=log_is_read)
    blind = [look for look in looks if look.trouble and look.source in _MUST_BE_READ]
    if verdict is not Verdict.UNHEALTHY and blind:
        verdict, message = Verdict.UNKNOWN, f"{blind[0].source} cannot be read: {blind[0].trouble}."
    return Judged(verdict=verdict, message=message, findings=sure, seen_now=fresh)


def judge_log(
    records: Iterable[KernelRecord], policy: JudgePolicy, *, now: datetime, trust_user_space: bool = False
) -> Ledger:
    """What the agent would have made of these records; what faded since is gone."""
    ledger = Ledger(policy=policy)
    for record in records:
        ledger = ledger.observe(record, now=now, trust_user_space=trust_user_space)
    return ledger.decay(now)


def _entered(ledger: Ledger, rules: Iterable[Rule], looks: Sequence[Look], now: datetime, boot_id: str) -> Ledger:
    engine = Engine(rules)
    for look in looks:
        engine.take(look)
    return reconcile(ledger, engine, now=now, boot_id=boot_id)
