"""
Checks JSON from users before it is decoded: a few bytes of it can take much memory.

It only counts and builds nothing. msgspec itself limits the depth, with a RecursionError.
"""

from __future__ import annotations

import codecs

from healthd.checkpoints.tree import Damaged

_CHUNK = 1 << 20
_LARGE = 4
"""The memory of a mapping, a list or a key, as a multiple of the memory of a number."""


def refuse_too_many_values(raw: bytes, name: str, *, most: int) -> None:
    """
    Raise Damaged when *raw* may have more than *most* values. Mappings, lists and keys count as several values.

    The count is an upper estimate: characters inside texts count too.
    """
    large = sum(raw.count(sign) for sign in (b"{", b"[", b":"))
    if raw.count(b",") + _LARGE * large > most:
        raise Damaged(f"{name}: JSON of {len(raw):,} bytes with too many values to verify")


def refuse_no_text(raw: bytes) -> None:
    """
    Raise UnicodeDecodeError unless *raw* is UTF-8. Never decodes all of it at once: one wide character makes all
    others wide.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    for at in range(0, len(raw), _CHUNK):
        decoder.decode(raw[at : at + _CHUNK])
    decoder.decode(b"", final=True)
