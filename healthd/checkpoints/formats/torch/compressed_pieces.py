"""
Pieces of torch.distributed.checkpoint that its extension `stream.zstd` compressed: each is one frame around an
archive.

They are decompressed in pieces of limited size. A result small enough for memory is also checked as an archive. For a
larger one only the frame is checked, which as a rule has no checksum of its own.
Source: torch/distributed/checkpoint/_extension.py of PyTorch.
"""

from __future__ import annotations

import sys

from healthd.checkpoints.encodings import zips
from healthd.checkpoints.formats.format import VerifyLevel
from healthd.checkpoints.formats.torch.torch_zip import verify_archive
from healthd.checkpoints.tree import Damaged, File, read_at
from healthd.checkpoints.workers import LARGE, alone

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ZSTD = "stream.zstd/1"
"""The name of the compression in torch."""
MOST_HELD = 16 << 20
MOST_TIMES = 64
ALWAYS = 8 << 30
"""Extra bytes: a tensor of zeros compresses to almost nothing, and one this large is rare."""
_WINDOW = 27
_CHUNK = 1 << 20


def verify_compressed(file: File, name: str, offset: int, length: int, *, always: int = ALWAYS) -> None:
    """Raise Damaged when these bytes are not one complete frame around an archive of `torch.save`."""
    with alone(LARGE + 1):  # otherwise several at once would each use that much memory
        held, total = _decompress(file, name, offset, length, MOST_TIMES * length + always)
        if not held.startswith(b"PK\3\4"):
            raise Damaged(f"{name}: at byte {offset:,} something else was compressed than torch.save writes")
        if total == len(held):
            verify_archive(zips.Slice(file, name, 0, total, bytes(held)), VerifyLevel.FULL)


def _decompress(file: File, name: str, offset: int, length: int, most: int) -> tuple[bytearray, int]:
    """The first `MOST_HELD` decompressed bytes, and their total number. Raises Damaged."""
    machine = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW})
    held, total, at = bytearray(), 0, offset
    try:
        while not machine.eof and (at < offset + length or not machine.needs_input):
            chunk = b""
            if machine.needs_input:
                chunk = read_at(file, name, offset=at, size=min(_CHUNK, offset + length - at))
                at += len(chunk)
            out = machine.decompress(chunk, max_length=_CHUNK)
            held += out[: MOST_HELD - len(held)]
            total += len(out)
            if total > most:
                raise Damaged(f"{name}: {length:,} bytes at {offset:,} become more than {most:,} when decompressed")
    except zstd.ZstdError as error:
        raise Damaged(f"{name}: cannot be decompressed at byte {offset:,} (torn write, or changed bytes)") from error
    if not machine.eof or machine.unused_data or at < offset + length:
        raise Damaged(
            f"{name}: the compression that begins at byte {offset:,} does not end with its piece (torn write)"
        )
    return held, total
