"""
What the group bots of Feishu, DingTalk and WeCom have in common: they answer 200 whatever happened, with a code in the
body. Code 0 proves that the message stands in the group: DELIVERED. There is no update and no resolve: each revision is
a message of its own. The address of a bot is a secret, because it holds its token.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from healthd.alerts.answers import in_body, said, unexpected
from healthd.alerts.credentials import Credentials
from healthd.alerts.http import Response
from healthd.alerts.sink import Answer, Outcome
from healthd.alerts.sinks.base import HttpSink, Request
from healthd.alerts.text import body, digest, digest_headline, fit, headline, unlinked
from healthd.core.api.incidents import Incident, Severity


class Words(NamedTuple):
    """What a message says."""

    title: str
    text: str
    color: str


class GroupBot(HttpSink):
    """One group. `url_file` has the address of its bot, and `secret_file`, if there is one, a key for signatures."""

    code_name: ClassVar[str]
    """The field of the body with the code."""
    most: ClassVar[int]
    """Bytes of text in one message."""
    about_the_message: ClassVar[Sequence[int]]
    """Codes that no later attempt can put right. All others are of the bot, its key or its rate."""
    too_many: ClassVar[Mapping[int, float]]
    """Codes of a rate limit, and how many seconds it lasts."""

    def _request(self, incident: Incident, credentials: Credentials) -> Request:
        words = Words(headline(incident), body(incident, self.most, cut_shown), color_of(incident))
        return self._message(credentials, words)

    def _digest(self, incidents: Sequence[Incident], credentials: Credentials) -> Request:
        words = Words(digest_headline(incidents), digest(incidents, self.most, cut_shown), "blue")
        return self._message(credentials, words)

    def _message(self, credentials: Credentials, words: Words) -> Request:
        """The message, signed when there is a key."""
        raise NotImplementedError

    def _read(self, response: Response) -> Outcome:
        found = in_body(response)
        if isinstance(found, Outcome):
            return found
        code = found.get(self.code_name)
        if code == 0:
            return Outcome(Answer.DELIVERED, "the message stands in the group")
        if not isinstance(code, int):
            return unexpected(response, f"with {self.code_name}")
        answer = Answer.REFUSED if code in self.about_the_message else Answer.RETRY
        return Outcome(answer, f"the bot refused it{said(response)}", self.too_many.get(code))


def without_mentions(text: str) -> str:
    """*text* without tags and links behind words, in which no `@` is a mention."""
    return unlinked(text).replace("@", "＠")


def cut_shown(text: str, most: int) -> str:
    """*text* of at most *most* bytes of UTF-8 once it is `without_mentions`."""
    return fit(text, lambda shorter: len(without_mentions(shorter).encode()) <= most)


def sign(key: str, message: str) -> str:
    """HMAC-SHA256 in base64."""
    return base64.b64encode(hmac.digest(key.encode(), message.encode(), hashlib.sha256)).decode()


def color_of(incident: Incident) -> str:
    """Red where a person must act."""
    if incident.resolved is not None:
        return "green"
    return "red" if incident.severity is Severity.PAGE else "orange"
