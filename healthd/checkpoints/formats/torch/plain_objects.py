"""
Objects that a custom planner of torch.distributed.checkpoint stores otherwise than `torch.save` does.

A pickle is read as data, and no object is built. Pickles and texts have no checksum: a changed number is not detected.
"""

from __future__ import annotations

from healthd.checkpoints.encodings.jsons import refuse_no_text
from healthd.checkpoints.tree import File, read_at
from healthd.checkpoints.workers import alone
from healthd.pickles.read import EVERYTHING, BadPickle, read_pickle

LARGEST_OBJECT = 16 << 20
"""Bytes. Of a larger object only both ends are read, and it must be a pickle."""
_MOST_INSTRUCTIONS = 4_000_000
_MOST_MEMORY = 96 << 20
_PICKLE = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_STOP = b"."


def is_plain(file: File, name: str, offset: int, length: int) -> bool:
    """Whether these bytes are one complete pickle, or text."""
    if length > LARGEST_OBJECT:
        ends = read_at(file, name, offset=offset, size=2), read_at(file, name, offset=offset + length - 1, size=1)
        return ends[0] in _PICKLE and ends[1] == _STOP
    with alone(length):
        raw = read_at(file, name, offset=offset, size=length)
        return _is_pickle(raw) if raw.startswith(_PICKLE) else _is_text(raw)


def _is_pickle(raw: bytes) -> bool:
    try:
        read_pickle(raw, EVERYTHING, most=_MOST_INSTRUCTIONS, memory=_MOST_MEMORY)
    except BadPickle:
        return False
    return raw.endswith(_STOP)


def _is_text(raw: bytes) -> bool:
    try:
        refuse_no_text(raw)
    except UnicodeDecodeError:
        return False
    return b"\0" not in raw
