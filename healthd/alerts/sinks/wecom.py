"""
WeCom (WeChat Work), a bot of a group: `/cgi-bin/webhook/send?key=…`.

What an answer proves is said in `group_bots`. The bot has no signature: the address alone gives the right to post.

Limits: 20 messages a minute; a text 2,048 bytes. `<@name>` in a text calls somebody, so every `@` is replaced, and
`mentioned_list` is left out. Codes: 45009 too many, 93000 wrong key, 40058 malformed or too long. Source: WeCom's page
about group bots (document 91770), read in November 2026.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from healthd.alerts.credentials import Credentials
from healthd.alerts.sinks.base import Request
from healthd.alerts.sinks.group_bots import GroupBot, Words, without_mentions
from healthd.alerts.text import cut_bytes

TEXT, TITLE = 2048, 300
"""Bytes of the whole text, and of its first line."""


class WeCom(GroupBot):
    """One group."""

    rate = 18.0
    code_name = "errcode"
    most = 1600
    about_the_message = (40058,)
    too_many: ClassVar[Mapping[int, float]] = {45009: 60.0}

    def _message(self, credentials: Credentials, words: Words) -> Request:
        content = cut_bytes(f"{cut_bytes(without_mentions(words.title), TITLE)}\n{without_mentions(words.text)}", TEXT)
        return Request(credentials.url.reveal(), {"msgtype": "text", "text": {"content": content}})
