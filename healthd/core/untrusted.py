"""
Parses untrusted text into bounded values.

Tenants write annotations, labels and statuses, and a tenant may be malicious. This module turns their text into
numbers, times and lists. It limits the digits, the length, the count and the size after decompression; the decoder
limits the nesting depth. Text that does not fit raises Unreadable, with a reason for its author. The object is then
invalid, and nothing else happens.
"""

from __future__ import annotations

import base64
import re
import zlib
from datetime import datetime
from typing import Annotated, TypeVar

import msgspec

T = TypeVar("T")

LARGEST_NUMBER = 2**31 - 1
"""The limit that Kubernetes has for its own counts."""
LARGEST_STEP = 10**18 - 1
"""Steps of checkpoints have at most 18 digits; this fits an int64 and a float."""
LARGEST_GANG = 20_000
"""Members: twice the largest gang that healthd is tested with. What must be kept of each fits into one object."""
LONGEST_JSON = 256 * 1024
"""Characters. All annotations of an object together may have this many bytes."""
SHORT_NUMBER = 18
"""Digits that `int` may parse unseen."""
LONGEST_SHOWN = 60
"""Characters of the bad text that an error message repeats."""

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""With its time zone: a time without a zone cannot be compared with others."""
AttemptNumber = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_NUMBER)]
Step = Annotated[int, msgspec.Meta(ge=-1, le=LARGEST_STEP)]
"""-1: unknown."""

_DIGITS = re.compile("0*([0-9]{1,18})")
"""ASCII digits only: `str.isdecimal` accepts the digits of every script."""


class InvalidText(ValueError):
    """A text that does not fit; the message explains to its author why."""


def shown(text: str) -> str:
    """*text* for an error message: quoted, short, and safe for a terminal."""
    more = f"… ({len(text):,} characters)" if len(text) > LONGEST_SHOWN else ""
    return ascii(text[:LONGEST_SHOWN]) + more if not text.isprintable() else repr(text[:LONGEST_SHOWN]) + more


def read_number(text: str, *, least: int = 0, most: int = LARGEST_NUMBER) -> int:
    """A whole number as a user writes it. Raises Unreadable."""
    match = _DIGITS.fullmatch(text) if len(text) <= LONGEST_SHOWN else None
    if match is None or not least <= int(match[1]) <= most:
        raise InvalidText(f"{shown(text)} is not a number from {least} to {most:,}")
    return int(match[1])


def number_or(text: str, otherwise: int, *, most: int = LARGEST_NUMBER) -> int:
    """A number that a program wrote; *otherwise* when *text* is empty or not a valid number."""
    if not text:
        return otherwise
    if len(text) <= SHORT_NUMBER and text.isascii() and text.isdecimal():  # nearly all are: versions, attempts
        return number if (number := int(text)) <= most else otherwise
    try:
        return read_number(text, most=most)
    except InvalidText:
        return otherwise


def read_moment(text: str) -> datetime:
    """A time as a person writes it, such as `2026-01-01T12:00:00Z`. Raises Unreadable, also where it has no zone."""
    try:
        at = datetime.fromisoformat(text.upper())
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidText(f"{shown(text)} is no time with its zone, such as 2026-01-01T12:00:00Z")
    return at


def moment_or_none(text: str) -> datetime | None:
    """The same; None when *text* is empty or no such time."""
    try:
        return read_moment(text)
    except InvalidText:
        return None


def read_text(text: str, longest: int, *, allowed: str = "") -> str:
    """A name, a path or a URL; *allowed* are the non-printable characters that may be in it. Raises Unreadable."""
    if len(text) > longest:
        raise InvalidText(f"{shown(text)} is longer than {longest:,} characters")
    if not (text.isprintable() or all(char.isprintable() or char in allowed for char in text)):
        raise InvalidText(f"{shown(text)} holds characters that cannot be printed")
    return text


def read_json(text: str, kind: type[T]) -> T:
    """Decodes JSON into a value of *kind*. Raises Unreadable."""
    if len(text) > LONGEST_JSON:
        raise InvalidText(f"{shown(text)} is longer than {LONGEST_JSON:,} characters")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidText(f"{shown(text)}: {error}") from error
    except RecursionError as error:
        raise InvalidText(f"{shown(text)} is nested too deeply") from error


def inflated(text: str, most: int) -> bytes:
    """Decodes base64 and decompresses zlib or gzip. Never more than *most* bytes. Raises Unreadable."""
    stream = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    try:
        raw = stream.decompress(base64.b64decode(text), most + 1)
    except (zlib.error, ValueError) as error:
        raise InvalidText(f"{shown(text)} cannot be unpacked: {error}") from error
    if len(raw) > most:
        raise InvalidText(f"{shown(text)} unpacks to more than {most:,} bytes")
    if not stream.eof:
        raise InvalidText(f"{shown(text)} is cut off")
    return raw
