"""Incidents and sinks to test with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from healthd.alerts.http import Limits
from healthd.alerts.registry import make_sink
from healthd.alerts.sinks.base import HttpSink
from healthd.core.api.incidents import Incident, Severity
from healthd.core.config.alerts import NEEDS, SinkKind, SinkPolicy
from tests.fakes import ManualClock

OPENED = datetime(2026, 1, 1, 3, 12, tzinfo=UTC)
TOKEN = "tok-4f9c2e7d11"  # a made-up one
PATH_TOKEN = "T024/B17/k3y-in-the-path"
KEY = "sign-with-this-key"
QUICK = Limits(connect=20.0, answer=0.1)
"""The test server takes connections at once, also on a busy machine. What never comes is not waited for."""


def an_incident(**other: Any) -> Incident:
    """A gang that waits for a spare."""
    fields = {
        "key": "recovery/team-a/llama-3",
        "severity": Severity.PAGE,
        "title": "job/llama waits for a spare",
        "opened": OPENED,
        "updated": OPENED + timedelta(minutes=1),
        "namespace": "team-a",
        "gang": "job/llama",
        "team": "research",
        "nodes": ("n7", "n9"),
        "happened": "GPU 3 of n7 fell off the bus.",
        "did": "healthd stopped the gang.",
        "todo": "Add a spare node.",
        "command": "healthd explain job/llama -n team-a",
        "runbook": "recovery-held",
        "labels": {"cause": "xid-79"},
    }
    return Incident(**{**fields, **other})


def resolved(incident: Incident, **other: Any) -> Incident:
    """Its last revision."""
    end = OPENED + timedelta(hours=1)
    fields = {"revision": incident.revision + 1, "resolved": end, "updated": end, **other}
    return Incident(**{**{name: getattr(incident, name) for name in Incident.__struct_fields__}, **fields})


def a_secret(folder: Path, name: str, text: str) -> str:
    """The path of a secret file."""
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"{text}\n")
    path.chmod(0o400)
    return str(path)


def a_policy(kind: SinkKind, url: str, folder: Path, **other: Any) -> SinkPolicy:
    """A sink of *kind* whose service is at *url*."""
    needs = {*NEEDS[kind], *({"urls"} if kind not in _SECRET_ADDRESS else ())}
    fields: dict[str, Any] = {"name": "s", "kind": kind, "insecure": True}
    if "urls" in needs:
        fields["urls"] = (url,)
    if "url_file" in needs:
        fields["url_file"] = a_secret(folder, "url", f"{url}/{PATH_TOKEN}")
    if "token_file" in needs:
        fields["token_file"] = a_secret(folder, "token", TOKEN)
    if "channel" in needs:
        fields["channel"] = "C1"
    if kind is SinkKind.APPRISE:
        fields["severities"] = (Severity.NOTICE,)
    return SinkPolicy(**{**fields, **other})


def a_sink(
    kind: SinkKind, url: str, folder: Path, *, limits: Limits = QUICK, base_url: str = "", **other: Any
) -> HttpSink:
    """The sink itself."""
    sink = make_sink(a_policy(kind, url, folder, **other), ManualClock(OPENED), limits=limits, base_url=base_url)
    assert isinstance(sink, HttpSink)
    return sink


_SECRET_ADDRESS = (
    SinkKind.SLACK_WEBHOOK,
    SinkKind.TEAMS,
    SinkKind.FEISHU,
    SinkKind.DINGTALK,
    SinkKind.WECOM,
    SinkKind.APPRISE,
)
