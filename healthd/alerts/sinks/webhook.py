"""
A webhook of your own, in the form of Alertmanager's own webhooks (version 4), so every receiver of those works.

An answer of 2xx proves that your server has the message: ACCEPTED. `groupKey` with `revision` tells a repetition from
an update. Texts are exact: your receiver escapes them for where it shows them.

With a key, `X-Healthd-Signature` is `v1=` and the HMAC-SHA256, in hexadecimal digits, of the value of
`X-Healthd-Timestamp` (Unix seconds), a full stop, and the body byte for byte. A receiver compares it in constant time,
and refuses what is older than five minutes. docs/monitoring/alert-webhook.schema.json has the form of the body.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Response
from healthd.alerts.labels import annotations_of, fingerprint, labels_of
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import HttpSink, Request
from healthd.alerts.sinks.keyed import digest_key
from healthd.core.api.incidents import Incident
from healthd.core.untrusted import Moment

NOT_ENDED = datetime(1, 1, 1, tzinfo=UTC)
MOST_ALERTS = 1000
"""Alerts in one message. `truncatedAlerts` counts the others."""
Status = Literal["firing", "resolved"]


class Alert(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One incident."""

    status: Status
    labels: Annotated[
        Mapping[str, str], Meta(description="Identity: alertname, incident, cluster, severity, namespace, …")
    ]
    annotations: Annotated[
        Mapping[str, str],
        Meta(description="Text: summary, happened, did, todo, command, runbook, nodes; revision, which grows."),
    ]
    starts_at: Moment
    ends_at: Annotated[Moment, Meta(description="0001-01-01T00:00:00Z while the incident is open.")]
    generator_url: str = msgspec.field(name="generatorURL", default="")
    fingerprint: Annotated[str, Meta(description="The same for all messages about one incident.")]


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of a webhook of healthd. Its form is that of Alertmanager's webhooks, version 4."""

    version: Literal["4"] = "4"
    group_key: Annotated[
        str, Meta(description="The key of the incident; it ends in `healthd/digest` for a message about many.")
    ]
    truncated_alerts: int = 0
    status: Status
    receiver: Annotated[str, Meta(description="The name of the sink.")]
    group_labels: Mapping[str, str] = {}
    common_labels: Mapping[str, str] = {}
    common_annotations: Mapping[str, str] = {}
    external_url: str = msgspec.field(name="externalURL", default="")
    alerts: tuple[Alert, ...]


class Webhook(HttpSink):
    """Your server is at `urls`. `secret_file`, where there is one, holds the key for signatures."""

    rate = 300.0
    is_repeatable = True

    def _request(self, incident: Incident, credentials: Credentials) -> Request:
        return self._signed(message_of(self.name, incident.dedup_key, [incident]), credentials)

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        return self._signed(message_of(self.name, digest_key(incidents), incidents), credentials)

    def _signed(self, message: Message, credentials: Credentials) -> Request:
        body = msgspec.json.encode(message)
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {"X-Healthd-Timestamp": timestamp}
        if credentials.key.reveal():
            headers["X-Healthd-Signature"] = f"v1={signature(credentials.key.reveal(), timestamp, body)}"
        return Request(credentials.url.reveal(), body, headers)

    def _read(self, response: Response) -> Outcome:
        return Outcome(Answer.ACCEPTED, f"the server has it (it answered {response.status})")


def signature(key: str, timestamp: str, body: bytes) -> str:
    """What a receiver must compute too."""
    return hmac.new(key.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def message_of(receiver: str, key: str, incidents: Sequence[Incident]) -> Message:
    """The message about *incidents*."""
    alerts = tuple(_alert(incident) for incident in incidents[:MOST_ALERTS])
    return Message(
        group_key=key,
        truncated_alerts=len(incidents) - len(alerts),
        status="resolved" if all(incident.resolved for incident in incidents) else "firing",
        receiver=receiver,
        group_labels={"alertname": alerts[0].labels["alertname"]} if alerts else {},
        common_labels=_common([alert.labels for alert in alerts]),
        common_annotations=_common([alert.annotations for alert in alerts]),
        alerts=alerts,
    )


def schema() -> str:
    """The page docs/monitoring/alert-webhook.schema.json."""
    found = msgspec.json.schema(Message)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Webhook of healthd, version 4"}
    return msgspec.json.format(msgspec.json.encode({**head, **found}), indent=2).decode() + "\n"


def _alert(incident: Incident) -> Alert:
    return Alert(
        status="resolved" if incident.resolved else "firing",
        labels=labels_of(incident),
        annotations=annotations_of(incident),
        starts_at=incident.opened,
        ends_at=incident.resolved or NOT_ENDED,
        fingerprint=fingerprint(incident),
    )


def _common(each: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first = each[0] if each else {}
    return {name: value for name, value in first.items() if all(one.get(name) == value for one in each)}
