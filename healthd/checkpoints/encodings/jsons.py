"""
JSON that others wrote, before it is decoded: a few bytes of it can become many in memory.

Counts without making anything. Depth is bounded by msgspec itself, with a RecursionError.
"""

from __future__ import annotations

import codecs

from healthd.checkpoints.tree import Damaged

_CHUNK = 1 << 20
_LARGE = 4
"""Times the memory of a number that a mapping, a list or a key takes."""


def refuse_too_many_values(raw: bytes, name: str, *, most: int) -> None:
    """
    Raise Damaged when *raw* may have more than *most* values, of which mappings, lists and keys count as several.

    An estimate from above: what stands in texts is counted too.
    """
    large = sum(raw.count(sign) for sign in (b"{", b"[", b":"))
    if raw.count(b",") + _LARGE * large > most:
        raise Damaged(f"{name}: JSON of {len(raw):,} bytes with too many values to verify")


def refuse_no_text(raw: bytes) -> None:
    """Raise UnicodeDecodeError unless *raw* is UTF-8. Never holds it all: one wide letter makes all others as wide."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    for at in range(0, len(raw), _CHUNK):
        decoder.decode(raw[at : at + _CHUNK])
    decoder.decode(b"", final=True)
