"""
Slack. With a bot token, an incident is one message, which healthd keeps up to date, with all updates in its thread.
With an incoming webhook, each update is a message of its own, because a webhook can change nothing.

An answer with `ok` proves that the message stands in the channel: DELIVERED. It does not prove that somebody read it.
A repetition after an unknown fate may stand there twice.

Limits: a section 3,000 characters, 50 blocks, about 1 message a second in a channel, `chat.update` 50 a minute. In a
text `&`, `<` and `>` are escaped, and `verbatim` keeps Slack from looking for names in it, so that a name such as
`<!channel>` or `@here` is no mention. Source: Slack's reference of `chat.postMessage`, `chat.update` and "Rate limits".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from healthd.alerts.answers import in_body, said, unexpected, unproven
from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Response
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import GOOD, HttpSink, Request
from healthd.alerts.text import RUNBOOK, digest, digest_headline, fit, headline, sections
from healthd.core.api.incidents import Incident, Severity

URL = "https://slack.com/api"
SECTION = 3000
ABOUT_THE_MESSAGE = ("invalid_blocks", "invalid_blocks_format", "msg_too_long", "no_text")
"""Errors that no later attempt can put right. All others are of the token, the channel or Slack."""
GONE = ("message_not_found", "cant_update_message", "edit_window_closed")
"""The message of the incident was deleted or can be changed no more."""


class Thread(NamedTuple):
    """The first message of an incident, and the severity of the last update."""

    channel: str
    message: str
    severity: str

    @classmethod
    def parse(cls, text: str) -> Thread:
        """What `str` made of one."""
        channel, message, severity = (*text.split(":"), "", "")[:3]
        return cls(channel, message, severity)

    def __str__(self) -> str:
        return ":".join(self)


class Slack(HttpSink):
    """One channel. `token_file` holds a bot token (`xoxb-…`) with the right `chat:write`."""

    rate = 50.0
    public_url = URL

    async def _send(self, incident: Incident, thread: str, credentials: Credentials) -> Outcome:
        if thread:
            first = Thread.parse(thread)
            updated = await self._update(incident, first, credentials)
            if updated.answer in GOOD:
                return await self._reply(incident, first, credentials)
            if not any(error in updated.detail for error in GONE):
                return updated._replace(thread=thread)
        outcome = await self._exchange(self._request(incident, credentials), credentials)
        return outcome._replace(thread=f"{outcome.thread}:{incident.severity}" if outcome.thread else "")

    async def _update(self, incident: Incident, first: Thread, credentials: Credentials) -> Outcome:
        """Show the new state in the first message. Repeated, it changes nothing."""
        payload = {**message_of(incident), "channel": first.channel, "ts": first.message}
        return await self._exchange(_call("chat.update", credentials, payload), credentials)

    async def _reply(self, incident: Incident, first: Thread, credentials: Credentials) -> Outcome:
        """Add the update to the thread. When a notice becomes a page, everybody in the channel sees it."""
        rises = first.severity == Severity.NOTICE and incident.severity is Severity.PAGE
        thread = {"channel": first.channel, "thread_ts": first.message, "reply_broadcast": rises}
        request = _call("chat.postMessage", credentials, {**message_of(incident), **thread})
        outcome = await self._exchange(request, credentials)
        kept = first._replace(severity=incident.severity) if outcome.answer in GOOD else first
        return outcome._replace(thread=str(kept))

    def _request(self, incident: Incident, credentials: Credentials) -> Request:
        return self._post(message_of(incident), credentials)

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        return self._post(digest_of(incidents), credentials)

    def _post(self, message: dict[str, Any], credentials: Credentials) -> Request:
        return _call("chat.postMessage", credentials, {**message, "channel": self._config.channel})

    def _read(self, response: Response) -> Outcome:
        found = in_body(response)
        if isinstance(found, Outcome):
            return found
        if found.get("ok") is True:
            return Outcome(Answer.DELIVERED, "the message stands in the channel", thread=_thread(found))
        answer = Answer.REFUSED if found.get("error") in ABOUT_THE_MESSAGE else Answer.RETRY
        return Outcome(answer, f"Slack refused it{said(response)}", response.retry_after)


class SlackWebhook(HttpSink):
    """One channel. `url_file` holds the address of an incoming webhook."""

    rate = 50.0

    def _request(self, incident: Incident, credentials: Credentials) -> Request:
        return Request(credentials.url.reveal(), message_of(incident))

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        return Request(credentials.url.reveal(), digest_of(incidents))

    def _read(self, response: Response) -> Outcome:
        if response.body.strip() == b"ok":
            return Outcome(Answer.DELIVERED, "the message stands in the channel")
        return unproven(response) if response.cut else unexpected(response, "`ok`")


def digest_of(incidents: Sequence[Incident]) -> dict[str, Any]:
    """The message about many incidents, without its channel."""
    text = digest(incidents, SECTION, cut_escaped)
    return _message(escape(digest_headline(incidents)), [escape(text)])


def message_of(incident: Incident) -> dict[str, Any]:
    """The message about *incident*, without its channel."""
    parts = sections(incident, SECTION, cut_escaped)
    texts = [f"*{heading}*\n{_shown(heading, text)}" if heading else escape(text) for heading, text in parts]
    return _message(escape(headline(incident)), texts)


def _shown(heading: str, text: str) -> str:
    """*text*, as a link where it is one of ours."""
    return f"<{escape(text)}>" if heading == RUNBOOK and "://" in text else escape(text)


def escape(text: str) -> str:
    """*text* as Slack takes it literally."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cut_escaped(text: str, most: int) -> str:
    """*text* of at most *most* characters when it is escaped."""
    return fit(text, lambda shorter: len(escape(shorter)) <= most)


def _message(title: str, texts: Sequence[str]) -> dict[str, Any]:
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}
        for text in (f"*{title}*", *texts)
    ]
    return {"text": title, "blocks": blocks, "unfurl_links": False, "unfurl_media": False}


def _thread(answer: dict[str, Any]) -> str:
    return f"{answer['channel']}:{answer['ts']}" if answer.get("channel") and answer.get("ts") else ""


def _call(method: str, credentials: Credentials, payload: dict[str, Any]) -> Request:
    headers = {
        "Authorization": f"Bearer {credentials.token.reveal()}",
        "Content-Type": "application/json; charset=utf-8",
    }
    return Request(f"{credentials.url.reveal().rstrip('/')}/{method}", payload, headers)
