"""The problems of nodes: out of service without a gang, out of service for long, broken and still in service."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta

from healthd.core.alerts.advice import IN_CLUSTER, Advice
from healthd.core.alerts.gangs import WAITS
from healthd.core.alerts.problem import Problem, Shared, as_text, stamp
from healthd.core.api import Node, NodeHealth, Recovery
from healthd.core.api.incidents import Severity, key_of
from healthd.core.api.model import Finding, Hold, Verdict
from healthd.core.config import AlertsPolicy, QuarantinePolicy
from healthd.core.node.quarantine import Record, read_record
from healthd.core.shell_words import shell_word

TO_CORDON = timedelta(seconds=15)
"""How long an agent may take to get a broken node out of service: it may have to ask for the budget more than once."""
OF_ITS_RECOVERY = timedelta(minutes=5)
"""A recovery that blames a node explains a quarantine that began at most so long after the fault, or before it."""


def node_problems(
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    quarantined: Collection[str],
    recoveries: Iterable[Recovery],
    quarantine: QuarantinePolicy,
    policy: AlertsPolicy,
    now: datetime,
    advice: Advice = IN_CLUSTER,
) -> list[Problem]:
    """
    Every node that is out of service for a reason that no recovery explains, or for longer than `node_out_after`; and
    every node that should be out of service and is not.
    """
    blamed = _blamed(recoveries, quarantined) if quarantined else {}
    found: list[Problem] = []
    for name in quarantined:
        if name in nodes and (record := read_record(nodes[name])) is not None:
            found += _out_of_service(name, record, blamed.get(name, ()), policy, now, advice)
    if quarantine.cordon:
        found += _in_service(nodes, health, quarantined, now, advice)
    return found


def _blamed(recoveries: Iterable[Recovery], quarantined: Collection[str]) -> dict[str, list[datetime]]:
    """When each node was blamed, of those that are *quarantined*."""
    blamed: dict[str, list[datetime]] = defaultdict(list)
    for recovery in recoveries:
        for cause in recovery.status.causes or [recovery.spec.cause]:
            if cause.node in quarantined:
                blamed[cause.node].append(cause.at)
    return blamed


def _out_of_service(
    name: str, record: Record, blamed: Collection[datetime], policy: AlertsPolicy, now: datetime, advice: Advice
) -> Iterator[Problem]:
    is_long = policy.node_out_after is not None and now - record.since >= policy.node_out_after
    if not is_long and any(abs(at - record.since) < OF_ITS_RECOVERY or at > record.since for at in blamed):
        return
    long = f" since {record.since:%Y-%m-%d %H:%M} UTC" if is_long else ""
    yield Problem(
        key=key_of("node", name, stamp(record.since)),
        since=record.since,
        severity=Severity.PAGE if is_long else Severity.NOTICE,
        cause="node",
        shared=Shared.NODE,
        reason=f"out of service for {record.finding}",
        subject=name,
        title=f"{name} is out of service{long}, for {record.finding}",
        nodes=(name,),
        happened=as_text([f"{name}: {advice.terms.worded(record.message)}"]),
        did=as_text([f"healthd took {name} out of service at {record.since:%Y-%m-%d %H:%M:%S} UTC"]),
        todo=as_text([f"repair {name}, then say so: `{_named(advice.repair, name)}`"]),
        command=_named(advice.ask_node, name),
        runbook="node-out-of-service",
        rank=int(is_long),
    )


def _in_service(
    nodes: Mapping[str, Node],
    health: Mapping[str, NodeHealth],
    quarantined: Collection[str],
    now: datetime,
    advice: Advice,
) -> Iterator[Problem]:
    for name, known in health.items():
        if known.status.verdict is not Verdict.UNHEALTHY or name in quarantined:
            continue
        node, worst = nodes.get(name), _worst(known.status.findings)
        if node is None or node.spec.unschedulable or worst is None or now - worst.raised_at < TO_CORDON:
            continue
        yield _broken(name, worst, advice)


def _worst(findings: Iterable[Finding]) -> Finding | None:
    return next((each for each in findings if each.quarantines and each.cleared_at is None and not each.shadow), None)


def _broken(name: str, worst: Finding, advice: Advice) -> Problem:
    wait = WAITS[Hold.BUDGET]
    return Problem(
        key=key_of("node", name, stamp(worst.raised_at)),
        since=worst.raised_at + TO_CORDON,
        severity=Severity.PAGE,
        cause="nodes",
        shared=Shared.NODES,
        reason=wait.reason,
        subject=name,
        title=f"{name} is broken and still in service: {wait.reason}, or its agent may not cordon it",
        nodes=(name,),
        happened=as_text([f"{name}: {advice.terms.worded(worst.message)}"]),
        did=as_text([f"healthd found {worst.id} and could not take {name} out of service"]),
        todo=as_text([_named(advice.broken_in_service, name)]),
        command=_named(advice.ask_node, name),
        runbook=wait.runbook,
        rank=wait.rank,
    )


def _named(command: str, node: str) -> str:
    """*command* with the name of *node*, which a shell takes for nothing but a name."""
    return command.format(node=shell_word(node, "NODE"))
