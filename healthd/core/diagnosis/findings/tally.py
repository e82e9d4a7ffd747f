"""
Counting what is worth a finding only in numbers: a corrected error says nothing, thirty in ten minutes do. Pure.

A tally is not published: an agent that starts anew counts from nothing, and tells a storm that goes on a little later.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from healthd.core.diagnosis.judgement import Needs

Tally = Mapping[str, tuple[datetime, ...]]
"""By id of a finding that is not raised yet: when the last few events were, never more than it needs."""


def counted(tally: Tally, key: str, needs: Needs, at: datetime) -> tuple[Tally, bool]:
    """Count an event at *at*; return the new tally, and whether it is the one that makes a finding."""
    # Not only what is later than the start of the window: records of one time may be told in any order.
    recent = [one for one in tally.get(key, ()) if abs(at - one) <= needs.within]
    times = tuple(sorted([*recent, at])[-needs.times :])
    rest = {other: seen for other, seen in tally.items() if other != key}
    if len(times) >= needs.times:
        return rest, True
    return {**rest, key: times}, False
