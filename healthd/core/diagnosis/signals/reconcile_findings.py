"""
Turns what is bad now into the findings of a node. Pure and level-based: it compares active findings with the present
state.

A bad state has a finding, also after a person cleared the finding too early. A finding ends when its state was seen
good for long enough; for one that came back, twice as long each time. What no probe can see neither begins nor ends a
finding: time in which a source is silent does not count, and a part that is not reported any more is not good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from healthd.core.api.model import Evidence, Finding
from healthd.core.diagnosis.causes import is_the_kernels, stands_for
from healthd.core.diagnosis.findings import Ledger
from healthd.core.diagnosis.judgement import Judgement, sentence
from healthd.core.diagnosis.readings import NODE
from healthd.core.diagnosis.signals.engine import Bad, Engine
from healthd.core.diagnosis.tiers import tier

WHOLE = ""
"""The part of a reading about its device as a whole, and so about every part of it."""
LONGEST_WAIT = timedelta(hours=24)
"""The upper limit, however often a fault came back."""


def reconcile(ledger: Ledger, engine: Engine, *, now: datetime, boot_id: str, job: str = "") -> Ledger:
    """The *ledger* after what *engine* sees: missing findings are raised, findings that are over are cleared."""
    for (_, _), bads in groupby(engine.bad(), key=lambda bad: (bad.device, bad.rule.name)):
        judgement, seen = judged(list(bads), job)
        if not _is_reported(ledger, judgement):
            ledger = ledger.ingest_judgement(judgement, seen, boot_id)
    over = {finding.id for finding in ledger.standing if _is_over(finding, engine, now)}
    return ledger.clear_recovered(over, now) if over else ledger


def judged(bads: Sequence[Bad], job: str = "") -> tuple[Judgement, Evidence]:
    """The judgement of one rule about one device, of which one or more parts are bad, and the evidence."""
    rule, device = bads[0].rule, bads[0].device
    of_rule = tier(rule.tier)
    parts = tuple(bad.part for bad in bads if bad.part)
    judgement = Judgement(
        device=device,
        rule=rule.name,
        severity=of_rule.severity,
        action=of_rule.action,
        blame=of_rule.blame or rule.blame,
        quarantines=of_rule.quarantines,
        message=sentence(_subject(device, parts), rule.summary, of_rule, rule.advice),
        cause=rule.same_as,
        parts=parts,
        watched=rule.clears_after is not None,
    )
    text = "; ".join(bad.text for bad in bads)
    at = max(bad.at for bad in bads)
    return judgement, Evidence(source=rule.reads.partition(".")[0], at=at, text=text, job=job)


def _subject(device: str, parts: Iterable[str]) -> str:
    where = "The node" if device == NODE else device
    return ", ".join([where, *parts])


def _is_reported(ledger: Ledger, judgement: Judgement) -> bool:
    """Whether an active finding already contains all of this, and acts on it as the policy now requires."""
    return any(
        finding.device == judgement.device
        and judgement.rule in {finding.rule, *finding.also}
        and set(judgement.parts) <= set(finding.parts)
        and (finding.shadow == ledger.tries(judgement.rule) or bool(finding.also))
        for finding in ledger.standing
    )


def _is_over(finding: Finding, engine: Engine, now: datetime) -> bool:
    rules = (finding.rule, *finding.also)
    return (
        finding.watched
        and all(_is_over_by(rule, finding, engine, now) for rule in rules)
        and _all_parts_are_seen(finding, rules, engine)
    )


def _all_parts_are_seen(finding: Finding, rules: Iterable[str], engine: Engine) -> bool:
    """Whether every part that was bad, or the device as a whole, is still reported."""
    goods = [engine.good(finding.device, rule) for rule in rules]
    seen = frozenset[str]().union(*(good.parts for good in goods if good))
    return WHOLE in seen or seen.issuperset(finding.parts)


def _is_over_by(rule: str, finding: Finding, engine: Engine, now: datetime) -> bool:
    """
    Whether *rule*, of a probe or of the kernel log, no longer keeps the finding. Good time counts from the last bad
    report.
    """
    if is_the_kernels(rule):
        stands = stands_for(rule)
        return stands is not None and now - finding.last_at >= stands
    good, clears_after = engine.good(finding.device, rule), engine.clears_after(rule)
    if good is None or clears_after is None:
        return False
    return min(good.seen, now - finding.last_at) >= _must_be(finding, clears_after)


def _must_be(finding: Finding, clears_after: timedelta) -> timedelta:
    return min(clears_after * (1 << min(finding.count - 1, 10)), LONGEST_WAIT)
