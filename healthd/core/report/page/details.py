"""The page of one object: a gang, a recovery, a node. The texts are those of `healthd explain`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from healthd.core.api import Node, NodeHealth, Recovery
from healthd.core.api.model import ENDED, Finding
from healthd.core.checkpoint.restart_cost import Stake, at_stake
from healthd.core.node.quarantine import read_record
from healthd.core.printable import printable
from healthd.core.recovery.gang import Root
from healthd.core.recovery.recovery_status import blamed
from healthd.core.recovery.terms import Terms
from healthd.core.report.explain import Explanation, explain
from healthd.core.report.explain_text import Section, explain_sections, sections_without_incident
from healthd.core.report.page.lists import RecoveryEntry, recovery_entry
from healthd.core.report.page.nodes import NodeCell, claimed_for, node_cell, quarantine_reason

UNWRAPPED = 100_000
"""Characters in a line: the browser wraps."""
RECOVERIES_SHOWN = 50
"""Recoveries in the history of one gang or node: the newest."""


class GangDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One gang. *sections* are the text of its newest recovery, or what a fault would cost."""

    sections: list[Section]
    nodes: list[str]
    """On which its members run."""
    recoveries: list[str]
    """Keys of its recoveries, the newest first."""


class RecoveryDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One recovery."""

    entry: RecoveryEntry
    sections: list[Section]
    nodes: list[str]
    """The nodes that are to blame, or were replaced."""


class NodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One node: what stands against it, and what happened to it."""

    cell: NodeCell
    quarantined_since: datetime | None
    quarantined_for: str
    claimed: str
    """What it does as a spare; empty: it is no spare in use."""
    agent_seen: datetime | None
    sources: list[str]
    """The sources that its agent reads."""
    standing: list[Finding]
    cleared: list[Finding]
    """Findings that ended, the newest first, as far as the agent keeps them."""
    gangs: list[str]
    """Keys of the gangs with members on it."""
    recoveries: list[str]
    """Keys of the recoveries that blame it, or use it as a spare, the newest first."""
    repair: str
    """The command that gives it back once it is repaired; empty where it is in service."""


class NodeObjects(NamedTuple):
    """The objects of nodes that a text may use."""

    nodes: Mapping[str, Node]
    health: Mapping[str, NodeHealth]


def recovery_detail(recovery: Recovery, objects: NodeObjects | None, terms: Terms, now: datetime) -> RecoveryDetail:
    """*recovery* in the words of `healthd explain`. Without *objects* the text has what it says itself."""
    explanation = _explained(recovery, objects, now)
    return RecoveryDetail(
        entry=recovery_entry(recovery),
        sections=explain_sections(explanation, width=UNWRAPPED, terms=terms),
        nodes=[printable(name) for name in blamed(recovery.status)],
    )


def gang_detail(
    root: Root,
    running_on: Iterable[str],
    recoveries: Sequence[Recovery],
    objects: NodeObjects | None,
    now: datetime,
) -> GangDetail:
    """The gang of *root*, whose members run on the nodes *running_on*; *recoveries* are its own, the newest first."""
    goes_on = any(each.status.phase not in ENDED for each in recoveries)
    stake = None if goes_on else at_stake(root, now, recoveries)
    good = root.saves.good[-1].at if root.saves.good else None
    if recoveries:
        explanation = _explained(recoveries[0], objects, now, good_before=good, stake=stake)
        sections = explain_sections(explanation, width=UNWRAPPED, terms=root.terms)
    else:
        sections = sections_without_incident(root, stake, width=UNWRAPPED)
    return GangDetail(
        sections=sections,
        nodes=sorted({printable(name) for name in running_on if name}),
        recoveries=[key_of(each) for each in recoveries[:RECOVERIES_SHOWN]],
    )


def node_detail(
    node: Node,
    health: NodeHealth | None,
    gangs: Iterable[str],
    recoveries: Iterable[Recovery],
    domain_label: str,
    now: datetime,
) -> NodeDetail:
    """*node* with the last report of its agent. *gangs* have members on it, *recoveries* are all."""
    name, record = node.metadata.name, read_record(node)
    findings = [_safe(each) for each in health.status.findings] if health is not None else []
    cleared = [each for each in findings if each.cleared_at is not None]
    return NodeDetail(
        cell=node_cell(node, health, domain_label, now),
        quarantined_since=record.since if record else None,
        quarantined_for=printable(quarantine_reason(record)) if record else "",
        claimed=claimed_for(node),
        agent_seen=health.status.seen_at if health is not None else None,
        sources=[printable(each) for each in health.status.sources] if health is not None else [],
        standing=sorted((f for f in findings if f.cleared_at is None), key=lambda f: (not f.quarantines, f.raised_at)),
        cleared=sorted(cleared, key=lambda f: f.cleared_at or f.last_at, reverse=True),
        gangs=sorted(gangs),
        recoveries=[key_of(each) for each in _of_node(name, recoveries)[:RECOVERIES_SHOWN]],
        repair=f"healthd repair {name}" if record else "",
    )


def _explained(
    recovery: Recovery,
    objects: NodeObjects | None,
    now: datetime,
    *,
    good_before: datetime | None = None,
    stake: Stake | None = None,
) -> Explanation:
    nodes, health = objects or NodeObjects({}, {})
    explanation = explain(recovery, nodes, health, now, good_before=good_before, stake=stake)
    return explanation if objects is not None else replace(explanation, nodes=[])


def key_of(recovery: Recovery) -> str:
    """The key of a recovery in the page: `team-a/llama-3`."""
    return f"{recovery.metadata.namespace}/{recovery.metadata.name}"


def _of_node(name: str, recoveries: Iterable[Recovery]) -> list[Recovery]:
    own = [
        each
        for each in recoveries
        if name in blamed(each.status) or name == each.spec.cause.node or name in each.status.replacements.values()
    ]
    return sorted(own, key=lambda each: each.spec.cause.at, reverse=True)


def _safe(finding: Finding) -> Finding:
    evidence = [replace(each, text=printable(each.text), job=printable(each.job)) for each in finding.evidence]
    return replace(finding, message=printable(finding.message), evidence=evidence)
