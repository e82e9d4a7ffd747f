"""
Counts events that make a finding only in numbers: one corrected error means nothing, thirty in ten minutes do. Pure.

A tally is not published. An agent that restarts counts from zero, and reports a continuing storm a little later.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from healthd.core.diagnosis.judgement import Needs

Tally = Mapping[str, tuple[datetime, ...]]
"""By id of a finding that is not raised yet: the times of the last events, never more than it needs."""


def counted(tally: Tally, key: str, needs: Needs, at: datetime) -> tuple[Tally, bool]:
    """Count an event at *at*; return the new tally, and whether it is the one that makes a finding."""
    # Not only events after the start of the window: records of one time may arrive in any order.
    recent = [one for one in tally.get(key, ()) if abs(at - one) <= needs.within]
    times = tuple(sorted([*recent, at])[-needs.times :])
    rest = {other: seen for other, seen in tally.items() if other != key}
    if len(times) >= needs.times:
        return rest, True
    return {**rest, key: times}, False
