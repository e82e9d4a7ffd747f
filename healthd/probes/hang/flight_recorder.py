"""
Reads dumps of torch's flight recorder, which are pickles. They are read as data: nothing in them is ever called.

torch writes them where the owner set `TORCH_FR_BUFFER_SIZE` (`TORCH_NCCL_TRACE_BUFFER_SIZE` before 2.7) and
`TORCH_FR_DUMP_TEMP_FILE`, one for each rank, when it is asked to or when its watchdog fires.
"""

from __future__ import annotations

from healthd.core.hang.suspects.evidence import GroupProgress
from healthd.core.hang.suspects.flight_recorder import NoDump, read_dump
from healthd.pickles.read import BadPickle, read_pickle
from healthd.probes.errors import CannotRead
from healthd.probes.hang.files import read_regular

LARGEST_DUMP = 32 << 20
"""Bytes. 2,000 entries with the stacks of their callers have a few million."""
_MOST_INSTRUCTIONS = 4_000_000
"""They take about two seconds."""
_MOST_MEMORY = 160 << 20
_ALLOWED = frozenset[str]()
"""No class at all: a dump has text, numbers, lists and dictionaries."""


def read_flight_recorder(path: str, *, newer_than: float = 0.0) -> tuple[GroupProgress, ...]:
    """
    The progress of the rank whose dump is in *path*.

    Raises CannotRead also for a dump that was written before *newer_than* (seconds of the epoch): it tells of another
    hang.
    """
    data = read_regular(path, LARGEST_DUMP, newer_than=newer_than)
    try:
        return read_dump(read_pickle(data, _ALLOWED, most=_MOST_INSTRUCTIONS, memory=_MOST_MEMORY))
    except (BadPickle, NoDump) as error:
        raise CannotRead(path, f"it is no dump of a flight recorder: {error}", "look at it by hand") from error
