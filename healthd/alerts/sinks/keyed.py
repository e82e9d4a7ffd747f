"""Services that know each alert by a key: PagerDuty, Jira Service Management, incident.io."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Http
from healthd.alerts.secrets import SecretError
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import GOOD, HttpSink, Request
from healthd.clock import Clock
from healthd.core.api.incidents import Incident, Severity, key_of
from healthd.core.config.alerts import SinkPolicy

DIGEST = "healthd/digest"


class KeyedSink(HttpSink):
    """
    A service that knows each alert by a key, such as PagerDuty.

    Such a service decides once, when an alert is opened, whether somebody is woken. So the incident has one key for
    each severity: when a notice becomes a page, an alert with another key is opened, and the first one is closed. The
    thread is the severity of the last message.
    """

    is_repeatable = True

    def __init__(self, config: SinkPolicy, http: Http, clock: Clock, base_url: str = "") -> None:
        super().__init__(config, http, clock, base_url)
        self._closed: dict[str, None] = {}
        """Keys that a digest has closed, so that its repetition goes on where it was stopped."""

    async def send_digest(self, incidents: Sequence[Incident]) -> Outcome:
        """
        One alert for all open incidents. It stays open until a person closes it, and later digests join it.

        Alerts of incidents that were resolved are closed one by one, or they would stay open for ever.
        """
        try:
            credentials = self.credentials.read()
        except SecretError as error:
            return Outcome(Answer.RETRY, str(error))
        outcome = Outcome(Answer.ACCEPTED, "all of them are closed")
        opened = [incident for incident in incidents if incident.resolved is None]
        for request in self._digest_requests(opened, credentials) if opened else ():
            outcome = await self._exchange(request, credentials)
            if outcome.answer not in GOOD:
                return outcome
        bad = await self._close_all([one for one in incidents if one.resolved is not None], credentials)
        return bad or outcome

    async def _close_all(self, incidents: Sequence[Incident], credentials: Credentials) -> Outcome | None:
        """Close what is not closed yet. The first outcome that is not good."""
        for incident in incidents:
            for key in (alert_key(incident, severity) for severity in Severity):
                if key in self._closed:
                    continue
                outcome = await self._exchange(self._close(incident, key, credentials), credentials)
                if outcome.answer not in GOOD:
                    return outcome
                self._closed[key] = None
        self._closed.clear()
        return None

    async def _send(self, incident: Incident, thread: str, credentials: Credentials) -> Outcome:
        key = alert_key(incident, incident.severity)
        make = self._make(incident, thread)
        outcome = await self._exchange(make(incident, key, credentials), credentials)
        for severity in _outdated(incident, thread) if outcome.answer in GOOD else ():
            close = self._close(incident, alert_key(incident, severity), credentials)
            closed = await self._exchange(close, credentials)
            outcome = outcome if closed.answer in GOOD else closed
        return outcome._replace(thread=incident.severity.value if outcome.answer in GOOD else thread)

    def _digest_requests(self, incidents: Sequence[Incident], credentials: Credentials) -> list[Request]:
        return [self._digest(incidents, credentials)]

    def _make(self, incident: Incident, thread: str) -> Callable[[Incident, str, Credentials], Request]:
        if incident.resolved is not None:
            return self._close
        return self._update if thread == incident.severity else self._open

    def _open(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        """Open the alert. Nothing new is opened when *key* is open already."""
        raise NotImplementedError

    def _update(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        """Change the open alert."""
        return self._open(incident, key, credentials)

    def _close(self, incident: Incident, key: str, credentials: Credentials) -> Request:
        """Close the alert. A service that does not know *key* ignores it."""
        raise NotImplementedError


def alert_key(incident: Incident, severity: Severity, most: int = 255) -> str:
    """The key of a page is that of its incident. A notice has another one."""
    own = incident.dedup_key
    key = own if severity is Severity.PAGE else f"{own}#{severity}"
    return key if len(key) <= most else f"{key[: most - 17]}#{_short_hash(key)}"


def digest_key(incidents: Sequence[Incident]) -> str:
    """The key of all digests of one cluster: in a storm they are one alert."""
    newest = max(incidents, key=lambda each: each.opened)
    return key_of(newest.cluster, DIGEST) if newest.cluster else DIGEST


def has_page(incidents: Sequence[Incident]) -> bool:
    """Whether a person must act on something in a digest."""
    return any(incident.severity is Severity.PAGE and incident.resolved is None for incident in incidents)


def _outdated(incident: Incident, thread: str) -> list[Severity]:
    """The severities whose alerts are no longer right. Without a thread it is not known what was sent."""
    others = [severity for severity in Severity if severity is not incident.severity]
    if thread:
        return [severity for severity in others if severity == thread]
    return others if incident.resolved is not None else []


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
