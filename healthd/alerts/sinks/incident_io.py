"""
incident.io, an alert source of type HTTP: `POST /v2/alert_events/http/ID`.

An answer of 202 proves that the event waits to be processed: ACCEPTED. Alert routes decide who is called. Events with
the same `deduplication_key` belong to one alert.

Limits: 512 KB for an event, 1,200 requests a minute. `description` is Markdown. Source: incident.io's API reference,
Alert Events V2, read in November 2026; the size is what Alertmanager's own integration keeps to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from healthd.alerts.answers import unexpected
from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Response
from healthd.alerts.labels import labels_of
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import Request
from healthd.alerts.sinks.keyed import KeyedSink, digest_key, has_page
from healthd.alerts.text import body, digest, digest_headline, one_line, plain, unlinked
from healthd.core.api.incidents import Incident, Severity

DESCRIPTION = 10_000


class IncidentIo(KeyedSink):
    """One alert source. `urls` has the address that it shows, and `token_file` holds its token."""

    rate = 600.0

    def _open(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        return self._event(event_of(incident, key, "firing"), credentials)

    def _close(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        return self._event(event_of(incident, key, "resolved"), credentials)

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        event = {
            "title": unlinked(digest_headline(incidents)),
            "description": escape(digest(incidents, DESCRIPTION)),
            "status": "firing",
            "deduplication_key": digest_key(incidents),
            "metadata": {"severity": (Severity.PAGE if has_page(incidents) else Severity.NOTICE).value},
        }
        return self._event(event, credentials)

    def _event(self, event: dict[str, Any], credentials: Credentials) -> Request:
        return Request(credentials.url.reveal(), event, {"Authorization": f"Bearer {credentials.token.reveal()}"})

    def _read(self, response: Response) -> Outcome:
        if response.status != 202:
            return unexpected(response, "202")
        return Outcome(Answer.ACCEPTED, "incident.io has the event; alert routes decide who is called")


def event_of(incident: Incident, key: str, status: str) -> dict[str, Any]:
    """One event about one alert."""
    return {
        "title": unlinked(one_line(incident.title)) or incident.dedup_key,
        "description": escape(body(incident, DESCRIPTION)),
        "status": status,
        "deduplication_key": key,
        "metadata": _metadata(incident),
    }


def _metadata(incident: Incident) -> dict[str, Any]:
    """Attributes, which routes and messages of incident.io repeat."""
    texts = {**labels_of(incident), "command": plain(incident.command)}
    nodes = [unlinked(one_line(name)) for name in incident.nodes[:100]]
    return {**{name: unlinked(text) for name, text in texts.items()}, "nodes": nodes}


def escape(text: str) -> str:
    """*text* for Markdown: what makes a link, a mention, an image or an emphasis is only a character."""
    return re.sub(r"([\\`*_\[\]<>@!#])", r"\\\1", unlinked(text))
