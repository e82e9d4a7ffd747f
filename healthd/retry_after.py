"""How long a server asks to wait: the header `Retry-After` of an answer, which a stranger may have written."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_WAIT = 3600.0
"""Seconds. A service that asks for more is asked again after this time."""


def parse_retry_after(text: str, now: datetime) -> float | None:
    """Seconds to wait, from a number or a date. None when *text* is neither."""
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return min(float(text), LONGEST_WAIT)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return min(max((date - now).total_seconds(), 0.0), LONGEST_WAIT)
