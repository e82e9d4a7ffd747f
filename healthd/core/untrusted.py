"""
The edge: what others wrote, read into bounded values.

A tenant writes annotations, labels and statuses, and may mean harm. Here their text becomes numbers, moments and lists,
with a bound on digits, length, count and the size after decompression; depth is bounded by the decoder. What does not
fit is Unreadable, with a reason for its author: the object is invalid then, and nothing else happens.
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
"""As Kubernetes bounds its own counts."""
LARGEST_STEP = 10**18 - 1
"""The steps of checkpoints have 18 digits at most; fits an int64 and a float."""
LARGEST_GANG = 100_000
"""Members: ten times the largest gang that healthd is tried with. Their names are held in memory, some 10 MB."""
LONGEST_JSON = 256 * 1024
"""Characters. All annotations of an object share so many bytes."""
LONGEST_SHOWN = 60
"""Characters of a text that a reason repeats."""

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""With its zone: a moment without one cannot be compared with others."""
AttemptNumber = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_NUMBER)]
Step = Annotated[int, msgspec.Meta(ge=-1, le=LARGEST_STEP)]
"""-1: not known."""

_DIGITS = re.compile("0*([0-9]{1,18})")
"""ASCII: `str.isdecimal` takes the digits of every script."""


class Unreadable(ValueError):
    """A text that does not fit; the message tells its author why."""


def shown(text: str) -> str:
    """*text* as a reason repeats it: quoted, short, and harmless for a terminal."""
    more = f"… ({len(text):,} characters)" if len(text) > LONGEST_SHOWN else ""
    return ascii(text[:LONGEST_SHOWN]) + more if not text.isprintable() else repr(text[:LONGEST_SHOWN]) + more


def read_number(text: str, *, least: int = 0, most: int = LARGEST_NUMBER) -> int:
    """A whole number as a user writes it. Raises Unreadable."""
    match = _DIGITS.fullmatch(text) if len(text) <= LONGEST_SHOWN else None
    if match is None or not least <= int(match[1]) <= most:
        raise Unreadable(f"{shown(text)} is not a number from {least} to {most:,}")
    return int(match[1])


def number_or(text: str, otherwise: int, *, most: int = LARGEST_NUMBER) -> int:
    """A number that a program wrote; *otherwise* where there is none, or none that can be read."""
    try:
        return read_number(text, most=most)
    except Unreadable:
        return otherwise


def read_text(text: str, longest: int, *, allowed: str = "") -> str:
    """A name, a path or a URL; *allowed* are characters besides those that can be printed. Raises Unreadable."""
    if len(text) > longest:
        raise Unreadable(f"{shown(text)} is longer than {longest:,} characters")
    if not all(char.isprintable() or char in allowed for char in text):
        raise Unreadable(f"{shown(text)} holds characters that cannot be printed")
    return text


def read_json(text: str, kind: type[T]) -> T:
    """A value of *kind*. Raises Unreadable."""
    if len(text) > LONGEST_JSON:
        raise Unreadable(f"{shown(text)} is longer than {LONGEST_JSON:,} characters")
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(f"{shown(text)}: {error}") from error
    except RecursionError as error:
        raise Unreadable(f"{shown(text)} is nested too deeply") from error


def inflated(text: str, most: int) -> bytes:
    """What zlib or gzip packed, and base64 made printable. Never more than *most* bytes. Raises Unreadable."""
    stream = zlib.decompressobj(wbits=32 + zlib.MAX_WBITS)
    try:
        raw = stream.decompress(base64.b64decode(text), most + 1)
    except (zlib.error, ValueError) as error:
        raise Unreadable(f"{shown(text)} cannot be unpacked: {error}") from error
    if len(raw) > most:
        raise Unreadable(f"{shown(text)} unpacks to more than {most:,} bytes")
    if not stream.eof:
        raise Unreadable(f"{shown(text)} is cut off")
    return raw
