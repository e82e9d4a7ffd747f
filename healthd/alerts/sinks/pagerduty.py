"""
PagerDuty, Events API v2.

An answer of 202 proves that PagerDuty has the event: ACCEPTED. Whether somebody is called is decided by the service
and its escalation policy. An event with a `dedup_key` that is open updates that alert; a `resolve` of a key that is
not open is dropped. A `trigger` after a `resolve` opens a new alert.

Limits: `dedup_key` 255 characters, `summary` 1,024 characters, an event 512 KB, about 120 events a minute for one
integration key (429 above). Source: PagerDuty's developer documentation, events-API-v2, August 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from healthd.alerts.answers import unexpected
from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Response
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import Request
from healthd.alerts.sinks.keyed import KeyedSink, digest_key, has_page
from healthd.alerts.text import cut, digest, digest_headline, nodes, one_line, plain, unlinked
from healthd.core.api.incidents import Incident, Severity

URL = "https://events.pagerduty.com"
"""`https://events.eu.pagerduty.com` for accounts in the EU."""
SUMMARY = 1024
DETAIL = 8000
"""Characters of each detail."""


class PagerDuty(KeyedSink):
    """One integration of one service. `token_file` holds its integration key."""

    rate = 100.0
    public_url = URL

    def _open(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        request = self._event("trigger", key, credentials, payload_of(incident))
        links = [{"href": incident.runbook, "text": "Runbook"}] if "://" in incident.runbook else []
        return request._replace(payload={**request.payload, "links": links}) if links else request

    def _close(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        return self._event("resolve", key, credentials, payload_of(incident))

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        payload = {
            "summary": cut(unlinked(digest_headline(incidents)), SUMMARY),
            "source": "healthd",
            "severity": "critical" if has_page(incidents) else "info",
            "custom_details": {"incidents": unlinked(digest(incidents, DETAIL))},
        }
        return self._event("trigger", digest_key(incidents), credentials, payload)

    def _event(self, action: str, key: str, credentials: Credentials, payload: dict[str, Any] | None = None) -> Request:
        event = {
            "routing_key": credentials.token.reveal(),
            "event_action": action,
            "dedup_key": key,
            "client": "healthd",
        }
        url = credentials.url.reveal().rstrip("/") + "/v2/enqueue"
        return Request(url, {**event, "payload": payload} if payload else event)

    def _read(self, response: Response) -> Outcome:
        if response.status != 202:
            return unexpected(response, "202")
        return Outcome(Answer.ACCEPTED, "PagerDuty has the event; the service decides who is called")


def payload_of(incident: Incident) -> dict[str, Any]:
    """The part of an event that says what is wrong."""
    return {
        "summary": cut(unlinked(one_line(incident.title)), SUMMARY) or incident.dedup_key,
        "source": _short(incident.gang or (incident.nodes[0] if incident.nodes else "healthd")),
        "severity": "critical" if incident.severity is Severity.PAGE else "info",
        "timestamp": incident.opened,
        "component": "healthd",
        "group": _short(incident.namespace),
        "custom_details": details_of(incident),
    }


def _short(name: str) -> str:
    return cut(unlinked(one_line(name)), SUMMARY)


def details_of(incident: Incident) -> dict[str, str]:
    """What a person reads in the alert, without empty values."""
    named = {
        "what_happened": incident.happened,
        "what_healthd_did": incident.did,
        "what_is_left_to_do": incident.todo,
        "ask_why": incident.command,
        "runbook": incident.runbook,
        "gang": incident.gang,
        "cluster": incident.cluster,
        "namespace": incident.namespace,
        "team": incident.team,
        "nodes": nodes(incident),
        **incident.labels,
    }
    return {name: cut(unlinked(plain(text)), DETAIL) for name, text in named.items() if text}
