"""The problems of healthd itself: nodes without a live agent, and nodes whose probes are blind."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from healthd.core.alerts.problem import Problem, Shared, as_text, counted, stamp
from healthd.core.api import Node, NodeHealth
from healthd.core.api.incidents import Severity, key_of
from healthd.core.api.model import Verdict
from healthd.core.config import AlertsPolicy
from healthd.core.node.conditions import CONDITIONS
from healthd.core.node.reporting import SILENT_AFTER
from healthd.core.phrases import some
from healthd.core.shell_words import shell_word

MANY = 3
"""Fewer nodes than this are never a page, whatever their share."""
NEW_NODE = timedelta(minutes=15)
"""So long a new node may be without a first report: images are pulled, drivers are installed."""
BLIND_FOR = timedelta(minutes=5)
"""So long a source may be unreadable: drivers are reloaded, programs restart."""


def agent_problems(
    nodes: Mapping[str, Node], health: Mapping[str, NodeHealth], policy: AlertsPolicy, now: datetime
) -> list[Problem]:
    """At most two problems: all nodes without a live agent, and all nodes that are blind. Nodes without GPUs count in
    neither."""
    counted = [name for name, node in nodes.items() if _has_devices(node)]
    missing = {name: at for name in counted if (at := _silent_since(nodes[name], health.get(name), now))}
    blind = {name: at for name in counted if name not in missing and (at := _blind_since(nodes[name], health, now))}
    problems = []
    if missing:
        problems.append(_missing(missing, _severity(len(missing), len(counted), policy)))
    if blind:
        problems.append(_blind(blind, health, _severity(len(blind), len(counted), policy)))
    return problems


def _severity(bad: int, total: int, policy: AlertsPolicy) -> Severity:
    return Severity.PAGE if bad >= MANY and bad > policy.blind_share * total else Severity.NOTICE


def _has_devices(node: Node) -> bool:
    """Extended resources have a domain in their name: `nvidia.com/gpu`."""
    return any("/" in resource for resource in node.status.capacity)


def _silent_since(node: Node, health: NodeHealth | None, now: datetime) -> datetime | None:
    seen = health.status.seen_at if health is not None else None
    due = seen + SILENT_AFTER if seen is not None else (node.metadata.creation_timestamp or now) + NEW_NODE
    return due if now > due else None


def _blind_since(node: Node, health: Mapping[str, NodeHealth], now: datetime) -> datetime | None:
    """Its conditions say since when: a report has no time of its verdict."""
    known = health.get(node.metadata.name)
    if known is None or known.status.verdict is not Verdict.UNKNOWN:
        return None
    unknown = [each.last_transition_time for each in node.status.conditions if _is_unknown(each.type, each.status)]
    since = min((at for at in unknown if at is not None), default=None)
    return since if since is not None and now - since >= BLIND_FOR else None


def _is_unknown(kind: str, status: str) -> bool:
    return status == "Unknown" and kind in CONDITIONS


def _missing(since: Mapping[str, datetime], severity: Severity) -> Problem:
    names, first = sorted(since), min(since.values())
    return Problem(
        key=key_of("healthd", "agents", stamp(first)),
        since=first,
        severity=severity,
        cause="agents",
        shared=Shared.AGENTS,
        reason="no agent",
        subject=some(names),
        title=f"Nothing is heard of the agents on {counted(len(names), 'node')}: {some(names)}",
        nodes=tuple(names),
        happened=as_text([f"the agents on {some(names)} have not reported for {SILENT_AFTER}, or have never reported"]),
        did=as_text(["what these agents said for their nodes counts as unknown; what they said against them stands"]),
        todo=as_text(["see why their pods do not run: `kubectl get pods -n healthd-system -o wide`"]),
        command="kubectl get nodehealths",
        runbook="agents-missing",
    )


def _blind(since: Mapping[str, datetime], health: Mapping[str, NodeHealth], severity: Severity) -> Problem:
    names, first = sorted(since), min(since.values())
    return Problem(
        key=key_of("healthd", "blind", stamp(first)),
        since=first,
        severity=severity,
        cause="blind",
        shared=Shared.BLIND,
        reason="blind probes",
        subject=some(names),
        title=f"healthd is blind on {counted(len(names), 'node')}: {some(names)}",
        nodes=tuple(names),
        happened=as_text(f"{name}: {health[name].status.message}" for name in names[:3]),
        did=as_text(["these nodes stay in service: what cannot be read is unknown, not unhealthy"]),
        todo=as_text(
            ["see what changed on them: the driver, a mount, the image of the agent. `healthd status` there says more"]
        ),
        command=f"kubectl get nodehealth {shell_word(names[0], 'NODE')} -o yaml",
        runbook="probes-blind",
    )
