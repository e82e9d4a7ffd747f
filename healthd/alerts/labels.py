"""
An incident as Prometheus and Alertmanager say it: labels, which are its identity, and annotations, which are its text.
"""

from __future__ import annotations

import hashlib
import re

from healthd.alerts.text import nodes, one_line, plain
from healthd.core.api.incidents import Incident

ALERT_NAME = "HealthdIncident"
MOST_TEXT = 8000
"""Characters of one annotation."""


def labels_of(incident: Incident) -> dict[str, str]:
    """Labels without empty values. Of all of them only `severity` may change while an incident is open."""
    named = {
        **{label_name(name): value for name, value in incident.labels.items()},
        "alertname": ALERT_NAME,
        "incident": incident.dedup_key,
        "cluster": incident.cluster,
        "severity": incident.severity.value,
        "namespace": incident.namespace,
        "gang": incident.gang,
        "team": incident.team,
    }
    return {name: one_line(value) for name, value in sorted(named.items()) if value}


def annotations_of(incident: Incident) -> dict[str, str]:
    """Annotations without empty values."""
    named = {
        "summary": incident.title,
        "happened": incident.happened,
        "did": incident.did,
        "todo": incident.todo,
        "command": incident.command,
        "runbook_url" if "://" in incident.runbook else "runbook": incident.runbook,
        "nodes": nodes(incident),
        "revision": str(incident.revision),
    }
    return {name: plain(value)[:MOST_TEXT] for name, value in named.items() if value}


def fingerprint(incident: Incident) -> str:
    """16 hexadecimal digits that are the same for all messages about one incident."""
    return hashlib.sha256(incident.dedup_key.encode()).hexdigest()[:16]


def label_name(name: str) -> str:
    """*name* in the form that every version of Prometheus takes."""
    text = re.sub("[^a-zA-Z0-9_]", "_", name)
    return text if re.match("[a-zA-Z_]", text) else f"_{text}"
