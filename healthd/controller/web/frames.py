"""
Server-sent events, encoded and compressed once for all viewers who see the same.

A gzip stream may consist of deflate blocks that were compressed apart, as long as each is flushed completely and refers
to nothing before it. So a frame is compressed once, and any sequence of frames is a valid stream.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""What a gzip stream begins with: no name, no time, an unknown system."""
_LEVEL = 6
_ENCODER = msgspec.json.Encoder()


class Frame:
    """One event. *plain* is what a client without gzip gets, *packed* its compressed block."""

    __slots__ = ("packed", "plain")

    def __init__(self, event: str, body: Any) -> None:
        self.plain = b"event: " + event.encode() + b"\ndata: " + _ENCODER.encode(body) + b"\n\n"
        packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        self.packed = packer.compress(self.plain) + packer.flush(zlib.Z_FULL_FLUSH)
