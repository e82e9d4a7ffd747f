"""
Alertmanager, `POST /api/v2/alerts`: the recommended sink. Silences, routes and escalation are there.

An answer of 200 proves that one replica has the alert: ACCEPTED. What becomes of it is decided by its routes.

Labels are the identity of an alert. Every replica gets every alert, because replicas do not share alerts; one that
misses it gets it with the next repetition. healthd sends open alerts again each minute, and each time says that they
end ten minutes later. So an alert outlives a change of the leader, and ends by itself when healthd is gone: the
watchdog rule speaks then. Limits: none on messages; names of labels are made valid. Its templates for chats do not
escape, so no text holds a tag, a mention or a hidden link. Known since 0.27, which removed v1.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from healthd.alerts.http import Http, Response
from healthd.alerts.labels import annotations_of, labels_of
from healthd.alerts.secrets import SecretError
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import HttpSink, Request, with_link
from healthd.alerts.text import unlinked
from healthd.clock import Clock
from healthd.core.api.incidents import Incident, Severity
from healthd.core.config.alerts import SinkPolicy

PATH = "/api/v2/alerts"
RESEND_EVERY = 60.0
VALID_FOR = timedelta(minutes=10)
"""An alert that is not sent again ends after this time."""


class Alertmanager(HttpSink):
    """All replicas of one Alertmanager. `token_file`, where there is one, holds a bearer token."""

    rate = 600.0
    resend_every = RESEND_EVERY
    is_repeatable = True

    def __init__(self, config: SinkPolicy, http: Http, clock: Clock, base_url: str = "") -> None:
        super().__init__(config, http, clock, base_url)
        self._urls = [url.rstrip("/") + PATH for url in config.urls]

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """All of them in one request. To Alertmanager they stay alerts of their own."""
        return await self._to_all(incidents, "")

    async def send(self, incident: Incident, thread: str = "") -> Outcome:
        """Send to every replica. One that has it is enough. The thread is the severity of the last message."""
        outcome = await self._to_all([incident], thread)
        return outcome._replace(thread=incident.severity.value if outcome.answer is Answer.ACCEPTED else thread)

    async def _to_all(self, incidents: Sequence[Incident], thread: str) -> Outcome:
        try:
            credentials = self.credentials.read()
        except SecretError as error:
            return Outcome(Answer.RETRY, str(error))
        now = self._clock.now()
        linked = [with_link(incident, self._base_url) for incident in incidents]
        payload = [alert for incident in linked for alert in alerts_of(incident, now, thread)]
        headers = {"Authorization": f"Bearer {credentials.token.reveal()}"} if credentials.token.reveal() else {}
        requests = [Request(url, payload, headers) for url in self._urls]
        outcomes = await asyncio.gather(*(self._exchange(request, credentials) for request in requests))
        return _joined(outcomes)

    def _read(self, response: Response) -> Outcome:
        return Outcome(
            Answer.ACCEPTED, f"Alertmanager has it (it answered {response.status}); its routes decide who is notified"
        )


def alerts_of(incident: Incident, now: datetime, last: str) -> list[dict[str, Any]]:
    """
    The alert of *incident*, and the end of the one that it had with another severity.

    *last* is the severity of the last message. Empty: it is not known, and an update may follow any.
    """
    others = [severity for severity in Severity if severity is not incident.severity]
    over = [severity for severity in others if severity == last or (not last and incident.revision > 1)]
    alerts = [_alert(incident, incident.severity, incident.resolved or now + VALID_FOR)]
    return alerts + [_alert(incident, severity, incident.updated) for severity in over]


def _alert(incident: Incident, severity: Severity, ends: datetime) -> dict[str, Any]:
    labels = {**labels_of(incident), "severity": severity.value}
    return {
        "labels": {name: unlinked(value) for name, value in labels.items()},
        "annotations": {name: unlinked(text) for name, text in annotations_of(incident).items()},
        "startsAt": min(incident.opened, ends),
        "endsAt": ends,
    }


def _joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The best outcome, with what the other replicas said."""
    good = [outcome for outcome in outcomes if outcome.answer is Answer.ACCEPTED]
    bad = [outcome for outcome in outcomes if outcome.answer is not Answer.ACCEPTED]
    if not bad:
        return good[0]
    details = "; ".join(dict.fromkeys(outcome.detail for outcome in bad))
    if good:
        return good[0]._replace(detail=f"{len(good)} of {len(outcomes)} replicas have it; {details}")
    again = [outcome for outcome in bad if outcome.answer is Answer.RETRY]
    return (again or bad)[0]._replace(detail=details)
