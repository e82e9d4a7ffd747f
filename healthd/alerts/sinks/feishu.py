"""
Feishu and Lark, a custom bot of a group: `/open-apis/bot/v2/hook/…`.

What an answer proves is said in `group_bots`. With a key, `timestamp` (seconds) and `sign` stand in the body: the
HMAC-SHA256 of nothing, with timestamp, line feed and key as its key. The bot takes it for an hour.

Limits: a request 20 KB; 100 messages a minute and 5 a second. Texts of the card are `plain_text`, in which no `<at>`
and no Markdown counts. Codes: 9499 malformed, 11232 too many, 19021 wrong signature or clock, 19022 address not
allowed, 19024 keyword missing. Source: Feishu's guide to custom bots, read in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from healthd.alerts.credentials import Credentials
from healthd.alerts.sinks.base import Request
from healthd.alerts.sinks.group_bots import GroupBot, Words, sign


class Feishu(GroupBot):
    """One group."""

    rate = 90.0
    code_name = "code"
    most = 8000
    about_the_message = (9499,)
    too_many: ClassVar[Mapping[int, float]] = {11232: 60.0}

    def _message(self, credentials: Credentials, words: Words) -> Request:
        return Request(
            credentials.url.reveal(),
            {**self._signed(credentials.key.reveal()), "msg_type": "interactive", "card": card(words)},
        )

    def _signed(self, key: str) -> dict[str, str]:
        if not key:
            return {}
        timestamp = str(int(self._clock.now().timestamp()))
        return {"timestamp": timestamp, "sign": sign(f"{timestamp}\n{key}", "")}


def card(words: Words) -> dict[str, Any]:
    """A card: a coloured title, and the text below it."""
    return {
        "config": {"wide_screen_mode": True},
        "header": {"title": {"tag": "plain_text", "content": words.title}, "template": words.color},
        "elements": [{"tag": "div", "text": {"tag": "plain_text", "content": words.text}}],
    }
