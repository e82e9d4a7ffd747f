"""
What a picture of the last minutes before a hang is made of: its rows, and the times on its axis. Pure.

Drawn by `activity_text` for a terminal, and by `activity_svg` for a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from healthd.core.hang.history import ActivityHistory

STEPS = (5, 10, 15, 30, 60, 120, 300, 600)
"""Seconds between two times on the axis."""


@dataclass(frozen=True, kw_only=True)
class ActivityPicture:
    """*history* with what is known of its ranks."""

    history: ActivityHistory
    last_work: datetime
    """The last sign of work of any rank: the hang began."""
    suspects: Collection[int] = ()
    nodes: Mapping[int, str] = field(default_factory=dict)
    """The node of a rank, as far as it is known. Text of users."""


class ActivityRow(NamedTuple):
    """One rank."""

    rank: int
    node: str
    signs: str
    is_suspect: bool


def rows_of(picture: ActivityPicture) -> list[ActivityRow]:
    """Suspects first, then by rank."""
    rows = [
        ActivityRow(each.rank, picture.nodes.get(each.rank, ""), each.signs, each.rank in picture.suspects)
        for each in picture.history.ranks
    ]
    return sorted(rows, key=lambda row: (not row.is_suspect, row.rank))


def ticks_of(history: ActivityHistory, most: int) -> Iterator[tuple[float, datetime]]:
    """At most *most* round times between the start and the end: seconds after the start, and the time (UTC)."""
    span = (history.end - history.start).total_seconds()
    step = next((step for step in STEPS if span / step <= most), span)
    start = history.start.timestamp()
    second = start - start % step + step
    while second < start + span:
        yield second - start, history.start + timedelta(seconds=second - start)
        second += step
