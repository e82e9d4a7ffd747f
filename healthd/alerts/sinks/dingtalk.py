"""
DingTalk, a custom bot of a group: `/robot/send?access_token=…`.

What an answer proves is said in `group_bots`. With a key, `timestamp` (milliseconds) and `sign` stand in the address:
the HMAC-SHA256 of timestamp, line feed and key. The bot takes it for an hour.

Limits: 20 messages a minute, and then none for ten minutes, so healthd stays below; a request 20,000 bytes. The message
is a plain text without Markdown, and `at` is empty, so no name in it mentions a person. Codes: 130101 too many,
310000 signature, keyword or address, 101002 and 460101 too long, -1 busy. Source: copies of DingTalk's page about
custom bots and errors that users report, read in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar
from urllib.parse import quote

from healthd.alerts.credentials import Credentials
from healthd.alerts.sinks.base import Request
from healthd.alerts.sinks.group_bots import GroupBot, Words, sign, without_mentions


class DingTalk(GroupBot):
    """One group."""

    rate = 18.0
    code_name = "errcode"
    most = 8000
    about_the_message = (101002, 460101)
    too_many: ClassVar[Mapping[int, float]] = {130101: 600.0, -1: 60.0}

    def _message(self, credentials: Credentials, words: Words) -> Request:
        content = without_mentions(f"{words.title}\n{words.text}")
        payload = {"msgtype": "text", "text": {"content": content}, "at": {"atMobiles": [], "isAtAll": False}}
        return Request(credentials.url.reveal() + self._signed(credentials.key.reveal()), payload)

    def _signed(self, key: str) -> str:
        if not key:
            return ""
        timestamp = str(int(self._clock.now().timestamp() * 1000))
        return f"&timestamp={timestamp}&sign={quote(sign(key, f'{timestamp}{chr(10)}{key}'), safe='')}"
