"""Which alert services get an incident, and whose it is: the small table of `alerts.sinks` and `alerts.teams`."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from healthd.core.api.incidents import Delivery, Incident, Severity
from healthd.core.config import AlertsPolicy, SinkPolicy


def wants(sink: SinkPolicy, incident: Incident, delivery: Delivery) -> bool:
    """
    Whether *sink* gets this revision. A service that has an earlier one gets all later ones: else it would not know of
    the end. What was over before a service had it is a notice.
    """
    if delivery.revision:
        return True
    severity = Severity.NOTICE if incident.resolved is not None else incident.severity
    return severity in sink.severities and _fits(sink, incident)


def _fits(sink: SinkPolicy, incident: Incident) -> bool:
    if sink.namespaces and not (incident.namespace and matches(incident.namespace, sink.namespaces)):
        return False
    pairs = (label.split("=", 1) for label in sink.labels)
    return all(incident.labels.get(name) == value for name, value in pairs)


def team_of(namespace: str, policy: AlertsPolicy) -> str:
    """The team of a namespace; of no namespace, the default team."""
    teams = (team.name for team in policy.teams if namespace and matches(namespace, team.namespaces))
    return next(teams, policy.default_team)


def matches(namespace: str, patterns: Collection[str]) -> bool:
    """Whether one of *patterns*, in which `*` stands for any text, fits."""
    return any(fnmatchcase(namespace, pattern) for pattern in patterns)


def runbook_url(base_url: str, incident: Incident) -> str:
    """The address of the incident's runbook page; empty without *base_url*."""
    return f"{base_url.rstrip('/')}/{incident.runbook}" if base_url and incident.runbook else ""
