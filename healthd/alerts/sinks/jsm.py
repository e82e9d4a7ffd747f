"""
Jira Service Management Operations, integration events API. The same requests serve Opsgenie until it ends in April
2027: its address is `https://api.opsgenie.com/v2/alerts`.

An answer of 202 proves that the request is valid and waits to be processed: ACCEPTED. An open alert with the same
alias is not opened twice. It cannot be changed either, so an update is a note. A close of an unknown alias is accepted
and ignored.

Limits: `message` 130 characters, `alias` 512, `description` 15,000, `entity` 512, a tag 50, `details` 8,000 in all,
a note 25,000; the rate depends on the plan. Descriptions and notes are shown as HTML, so no text holds a tag. Source:
Atlassian's reference "Integration events" and Opsgenie's "Alert API", read in November 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from healthd.alerts.answers import unexpected
from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Response
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import Request
from healthd.alerts.sinks.keyed import KeyedSink, digest_key, has_page
from healthd.alerts.text import body, cut, digest, digest_headline, one_line, plain, unlinked
from healthd.core.api.incidents import Incident, Severity

URL = "https://api.atlassian.com/jsm/ops/integration/v2/alerts"
MESSAGE, DESCRIPTION, ENTITY, DETAIL, TAG = 130, 15_000, 512, 1000, 50
MOST = 10_000
"""Characters of a description before `unlinked`, which makes three of two at most."""


class JiraServiceManagement(KeyedSink):
    """One API integration. `token_file` holds its API key."""

    rate = 60.0
    public_url = URL

    def _open(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        alert = {
            "message": cut(unlinked(one_line(incident.title)), MESSAGE) or incident.dedup_key[:MESSAGE],
            "alias": key,
            "description": unlinked(body(incident, MOST)),
            "entity": cut(unlinked(one_line(incident.gang)), ENTITY),
            "source": "healthd",
            "priority": "P1" if incident.severity is Severity.PAGE else "P4",
            "tags": _tags(incident),
            "details": {name: cut(unlinked(plain(text)), DETAIL) for name, text in _details(incident).items() if text},
        }
        return self._post("", credentials, alert)

    def _update(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        note = {"source": "healthd", "note": unlinked(body(incident, MOST))}
        return self._on(key, "notes", credentials, note)

    def _close(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        note = {"source": "healthd", "note": cut(unlinked(plain(f"Resolved. {incident.did}")), DESCRIPTION)}
        return self._on(key, "close", credentials, note)

    def _digest_requests(self, incidents: Sequence[Incident], credentials: Credentials) -> list[Request]:
        """The second one is for an alert that is open already: its description stays as it was."""
        note = {"source": "healthd", "note": unlinked(digest(incidents, MOST))}
        return [self._digest(incidents, credentials), self._on(digest_key(incidents), "notes", credentials, note)]

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        alert = {
            "message": cut(unlinked(digest_headline(incidents)), MESSAGE),
            "alias": digest_key(incidents),
            "description": unlinked(digest(incidents, MOST)),
            "source": "healthd",
            "priority": "P1" if has_page(incidents) else "P4",
            "tags": ["healthd"],
        }
        return self._post("", credentials, alert)

    def _on(self, key: str, action: str, credentials: Credentials, payload: object) -> Request:
        return self._post(f"/{quote(key, safe='')}/{action}?identifierType=alias", credentials, payload)

    def _post(self, path: str, credentials: Credentials, payload: object) -> Request:
        url = credentials.url.reveal().rstrip("/") + path
        return Request(url, payload, {"Authorization": f"GenieKey {credentials.token.reveal()}"})

    def _read(self, response: Response) -> Outcome:
        if response.status != 202:
            return unexpected(response, "202")
        return Outcome(Answer.ACCEPTED, "the request waits to be processed; the team's rules decide who is called")


def _tags(incident: Incident) -> list[str]:
    named = ("healthd", incident.cluster, incident.namespace, incident.team)
    return [cut(unlinked(one_line(tag)), TAG) for tag in named if tag]


def _details(incident: Incident) -> dict[str, str]:
    return {
        "command": incident.command,
        "runbook": incident.runbook,
        "cluster": incident.cluster,
        "namespace": incident.namespace,
    }
