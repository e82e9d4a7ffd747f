"""
Microsoft Teams: a flow of the Workflows app with the trigger "When a Teams webhook request is received".

An answer of 202 proves that the flow was started: ACCEPTED, not delivered. The flow may fail later, and its owner sees
that only in its run history. There is no dedup, no update and no resolve: each revision is a card of its own.

Limits: a message 28 KB; about 60 posts a minute for one connection. All texts are runs of a RichTextBlock, which knows
no Markdown and no mention. The address is the secret (`sig=`); it is at `*.environment.api.powerplatform.com`, older
ones at `*.logic.azure.com`. Source: Microsoft's pages about Workflows webhooks and Adaptive Cards 1.4, November 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from healthd.alerts.answers import said
from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Response
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import HttpSink, Request
from healthd.alerts.text import RUNBOOK, cut_bytes, digest, digest_headline, headline, sections
from healthd.core.api.incidents import Incident, Severity

TEXT = 10_000
"""Bytes of text in one card. JSON at most doubles them, and the limit of a message is 28 KB."""


class Teams(HttpSink):
    """One channel or chat. `url_file` holds the address of its flow."""

    rate = 30.0

    def _request(self, incident: Incident, credentials: Credentials) -> Request:
        return Request(credentials.url.reveal(), card_of(incident))

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        card = _card(digest_headline(incidents), "default", [_block(digest(incidents, TEXT, cut_bytes))])
        return Request(credentials.url.reveal(), card)

    def _read(self, response: Response) -> Outcome:
        if response.status != 202 and b"error" in response.body.lower():
            return Outcome(Answer.RETRY, f"answered {response.status} with an error{said(response)}")
        return Outcome(Answer.ACCEPTED, "the flow was started; whether it posted the card is in its run history")


def card_of(incident: Incident) -> dict[str, Any]:
    """The message about *incident*."""
    color = "attention" if incident.severity is Severity.PAGE else "warning"
    parts = [_block(text, heading) for heading, text in sections(incident, TEXT, cut_bytes)]
    return _card(headline(incident), "good" if incident.resolved else color, parts)


def _card(title: str, color: str, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    heading = {"type": "TextRun", "text": title, "weight": "bolder", "size": "medium", "color": color}
    content = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": [{"type": "RichTextBlock", "inlines": [heading]}, *parts],
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": content}]}


def _block(text: str, heading: str = "") -> dict[str, Any]:
    runs: list[dict[str, Any]] = [{"type": "TextRun", "text": f"{heading}: ", "weight": "bolder"}] if heading else []
    link = {"selectAction": {"type": "Action.OpenUrl", "url": text}} if heading == RUNBOOK and "://" in text else {}
    return {"type": "RichTextBlock", "inlines": [*runs, {"type": "TextRun", "text": text, **link}]}
