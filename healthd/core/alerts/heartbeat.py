"""
When the next heartbeat is due. Only a reconcile loop that turns sends one, so a process that hangs is noticed outside.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

RETRY_AFTER = timedelta(seconds=10)
"""After a call that failed, where the interval is longer."""


class Due(Enum):
    """What to do now."""

    NOT_YET = 1
    SEND = 2
    WITHHOLD = 3
    """It is time, and the loop has not turned since the last call."""


@dataclass(frozen=True, slots=True)
class LastBeat:
    """The last call. *rounds* is how often the loop had turned by then."""

    at: datetime
    rounds: int
    has_failed: bool = False


def due(last: LastBeat | None, rounds: int, now: datetime, interval: timedelta) -> Due:
    """Whether to call now, when the loop has turned *rounds* times. A new leader calls after its first round."""
    if last is not None and now - last.at < (min(interval, RETRY_AFTER) if last.has_failed else interval):
        return Due.NOT_YET
    return Due.SEND if rounds > (last.rounds if last else 0) else Due.WITHHOLD
